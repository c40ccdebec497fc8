"""Releases of Transformer Engine made by hand: tiny wheels for pip to find, and a cache that is filled."""

from __future__ import annotations

import zipfile
from pathlib import Path

from harness import backends, releases
from harness.backends.installed import te_directory

INSTALLED = backends.te_version().split("+")[0]


def _files(release: str, code: str, parts: int = 0) -> dict[str, str]:
    info = f"transformer_engine-{release}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: transformer_engine\nVersion: {release}\n"
    wheel = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files = {"transformer_engine/__init__.py": code, f"{info}/METADATA": metadata, f"{info}/WHEEL": wheel}
    files |= {f"transformer_engine/part_{number}.py": "" for number in range(parts)}
    rows = [f"{name},,{len(text.encode())}\n" for name, text in files.items()]
    return {**files, f"{info}/RECORD": "".join(rows) + f"{info}/RECORD,,\n"}


def build_wheel(folder: Path, release: str, parts: int = 0) -> Path:
    """Put a wheel of next to nothing, in so many more files, into a folder, and return it."""
    folder.mkdir(exist_ok=True)
    path = folder / f"transformer_engine-{release}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in _files(release, f"release = {release!r}\n", parts).items():
            wheel.writestr(name, text)
    return path


def cache_installed(release: str = INSTALLED) -> Path:
    """Put the Transformer Engine of these tests into the cache, as if it had been fetched as a release."""
    folder = releases.folder_of(release)
    installed = te_directory()
    for name, text in _files(release, (installed / "__init__.py").read_text()).items():
        path = folder / name
        if path.parent.name != "transformer_engine":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    (folder / "transformer_engine").symlink_to(installed)
    return folder

"""A backend starts once per process. Each test is a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.backends import active

if TYPE_CHECKING:
    from harness.backends.base import Backend

ROOT = Path(__file__).parents[2]


def run(program: str, *options: str, path: Path | None = None) -> str:
    """Run ``program`` in a new interpreter and return what it printed."""
    places = [str(path)] if path else []
    places += [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    done = subprocess.run(  # noqa: S603
        [sys.executable, *options, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def test_the_first_call_makes_te_importable_and_later_calls_return_the_same() -> None:
    printed = run(
        "from harness.backends import activate, active\n"
        "backend = activate('cpu')\n"
        "import transformer_engine.pytorch as te\n"
        "te.Linear(16, 16)\n"
        "print(backend is activate('cpu') is activate('auto') is active(), backend.name, backend.reason)\n"
    )
    assert printed == "True cpu asked for"


def test_another_backend_cannot_follow() -> None:
    printed = run(
        "from harness.backends import activate\n"
        "from harness.errors import HarnessError\n"
        "activate('cpu')\n"
        "try: activate('cuda')\n"
        "except HarnessError as error: print(error)\n"
    )
    assert printed == ("the cpu backend is active in this process: use it, or start a new process for cuda")


def test_te_must_not_be_there_already(tmp_path: Path) -> None:
    (tmp_path / "transformer_engine").mkdir()
    (tmp_path / "transformer_engine" / "__init__.py").touch()
    printed = run(
        "import transformer_engine\n"
        "from harness.backends import activate\n"
        "from harness.errors import HarnessError\n"
        "try: activate('cpu')\n"
        "except HarnessError as error: print(error)\n",
        path=tmp_path,
    )
    assert printed == "Transformer Engine was imported before its backend was chosen: call activate() first"


def test_the_loader_of_releases_up_to_2_3_loads_the_emulation_and_compiles_nothing(tmp_path: Path) -> None:
    package = tmp_path / "transformer_engine"
    for folder in (package, package / "common", package / "pytorch"):
        folder.mkdir()
        (folder / "__init__.py").touch()
    metadata = tmp_path / "transformer_engine-2.3.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: transformer_engine\nVersion: 2.3.0\n")
    (package / "common" / "__init__.py").write_text(
        "def get_te_path(): raise AssertionError('searched where no library is')\n"
        "def is_package_installed(package): raise AssertionError('asked pip')\n"
    )
    (package / "pytorch" / "__init__.py").write_text(
        "import importlib.util, torch\n"
        "from transformer_engine.common import get_te_path, is_package_installed\n"
        "assert not is_package_installed('transformer_engine_torch')\n"
        "folder = get_te_path() / 'transformer_engine'\n"
        "assert not list(folder.glob('transformer_engine_jax.*.so'))\n"
        "path = next(folder.glob('transformer_engine_torch.*.so'))\n"
        "spec = importlib.util.spec_from_file_location('transformer_engine_torch', path)\n"
        "extension = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(extension)\n"
        "compiled = torch.compile(len)\n"
    )
    printed = run(
        "import torch\n"
        "compile_ = torch.compile\n"
        "from harness.backends import activate\n"
        "activate('cpu')\n"
        "import transformer_engine.pytorch as te\n"
        "print(callable(te.extension.quantize), te.compiled is len, torch.compile is compile_)\n",
        path=tmp_path,
    )
    assert printed == "True True True"


def test_there_is_no_active_backend_before_the_first_call() -> None:
    printed = run(
        "from harness.backends import active\n"
        "from harness.errors import HarnessFault\n"
        "try: active()\n"
        "except HarnessFault as error: print(error)\n"
    )
    assert printed == "no backend is active: call harness.backends.activate() first"


def test_it_emits_no_warning_and_mutes_none() -> None:
    printed = run(
        "import warnings\n"
        # Which has filters of its own.
        "import torch\n"
        "from harness.backends import activate\n"
        "before = list(warnings.filters)\n"
        "activate('cpu')\n"
        "print([rule for rule in warnings.filters if rule[0] == 'ignore' and rule not in before])\n",
        "-W",
        "error",
    )
    assert printed == "[]"


def test_a_child_process_inherits_nothing_that_keeps_it_from_the_real_extension() -> None:
    printed = run(
        "import os\n"
        "from harness.backends import activate\n"
        "activate('cpu')\n"
        "print([name for name in ('NVTE_PROJECT_BUILDING', 'NVTE_RELEASE_BUILD') if name in os.environ])\n"
    )
    assert printed == "[]"


def test_the_version_is_that_of_the_package_that_is_imported(tmp_path: Path) -> None:
    (tmp_path / "transformer_engine").mkdir()
    (tmp_path / "transformer_engine" / "__init__.py").touch()
    metadata = tmp_path / "transformer_engine-2.99.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: transformer_engine\nVersion: 2.99.1\n")
    assert run("from harness.backends import te_version; print(te_version())", path=tmp_path) == "2.99.1"


def test_the_active_backend_describes_itself(backend: Backend) -> None:
    described = backend.describe()
    assert active() is backend
    assert described["backend"] == backend.name
    assert set(described) == {
        "backend", "device", "compute_capability", "transformer_engine", "torch", "python"
    }  # fmt: skip


@pytest.mark.usefixtures("emulation")
def test_te_has_its_own_python_and_our_extension() -> None:
    import transformer_engine_torch

    assert Path(transformer_engine_torch.__file__) == ROOT / "harness/backends/cpu/extension.py"

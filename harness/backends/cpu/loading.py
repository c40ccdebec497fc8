"""Import Transformer Engine so that its own loader loads our extension instead of the compiled one."""

# TE has no public way to say where its extension lies.
# ruff: noqa: SLF001

from __future__ import annotations

import importlib
import os
import sys
import warnings
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.backends.cpu.patches import compiling_nothing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

EXTENSION = Path(__file__).with_name("extension.py")
_COMMON = "transformer_engine.common"


class _CommonLoader(Loader):
    """Executes transformer_engine.common, then points its search for the torch library at our file."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        common: Any = module
        if not hasattr(common, "_get_shared_object_file"):
            _serve_older_loader(common)
            return
        find_library = common._get_shared_object_file
        common._get_shared_object_file = lambda library: (
            EXTENSION if library == "torch" else find_library(library)
        )


def _serve_older_loader(common: Any) -> None:
    """Answer the loader of releases up to 2.3: it searches the folder that ``get_te_path()`` names.

    It also runs pip to ask whether a compiled extension was installed as a package; none counts here.
    """
    common.get_te_path = _Folder
    common.is_package_installed = lambda _package: False


class _Folder:
    """Stands for the path at which TE is installed, and below which its libraries are searched."""

    def __truediv__(self, _name: str) -> _Folder:
        return self

    def glob(self, pattern: str) -> Iterator[Path]:
        """Find our extension where torch's is searched; nothing else."""
        return iter([EXTENSION] if pattern.startswith("transformer_engine_torch.") else [])


class _CommonFinder(MetaPathFinder):
    """Finds transformer_engine.common where everybody finds it, and wraps its loader.

    The package imports its torch half from its own ``__init__``, so there is no moment between the import
    of ``common`` and the loading of the extension at which a caller could step in.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _COMMON:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _CommonLoader(spec.loader)
        return spec


@contextmanager
def _without_the_core_library() -> Iterator[None]:
    # TE's own switch for importing itself while it is built: no compiled core, no CUDA libraries. Only for
    # the import, because a child process that is to run on a GPU would inherit it.
    names = {"NVTE_PROJECT_BUILDING": "1", "NVTE_RELEASE_BUILD": "0"}
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def load_te() -> None:
    """Import ``transformer_engine.pytorch`` on the emulated extension.

    torch must be patched already, because TE binds some of its functions by name.
    """
    finder = _CommonFinder()
    sys.meta_path.insert(0, finder)
    try:
        # Deprecations in what TE imports are not ours to fix, and would be errors under pytest.
        with _without_the_core_library(), compiling_nothing(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module("transformer_engine.pytorch")
    finally:
        sys.meta_path.remove(finder)

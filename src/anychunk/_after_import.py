"""Calls functions once another package has been imported, without importing it.

Importing zarr takes most of the time that a process needs to start, and parsing a file or printing
its index does not need it. But what zarr shall find must be there as soon as anyone imports zarr.
"""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

type Action = Callable[[], object]

_waiting: dict[str, list[Action]] = {}


def after_import(name: str, action: Action) -> None:
    """Call `action` when the import of the package `name` ends; at once if it is imported."""
    if name in sys.modules:
        action()
        return
    if not _waiting:
        sys.meta_path.insert(0, _Finder())
    _waiting.setdefault(name, []).append(action)


class _Finder(MetaPathFinder):
    """Finds what the other finders find; of the packages that are waited for, loads are noticed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _waiting:
            return None
        # not removed from the list: other threads may be walking along it
        for finder in [f for f in sys.meta_path if f is not self]:
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


class _Loader(Loader):
    """Loads as another loader does, then calls what waits for the module."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __getattr__(self, name: str) -> Any:  # resources, sources and so on
        return getattr(self.loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        found: ModuleType | None = self.loader.create_module(spec)
        return found

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        for action in _waiting.pop(module.__name__, ()):
            action()

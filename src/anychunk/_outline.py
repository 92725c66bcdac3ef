"""What a module says of itself, without running it: to list modules that are slow to import."""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import CodeType


@dataclass(frozen=True)
class Outline:
    """The docstring of a module, and the names that its top level mentions."""

    doc: str | None
    names: frozenset[str]


def outline(module: str) -> Outline:
    """Read the compiled code of a module; its parent package is imported."""
    spec = find_spec(module)
    loader: Any = None if spec is None else spec.loader
    code: CodeType | None = None if loader is None else loader.get_code(module)
    if code is None:
        raise ImportError(f"{module}: no source code was found")
    first = code.co_consts[0] if code.co_consts else None
    has_doc = "__doc__" in code.co_names and isinstance(first, str)
    return Outline(first if has_doc else None, frozenset(code.co_names))

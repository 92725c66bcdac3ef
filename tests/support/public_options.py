"""Every option of the public functions and commands, for their page in the reference and its test."""

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, ForwardRef

import typer.main

import anychunk
from anychunk import options
from anychunk.cli.commands import app
from anychunk.formats import jnrrd
from anychunk.xarray_engine import AnychunkEntrypoint

SOURCE_DOC = re.compile(r'^    (\w+): [^\n]*\n    """(.*?)"""', re.MULTILINE | re.DOTALL)


def functions() -> dict[str, Callable[..., Any]]:
    """Return the public functions that have options, by the names that callers use."""
    found = {f"anychunk.{n}": getattr(anychunk, n) for n in anychunk.__all__}
    found = {n: f for n, f in found.items() if inspect.isfunction(f) and options.names(f)}
    return found | {
        "anychunk.VirtualParser": anychunk.VirtualParser.__init__,
        "anychunk.Group.image": anychunk.Group.image,
        'xarray engine="anychunk"': AnychunkEntrypoint.open_dataset,
        "anychunk.formats.jnrrd.read_tile": jnrrd.read_tile,
        "anychunk.formats.jnrrd": jnrrd.validate,
        "anychunk.formats.jnrrd.write": jnrrd.write,
    }


def commands() -> dict[str, dict[str, Any]]:
    """Return the options of every command, by the name of the same option in Python."""
    group: Any = typer.main.get_command(app)
    context = typer.Context(group)
    found = {}
    for name in group.list_commands(context):
        parameters = group.get_command(context, name).params
        found[name] = {
            p.name: p for p in parameters if p.param_type_name == "option" and p.name != "help"
        }
    return found


def type_text(annotation: Any) -> str:
    """Return a type as it is written in code, without None, which stands for the default."""
    text = annotation if isinstance(annotation, str) else repr(annotation)
    if isinstance(annotation, ForwardRef):
        text = annotation.__forward_arg__
    elif isinstance(annotation, type) and not hasattr(annotation, "__args__"):
        text = annotation.__name__
    text = re.sub(r"\b(?:collections\.abc|typing|anychunk(?:\.\w+)+)\.", "", text)
    return " | ".join(part for part in split_union(text) if part != "None")


def split_union(text: str) -> Iterator[str]:
    """Yield the members of a union, but not those inside brackets."""
    depth, start = 0, 0
    for at, sign in enumerate(text):
        depth += (sign in "[(") - (sign in "])")
        if sign == "|" and not depth:
            yield text[start:at].strip()
            start = at + 1
    yield text[start:].strip()


def types() -> dict[str, dict[str, str]]:
    """Return the type of every option in every function, by option and function."""
    found: dict[str, dict[str, str]] = {}
    for function, known in ((n, options.names(f)) for n, f in functions().items()):
        for name, annotation in known.items():
            if name != "checkpoints":
                found.setdefault(name, {})[function] = type_text(annotation)
    return dict(sorted(found.items()))


def table() -> str:
    """Return the table of options."""
    lines = ["| option | type | functions | commands |", "|---|---|---|---|"]
    in_commands = commands()
    for name, by_function in types().items():
        kind = next(iter(by_function.values())).replace("|", "\\|")
        where = ", ".join(f"`{f.removeprefix('anychunk.')}`" for f in by_function)
        also = ", ".join(
            f"`{c} {p.opts[0]}`" for c, known in in_commands.items() if (p := known.get(name))
        )
        lines.append(f"| `{name}` | `{kind}` | {where} | {also} |")
    return "\n".join(lines) + "\n"

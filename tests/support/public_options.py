"""Every option of the public functions and commands, for their page in the reference and its test."""

import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ForwardRef

import typer.main

import anychunk
from anychunk import limits, options
from anychunk.cli.commands import app
from anychunk.formats import jnrrd
from anychunk.io import opening
from anychunk.references import icechunk
from anychunk.xarray_engine import AnychunkEntrypoint
from anychunk.zarr import headers

DIRECTIVE = re.compile(r"^::: (\S+)\n((?: +.*\n)*)", re.MULTILINE)


def functions() -> dict[str, Callable[..., Any]]:
    """Return the public functions that have options, by the names that callers use."""
    found = {f"anychunk.{n}": getattr(anychunk, n) for n in anychunk.__all__}
    found = {n: f for n, f in found.items() if inspect.isfunction(f) and options.names(f)}
    return found | {
        "anychunk.VirtualParser": anychunk.VirtualParser.__init__,
        "anychunk.Group.image": anychunk.Group.image,
        "anychunk.GroupIndex.save": anychunk.GroupIndex.save,
        "anychunk.GroupIndex.to_virtualizarr": anychunk.GroupIndex.to_virtualizarr,
        "anychunk.references.icechunk.open_repository": icechunk.open_repository,
        'xarray engine="anychunk"': AnychunkEntrypoint.open_dataset,
        "anychunk.formats.jnrrd.read_tile": jnrrd.read_tile,
        "anychunk.formats.jnrrd.validate": jnrrd.validate,
        "anychunk.formats.jnrrd.write": jnrrd.write,
    }


def for_authors() -> dict[str, Callable[..., Any]]:
    """Return other functions of the reference that have options, which are words of their own."""
    return {
        "anychunk.limits.override": limits.override,
        "anychunk.zarr.headers.tiff": headers.tiff,
        "anychunk.io.opening.open_source": opening.open_source,
    }


def documented() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield every function that has options, and method of a class, that the reference shows."""
    pages = sorted((Path(__file__).parents[2] / "docs/reference").glob("*.md"))
    for name, given in (n for page in pages for n in DIRECTIVE.findall(page.read_text("utf-8"))):
        found: Any = pkgutil.resolve_name(name)
        listed = re.search(r"^ +members: \[(.*)\]", given, re.MULTILINE)
        hidden = "|".join(["^_", *re.findall(r'"!(.+?)"', given)])
        shown = [name for name in dir(found) if not re.search(hidden, name)]
        shown = listed[1].split(", ") if listed else shown
        is_protocol = getattr(found, "_is_protocol", False)  # others write these
        if not inspect.isfunction(found) and not is_protocol:
            members = {f"{name}.{key}": getattr(found, key, None) for key in shown}
        else:
            members = {name: found}
        for path, member in members.items():
            is_ours = (getattr(member, "__module__", None) or "").startswith("anychunk")
            if inspect.isfunction(member) and is_ours and options.names(member):
                yield path, member


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

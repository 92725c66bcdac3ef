"""Attributes of the target's groups: those of the source, and the levels that are written."""

from collections.abc import Sequence

from anychunk.conversion.levels import Level, ZarrOptions
from anychunk.metadata import ome
from anychunk.model import images as im
from anychunk.model.images import Image
from anychunk.model.index import GroupIndex, Json, Node, find


def root_attributes(source: Node, found: list[Image], *, is_one: bool) -> dict[str, Json]:
    """Return the source's attributes, with the provenance under `anychunk`."""
    kept = {k: v for k, v in source.attributes.items() if k != "anychunk"}
    about = source.attributes.get("anychunk", {})
    kept["anychunk"] = {"converted_from": about}
    numbers = [image.path for image in found]
    if not is_one and all(n.isdigit() for n in numbers):
        # OME-Zarr 0.5, "bioformats2raw.layout": images are the groups 0, 1, ...
        kept["ome"] = {"version": "0.5", "bioformats2raw.layout": 3}
    return kept


def group_attributes(source: Node, path: str) -> dict[str, Json]:
    """Return the attributes of a group of the source; empty if it has no such group."""
    group = find(source, path)
    return dict(group.attributes) if isinstance(group, GroupIndex) else {}


def image_attributes(
    image: Image, levels: Sequence[Level], options: ZarrOptions
) -> dict[str, Json]:
    """Return the attributes of an image group, with `ome` describing the levels written."""
    kept = {k: v for k, v in image.attributes.items() if k != "anychunk"}
    names = levels[0].metadata["dimension_names"]
    if not {"x", "y"} <= set(names) or not 2 <= len(names) <= 5:
        options.notes.append(
            f"{image.path or '/'}: OME-Zarr cannot describe axes {' '.join(names)}, so no ome "
            "attribute is written; name the axes, for example zyx"
        )
        kept.pop("ome", None)
        return kept
    order = levels[0].order
    units = {a["name"]: a.get("unit") for a in image.axes} if options.axes is None else {}
    axes = [ome.Axis(name=n, unit=units.get(n)) for n in names]
    made = ome.ome(axes, level_scales(image, levels, order))
    before = kept.get("ome", {})
    described = (before.get("multiscales") or [{}])[0]
    named = {k: described[k] for k in ("name", "metadata") if k in described}
    if len(levels) > 1 and levels[1].source is None:
        named["type"] = levels[1].method
    made["multiscales"][0] = {**made["multiscales"][0], **named}
    kept["ome"] = {**before, **made}
    return kept


def level_scales(image: Image, levels: Sequence[Level], order: tuple[int, ...]) -> list[ome.Level]:
    """Return scale and translation of every level.

    An element of a computed level covers a window of the full resolution, and its centre is the
    centre of the window. Hence the translation by half the difference of their sizes.
    """
    scale = tuple(image.scale[i] for i in order)
    origin = tuple(image.translation[i] for i in order)
    if len(levels) > 1 and levels[1].source is not None:
        return copied_scales(image, levels, order)
    found = []
    factor = (1,) * len(scale)
    for level in levels:
        factor = tuple(f * r for f, r in zip(factor, level.ratio, strict=True))
        found.append(
            ome.Level(
                path=level.path.rsplit("/", 1)[-1],
                scale=tuple(s * f for s, f in zip(scale, factor, strict=True)),
                translation=tuple(
                    o + s * (f - 1) / 2 for o, s, f in zip(origin, scale, factor, strict=True)
                ),
            )
        )
    return found


def copied_scales(image: Image, levels: Sequence[Level], order: tuple[int, ...]) -> list[ome.Level]:
    """Return the scale and translation of copied levels, as declared by the source."""
    described = im.multiscale(image.attributes)
    if not described:
        shapes = [level.shape for level in levels]
        scale = tuple(image.scale[i] for i in order)
        paths = [level.path.rsplit("/", 1)[-1] for level in levels]
        return ome.shrunk_levels(paths, shapes, scale)
    found = []
    for level in levels:
        name = (level.source or "").removeprefix(image.path).strip("/")
        scale, origin = im.transformation(described, name, len(image.axes))
        found.append(
            ome.Level(
                path=level.path.rsplit("/", 1)[-1],
                scale=tuple(scale[i] for i in order),
                translation=tuple(origin[i] for i in order),
            )
        )
    return found

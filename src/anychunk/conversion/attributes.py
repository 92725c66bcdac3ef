"""Attributes of the target's groups: the source's own, provenance, and what describes an image."""

from collections.abc import Mapping

from anychunk.conversion.levels import Chain
from anychunk.metadata.hierarchy import group_attributes as group_attributes_of
from anychunk.metadata.meaning import Meaning
from anychunk.metadata.reading import native_attributes
from anychunk.model import images as im
from anychunk.model.index import GroupIndex, Json, Node, find


def root_attributes(source: Node) -> dict[str, Json]:
    """Return the source's attributes, with the provenance under `anychunk`."""
    about = source.attributes.get("anychunk", {})
    return {**foreign_attributes(source), "anychunk": {"converted_from": about}}


def group_attributes(source: Node, path: str) -> dict[str, Json]:
    """Return the attributes of a group of the source; empty if it has no such group."""
    group = find(source, path)
    if not isinstance(group, GroupIndex):
        return {}
    ome = group.attributes.get("ome")
    # the list of labels beside an image is what OME viewers find them by
    labels = ome.get("labels") if isinstance(ome, Mapping) else None
    listed = {"ome": {"version": "0.5", "labels": labels}} if isinstance(labels, list) else {}
    return {**foreign_attributes(group), **listed}


def described_attributes(
    chain: Chain, attributes: Mapping[str, Json], meaning: Meaning | None = None
) -> dict[str, Json]:
    """Return the attributes that describe an image, true of the levels that are written.

    Parameters:
        chain: The levels.
        attributes: Of the image in the source: what no field of the meaning holds is kept.
        meaning: What the samples mean, if that is not as in the plan.
    """
    found = group_attributes_of(chain.meaning if meaning is None else meaning, chain.described)
    if "ome" not in found:
        return found
    before = attributes.get("ome")
    kept = before if isinstance(before, Mapping) else {}
    others = {k: v for k, v in kept.items() if k not in ("version", "multiscales", "omero")}
    named = im.multiscale(attributes).get("metadata")
    scales = dict(found["ome"]["multiscales"][0])
    if named is not None:
        scales["metadata"] = named
    if len(chain.levels) > 1 and chain.levels[1].source is None:
        scales["type"] = chain.levels[1].method
    return {**found, "ome": {**others, **found["ome"], "multiscales": [scales]}}


def foreign_attributes(node: Node) -> dict[str, Json]:
    """Return the attributes of a group that the hierarchy does not write anew."""
    return native_attributes(node.attributes) if isinstance(node, GroupIndex) else {}

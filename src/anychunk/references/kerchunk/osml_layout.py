"""Arrange an index as osml-imagery-io reads it: groups `0`, `1`, … with an array `data` each.

Its codecs ignore configuration keys that they do not know, and then decode wrong pixels. So
keys added by anychunk that change the pixels are refused; those that only enable checks are left
out.
"""

from dataclasses import replace

from anychunk.errors import UnsupportedError
from anychunk.model.index import ArrayIndex, GroupIndex, Json, Node

U = "https://awslabs.github.io/osml-imagery-io/codecs"
KNOWN = {
    f"{U}/tiff-tile": {
        "compression", "bits_per_sample", "samples_per_pixel", "photometric", "planar_config",
        "predictor", "tile_width", "tile_height", "sample_format", "jpeg_tables",
    },
    f"{U}/jbp-block": {"num_bands", "block_height", "block_width", "nbpp", "imode", "pvtype"},
    f"{U}/jpeg": {
        "bits_per_pixel", "num_bands", "block_width", "block_height", "imode", "color_space",
    },
    f"{U}/jpeg2000": {"main_header", "resolution_level"},
}  # fmt: skip
"""The keys that osml-imagery-io 0.2.2 reads, by codec."""
CHECKS = {"last_height", "last_width"}
"""Keys added by anychunk that only make decoding stricter."""


def osml_layout(node: Node) -> Node:
    """Return groups of images, each with its full resolution as `data`.

    Raises:
        UnsupportedError: If an image has no full resolution, or osml-imagery-io would misread it.
    """
    if not isinstance(node, GroupIndex):
        raise UnsupportedError("layout osml: the root is an array, expected a group of images")
    members: dict[str, Node] = {}
    for name, image in node.members.items():
        first = image.members.get("0") if isinstance(image, GroupIndex) else image
        if not isinstance(first, ArrayIndex):
            raise UnsupportedError(
                f"layout osml: image {name!r} has no array '0', its full resolution"
            )
        attributes = image.attributes if isinstance(image, GroupIndex) else {}
        kept = {key: value for key, value in attributes.items() if key != "ome"}
        codecs = tuple(_codec(codec, f"array {name}/data") for codec in first.codecs)
        members[name] = GroupIndex(members={"data": replace(first, codecs=codecs)}, attributes=kept)
    return GroupIndex(members=members, attributes=node.attributes, pins=node.pins)


def _codec(codec: Json, where: str) -> Json:
    """Return a codec without keys that only enable checks; refuse other keys added by anychunk."""
    known = KNOWN.get(codec["name"]) if isinstance(codec, dict) else None
    if known is None:
        return codec
    configuration = codec.get("configuration", {})
    ours = sorted(set(configuration) - known - CHECKS)
    if ours:
        name = codec["name"].rpartition("/")[2]
        raise UnsupportedError(
            f"{where}: osml-imagery-io ignores {' '.join(ours)} of {name}, "
            'and would decode wrong pixels; save with layout="anychunk"'
        )
    return {**codec, "configuration": {k: v for k, v in configuration.items() if k in known}}

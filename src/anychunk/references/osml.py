"""The tree and the codecs of osml-imagery-io: groups `0`, `1`, … with an array `data` each.

Its codecs pass over keys that they do not know, and then give other pixels. So keys of ours that
change what is decoded are refused by name; those that only make checks stricter are left out.
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
"""The keys that osml-imagery-io 0.2.2 reads."""
CHECKS = {"last_height", "last_width"}


def osml_layout(node: Node) -> Node:
    """Give image groups with the full resolution as `data`, in codecs as they are read there."""
    if not isinstance(node, GroupIndex):
        raise UnsupportedError("layout osml: the root is one array, expected groups of images")
    members: dict[str, Node] = {}
    for name, image in node.members.items():
        first = image.members.get("0") if isinstance(image, GroupIndex) else image
        if not isinstance(first, ArrayIndex):
            raise UnsupportedError(f"layout osml: group {name!r} has no array 0")
        attributes = image.attributes if isinstance(image, GroupIndex) else {}
        kept = {key: value for key, value in attributes.items() if key != "ome"}
        codecs = tuple(_codec(codec, f"array {name}/data") for codec in first.codecs)
        members[name] = GroupIndex(members={"data": replace(first, codecs=codecs)}, attributes=kept)
    return GroupIndex(members=members, attributes=node.attributes, pins=node.pins)


def _codec(codec: Json, where: str) -> Json:
    """Give a codec as it is read there, or refuse what would be read wrong."""
    known = KNOWN.get(codec["name"]) if isinstance(codec, dict) else None
    if known is None:
        return codec
    configuration = codec.get("configuration", {})
    ours = sorted(set(configuration) - known - CHECKS)
    if ours:
        name = codec["name"].rpartition("/")[2]
        raise UnsupportedError(
            f"{where}: osml-imagery-io does not know {' '.join(ours)} of {name}, "
            'and would give other pixels; save it with layout="anychunk"'
        )
    return {**codec, "configuration": {k: v for k, v in configuration.items() if k in known}}

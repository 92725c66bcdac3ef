"""The codecs whose names osml-imagery-io registers too, under names that only anychunk registers.

Saved indexes have these names where osml-imagery-io would decode wrong pixels, so that zarr always
finds our classes. anychunk itself replaces them by the shared names when it loads an index.
"""

from typing import ClassVar

from anychunk.codecs import OWN_NAMES
from anychunk.codecs.base import v2_filter
from anychunk.codecs.jbp_block import JbpBlock
from anychunk.codecs.jpeg import Jpeg
from anychunk.codecs.jpeg2000.codec import Jpeg2000
from anychunk.codecs.tiff_tile import TiffTile


class OwnJbpBlock(JbpBlock):
    """`jbp-block` under a name of ours."""

    name: ClassVar[str] = OWN_NAMES[JbpBlock.name]


class OwnJpeg(Jpeg):
    """`jpeg` under a name of ours."""

    name: ClassVar[str] = OWN_NAMES[Jpeg.name]


class OwnJpeg2000(Jpeg2000):
    """`jpeg2000` under a name of ours."""

    name: ClassVar[str] = OWN_NAMES[Jpeg2000.name]


class OwnTiffTile(TiffTile):
    """`tiff-tile` under a name of ours."""

    name: ClassVar[str] = OWN_NAMES[TiffTile.name]


OwnJbpBlockV2 = v2_filter(OwnJbpBlock)
OwnJpegV2 = v2_filter(OwnJpeg)
OwnJpeg2000V2 = v2_filter(OwnJpeg2000)
OwnTiffTileV2 = v2_filter(OwnTiffTile)

"""The codecs that osml-imagery-io has too, under its names, for saved indexes.

anychunk itself replaces these names by its own when it loads an index (`with_own_name`). The
classes are for zarr, where it opens an index without anychunk's store.

Spec:     that of the codec of the same name.
JSON:     {"name": "https://awslabs.github.io/osml-imagery-io/codecs/tiff-tile", "configuration": …}
Lossless: as the codec of the same name.
"""

from typing import ClassVar

from anychunk.codecs import URIS
from anychunk.codecs.dted import Dted
from anychunk.codecs.jbp_block import JbpBlock
from anychunk.codecs.jpeg import Jpeg
from anychunk.codecs.jpeg2000 import Jpeg2000
from anychunk.codecs.tiff_tile import TiffTile


class UriDted(Dted):
    """`anychunk.dted` by osml-imagery-io's name."""

    name: ClassVar[str] = URIS[Dted.name]


class UriJbpBlock(JbpBlock):
    """`anychunk.jbp-block` by osml-imagery-io's name."""

    name: ClassVar[str] = URIS[JbpBlock.name]


class UriJpeg(Jpeg):
    """`anychunk.jpeg` by osml-imagery-io's name."""

    name: ClassVar[str] = URIS[Jpeg.name]


class UriJpeg2000(Jpeg2000):
    """`anychunk.jpeg2000` by osml-imagery-io's name."""

    name: ClassVar[str] = URIS[Jpeg2000.name]


class UriTiffTile(TiffTile):
    """`anychunk.tiff-tile` by osml-imagery-io's name."""

    name: ClassVar[str] = URIS[TiffTile.name]

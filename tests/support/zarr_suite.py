"""A pytest plug-in: zarr's own tests of `scale_offset` and `cast_value` run on our classes.

Loaded with `-p` in the process that runs zarr's test files, before they are imported.
"""

import zarr.codecs
import zarr.codecs.cast_value
import zarr.codecs.scale_offset

import anychunk
from anychunk.codecs import CastValue, ScaleOffset

zarr.codecs.cast_value.CastValue = zarr.codecs.CastValue = CastValue
zarr.codecs.scale_offset.ScaleOffset = zarr.codecs.ScaleOffset = ScaleOffset
anychunk.enable()

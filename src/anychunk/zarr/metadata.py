"""Zarr's metadata of an array, with our data types and classes of codecs."""

from collections.abc import Mapping
from typing import Any

from anychunk.zarr.codecs import from_json
from anychunk.zarr.core import ArrayV3Metadata
from anychunk.zarr.data_types import data_type


def array_metadata(document: Mapping[str, Any]) -> ArrayV3Metadata:
    """Return zarr's object for the content of a `zarr.json`.

    zarr's own `from_dict` takes data types and codecs from its registries, which are not changed
    for arrays that anychunk opens.
    """
    dtype = data_type(document["data_type"])
    return ArrayV3Metadata(
        shape=document["shape"],
        data_type=dtype,
        chunk_grid=document["chunk_grid"],
        chunk_key_encoding=document["chunk_key_encoding"],
        fill_value=dtype.from_json_scalar(document["fill_value"], zarr_format=3),
        codecs=[from_json(codec) for codec in document["codecs"]],
        attributes=document.get("attributes"),
        dimension_names=document.get("dimension_names"),
    )

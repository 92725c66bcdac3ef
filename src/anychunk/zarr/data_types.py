"""Data types of arrays as zarr's objects, with those of `ml_dtypes`, which zarr does not have.

`anychunk.enable` registers the latter with zarr. Arrays that anychunk opens do not need that.
"""

from typing import Any

import numpy as np

from anychunk.zarr.core import ZDType, data_type_registry


def data_type(given: Any) -> ZDType[Any, Any]:
    """Return zarr's data type for a numpy dtype, or for its JSON in Zarr v3, or itself.

    Raises:
        ValueError: There is none.
    """
    if isinstance(given, ZDType):
        return given
    is_native = isinstance(given, np.dtype)
    try:
        if is_native:
            return data_type_registry.match_dtype(given)
        return data_type_registry.match_json(given, zarr_format=3)
    except ValueError:
        from anychunk.zarr.small_types import TYPES  # slow, and rarely needed

        name = given.name if is_native else given
        own = TYPES.get(name) if isinstance(name, str) else None
        if own is None:
            raise
        return own.from_native_dtype(given) if is_native else own()

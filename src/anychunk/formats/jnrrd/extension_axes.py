"""What the OME and transforms extensions say about axes, as the core fields of a header.

Spec: JNRRD OME Extension 1.0.0 sections 4.1 and 4.2; JNRRD Transforms Extension 1.0.0 sections 2
to 4.

Core fields decide: an extension only adds what they leave open. Of transformations, those from the
array to another system are read that are a matrix: identity, scale, translation, affine, and
sequences of these.
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from anychunk.formats.jnrrd import axes
from anychunk.model.index import Json

OME = re.compile(r"https?://jnrrd\.org/extensions/ome/v1\.\d+\.\d+/?")
TRANSFORMS = re.compile(r"https?://jnrrd\.org/extensions/transforms?/v1\.\d+\.\d+/?")
KINDS = {"X": "space", "Y": "space", "Z": "space", "C": "list", "T": "time"}
TYPES = {"space": "space", "time": "time", "channel": "list"}
MOST_NESTED = 4

type Matrix = npt.NDArray[np.float64]


def with_extensions(fields: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the fields of a header, completed by what its extensions say about the axes."""
    declared = fields.get("extensions")
    sizes = fields.get("sizes")
    if not isinstance(declared, Mapping) or not isinstance(sizes, list):
        return fields
    found: dict[str, Json] = {}
    for prefix, uri in declared.items():
        if not isinstance(uri, str):
            continue
        if OME.fullmatch(uri):
            found |= ome_fields(fields.get(f"{prefix}:dimensions"), len(sizes))
        elif TRANSFORMS.fullmatch(uri):
            found |= transform_fields(
                fields.get(f"{prefix}:coordinateSystems"),
                fields.get(f"{prefix}:transformations"),
                len(sizes),
            )
    if {"spacings", "space_directions", "axis_mins"} & fields.keys():
        places = ("spacings", "units", "axis_mins", "space_directions", "space_origin")
        found = {k: v for k, v in found.items() if k not in (*places, "space_units")}
        found.pop("space_dimension", None)
    if {"space", "space_dimension"} & fields.keys():
        found.pop("space_dimension", None)
    if {"labels", "kinds"} & fields.keys():
        found = {k: v for k, v in found.items() if k not in ("labels", "kinds")}
    return {**found, **fields}


def ome_channels(fields: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    """Return the channels that the OME extension lists; empty if it does not."""
    declared = fields.get("extensions")
    for prefix, uri in (declared if isinstance(declared, Mapping) else {}).items():
        listed = fields.get(f"{prefix}:channels")
        if isinstance(uri, str) and OME.fullmatch(uri) and isinstance(listed, list):
            return [entry for entry in listed if isinstance(entry, Mapping)]
    return []


def ome_fields(dimensions: Json, ndim: int) -> dict[str, Json]:
    """Return labels, kinds, spacings and units of `ome:dimensions`; `order` begins with axis 0."""
    order = dimensions.get("order") if isinstance(dimensions, Mapping) else None
    if not isinstance(order, str) or len(order) != ndim or len(set(order)) != ndim:
        return {}
    if not set(order) <= KINDS.keys() or not isinstance(dimensions, Mapping):
        return {}
    sizes = dimensions.get("physical_sizes")
    stated = [sizes.get(name) if isinstance(sizes, Mapping) else None for name in order]
    known = [entry if isinstance(entry, Mapping) else {} for entry in stated]
    steps = [entry.get("value") if axes.is_number(entry.get("value")) else None for entry in known]
    units = [entry.get("unit") if isinstance(entry.get("unit"), str) else "" for entry in known]
    found: dict[str, Json] = {
        "labels": [name.lower() for name in order],
        "kinds": [KINDS[name] for name in order],
    }
    if any(step is not None for step in steps):
        found |= {"spacings": steps, "units": units}
    return found


def transform_fields(systems: Json, transformations: Json, ndim: int) -> dict[str, Json]:
    """Return the fields of the first transformation from the array that is a matrix."""
    for entry in transformations if isinstance(transformations, list) else []:
        if not isinstance(entry, Mapping) or entry.get("input", "array") != "array":
            continue
        matrix = matrix_of(entry, ndim)
        if matrix is None:
            continue
        return placed(matrix, axes_of(systems, entry.get("output"), ndim), ndim)
    return {}


def axes_of(systems: Json, name: Json, ndim: int) -> list[Mapping[str, Json]]:
    """Return the axes of a coordinate system; empty if it is not defined, or has others."""
    for system in systems if isinstance(systems, list) else []:
        if isinstance(system, Mapping) and system.get("name") == name:
            listed = system.get("axes")
            if isinstance(listed, list) and all(isinstance(axis, Mapping) for axis in listed):
                return list(listed) if len(listed) == ndim else []
    return []


def matrix_of(entry: Mapping[str, Json], ndim: int, depth: int = 0) -> Matrix | None:
    """Return a transformation as a matrix of homogeneous coordinates; None if it is not one."""
    match entry.get("type"):
        case "identity":
            return np.eye(ndim + 1)
        case "scale":
            return scaled(axes.numbers(entry.get("scale")), ndim)
        case "translation":
            return translated(axes.numbers(entry.get("translation")), ndim)
        case "affine":
            return affine(entry.get("affine"), ndim)
        case "sequence" if depth < MOST_NESTED:
            return in_sequence(entry.get("transformations"), ndim, depth)
    return None


def scaled(values: list[float] | None, ndim: int) -> Matrix | None:
    if values is None or len(values) != ndim or not all(values):
        return None
    return np.diag([*values, 1.0])


def translated(values: list[float] | None, ndim: int) -> Matrix | None:
    if values is None or len(values) != ndim:
        return None
    found = np.eye(ndim + 1)
    found[:ndim, ndim] = values
    return found


def affine(rows: Json, ndim: int) -> Matrix | None:
    read = [axes.numbers(row) for row in rows] if isinstance(rows, list) else []
    if len(read) != ndim or any(row is None or len(row) != ndim + 1 for row in read):
        return None
    return np.array([*read, [0.0] * ndim + [1.0]], np.float64)


def in_sequence(steps: Json, ndim: int, depth: int) -> Matrix | None:
    found: Matrix = np.eye(ndim + 1)
    for step in steps if isinstance(steps, list) else [None]:
        matrix = matrix_of(step, ndim, depth + 1) if isinstance(step, Mapping) else None
        if matrix is None:
            return None
        found = matrix @ found
    return found


def placed(matrix: Matrix, described: Sequence[Mapping[str, Json]], ndim: int) -> dict[str, Json]:
    """Return the fields of a matrix whose rows are the axes of the output system."""
    linear, origin = matrix[:ndim, :ndim], matrix[:ndim, ndim]
    kinds = [TYPES.get(str(axis.get("type")), "space") for axis in described] or ["space"] * ndim
    units = [u if isinstance(u := axis.get("unit"), str) else "" for axis in described]
    is_diagonal = bool((linear == np.diag(np.diag(linear))).all())
    found: dict[str, Json] = {}
    if set(kinds) == {"space"} and ndim in (2, 3):
        found |= {
            "space_dimension": ndim,
            "space_directions": linear.T.tolist(),
            "space_origin": origin.tolist(),
        }
        if units:
            found["space_units"] = units
    elif is_diagonal:
        found |= {"spacings": np.diag(linear).tolist(), "axis_mins": origin.tolist()}
        if units:
            found["units"] = units
    else:
        return {}
    if described and is_diagonal:
        # axis i of the array is axis i of the system
        found |= {"labels": [axis.get("name") for axis in described], "kinds": kinds}
    return found

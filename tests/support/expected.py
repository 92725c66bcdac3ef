"""What readers cannot do, by form, source and reader, with the reason; every other cell is right.

A test fails if a cell that is listed here works, so that the table in docs/readers.md, which is
generated from this, stays true. `*` stands for every form, or every source.
"""

from tests.support.readers import READERS
from tests.support.sources import SOURCES

OPENED, CONVERTED, SERVED = "opened", "converted", "served"
JSON, PARQUET, ICECHUNK = "saved as JSON", "saved as parquet", "saved in Icechunk"
JSON_V2 = "saved as JSON, Zarr v2"
BY_CODECS = ("zarr", "xarray open_zarr", "xarray open_datatree", "rioxarray", "ome-zarr-models")
"""Readers that decode by zarr-python, and so by the codecs that anychunk registers."""
FORMS = {
    OPENED: BY_CODECS,
    CONVERTED: tuple(READERS),
    SERVED: tuple(READERS),
    JSON: BY_CODECS,
    JSON_V2: ("GDAL",),
    PARQUET: BY_CODECS,
    ICECHUNK: BY_CODECS,
}
"""The forms that a file is given, and the readers that are tried on each."""

GDAL_312 = (
    "GDAL before 3.13 takes the transform from coordinates, which a rotated grid does not have."
)
N5_V2 = "Zarr v2 has no codec for N5 blocks; anychunk opens such tables itself."
NOT_PORTABLE = "The file's samples need a codec that GDAL does not have; convert or serve it."
OWN_CODECS = (
    "TIFF, RGB", "TIFF, bands scaled apart", "JP2 with GML", "N5 pyramid",
)  # fmt: skip
"""Sources whose bytes Zarr v2 cannot describe by codecs that every reader has."""
PARQUET_V2 = "Kerchunk's parquet tables are Zarr v2; OME-Zarr 0.5 is Zarr v3."

CANNOT: dict[tuple[str, str, str], str] = {
    ("*", "TIFF, rotated", "GDAL"): GDAL_312,
    (PARQUET, "*", "ome-zarr-models"): PARQUET_V2,
    **{(JSON_V2, source, "GDAL"): NOT_PORTABLE for source in OWN_CODECS},
    **{(PARQUET, "N5 pyramid", reader): N5_V2 for reader in BY_CODECS[:4]},
}


def reason(form: str, source: str, reader: str) -> str | None:
    """Return why a reader cannot read a source in a form; None if it can."""
    for key in ((form, source, reader), ("*", source, reader), (form, "*", reader)):
        if key in CANNOT:
            return CANNOT[key]
    return None


def table() -> str:
    """Return the tables of docs/readers.md."""
    reasons: list[str] = []
    parts = []
    for form, readers in FORMS.items():
        lines = [f"| {form} | " + " | ".join(readers) + " |", "|---" * (len(readers) + 1) + "|"]
        for source in SOURCES:
            cells = []
            for reader in readers:
                why = reason(form, source, reader)
                if why is not None and why not in reasons:
                    reasons.append(why)
                cells.append("✓" if why is None else f"cannot [{reasons.index(why) + 1}]")
            lines.append(f"| {source} | " + " | ".join(cells) + " |")
        parts.append("\n".join(lines))
    notes = "\n".join(f"{n}. {why}" for n, why in enumerate(reasons, 1))
    return "\n\n".join([*parts, notes]).rstrip() + "\n"

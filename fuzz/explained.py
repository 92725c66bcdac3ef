"""Outcomes that differ from other readers for a known reason, each with the reason."""

import re
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from typing import Any

import tifffile

from fuzz.cases import Case

type Rule = Callable[[Case, dict[str, Any]], bool]


TOO_LONG = ("OUTPUT_TOO_SMALL", "INSUFFICIENT_SPACE")
"""What decoders say of a chunk that decodes to more than its samples."""


def labels(case: Case) -> list[str]:
    return [edit.get("label", "") for edit in case.edits]


def opinions(outcome: dict[str, Any]) -> str:
    return " ".join(map(str, outcome.get("opinions", {}).values()))


def only(case: Case, *words: str) -> bool:
    """Return whether every edit is of a field whose label contains one of the words."""
    return all(any(word in label for word in words) for label in labels(case))


def is_multiple(digits: str) -> bool:
    """Return whether a number of either byte order is a multiple of 16."""
    raw = bytes.fromhex(digits)
    return raw[0] % 16 == 0 and raw[-1] % 16 == 0


def of_rasterio(outcome: dict[str, Any]) -> str:
    return str(outcome.get("opinions", {}).get("rasterio", ""))


def decodes_to_more(message: str) -> bool:
    """Return whether a saved index was read with the error that a chunk is too long."""
    found = re.search(r"the index saved as .* bytes: (\d+) bytes, expected (\d+) for", message)
    return found is not None and int(found[1]) > int(found[2])


def has_predictor_alone(case: Case) -> bool:
    """Return whether the first page is not compressed, or by PackBits, and has a predictor."""
    with suppress(Exception), tifffile.TiffFile(BytesIO(case.edited()[case.entry])) as file:
        page = file.pages.first
        return page.predictor != 1 and page.compression in (1, 32773)
    return False


RULES: dict[str, Rule] = {
    "a part of the file is refused, which a warning or an attribute says": lambda case, outcome: (
        outcome.get("told", False) and outcome["outcome"] in ("ours alone", "vanished")
    ),
    "NRRD: bytes behind the samples are ignored, as Teem does": lambda case, outcome: (
        case.format == "nrrd" and "Size of the data does not equal" in opinions(outcome)
    ),
    "JPEG 2000: neither imagecodecs nor GDAL reads subsampled components": lambda case, outcome: (
        "subsampling not supported" in opinions(outcome)
    ),
    "JPEG 2000: packets may fit another subsampling; no reader can tell": lambda case, outcome: (
        case.format in ("jpeg2000", "nitf") and only(case, "ff51 +41", "ff51 +42")
    ),
    "JPEG 2000: GDAL has no negative samples of up to 8 bits (T.800 A.5.1); OpenJPEG has": (
        lambda case, outcome: (
            case.format == "jpeg2000"
            and only(case, "ff51 +40")
            and all(0x80 <= int(e["hex"], 16) <= 0x87 for e in case.edits)
            and outcome["outcome"] == "differs"
            and [*outcome["opinions"]] == ["rasterio"]
        )
    ),
    "JPEG 2000: GDAL has no tiles of 2^31 points or more, which T.800 A.5.1 allows": (
        lambda case, outcome: (
            outcome["outcome"] == "ours alone"
            and "not recognized" in of_rasterio(outcome)
            and any(
                e.get("label", "").endswith(("ff51 +22", "ff51 +26"))
                and int(e.get("hex") or "0", 16) >= 1 << 31
                for e in case.edits
            )
        )
    ),
    "N5: a block of 0 bytes is an absent one, as other writers leave it": lambda case, outcome: (
        case.format == "n5" and "but chunk has size 0" in opinions(outcome)
    ),
    "N5: without blockSize the dataset is one block, as in Java": lambda case, outcome: (
        case.format == "n5" and any(e.get("path") == ["blockSize"] for e in case.edits)
    ),
    "N5: blocks may be larger than the dataset; tensorstore limits them": lambda case, outcome: (
        case.format == "n5" and '"blockSize" of {' in opinions(outcome)
    ),
    "N5: Blosc streams say all that decoding needs; tensorstore wants settings of the encoder": (
        lambda case, outcome: (
            case.seed == "n5/blosc"
            and only(case, "compression/cname", "compression/clevel", "block data")
            and "attributes.json" in opinions(outcome)
        )
    ),
    "TIFF: tile sizes need not be multiples of 16; GDAL reads them wrong": lambda case, outcome: (
        only(case, "TileLength value", "TileWidth value")
        and any(int(e["hex"], 16) and not is_multiple(e["hex"]) for e in case.edits)
    ),
    "TIFF: a byte count of 0 is an absent chunk, as in GDAL": lambda case, outcome: (
        only(case, "ByteCounts value") and "missing codec" in opinions(outcome)
    ),
    "TIFF: a page whose offsets are all 0 has no data": lambda case, outcome: (
        "tiff" in case.format
        and only(case, "Offsets value")
        and all(not int(e["hex"], 16) for e in case.edits)
    ),
    "TIFF: samples behind the last row are ignored, as in libtiff; GDAL fails elsewhere": (
        lambda case, outcome: (
            "tiff" in case.format
            and any(
                word in opinions(outcome) for word in ("OUTPUT_TOO_SMALL", "INSUFFICIENT_SPACE")
            )
            and of_rasterio(outcome).startswith(("refuses", "lacks"))
            and not any("Sample" in label for label in labels(case))
        )
    ),
    "a saved index has zarr's own codecs, which refuse tiles of more bytes than samples": (
        lambda case, outcome: (
            outcome["outcome"] == "inconsistent" and decodes_to_more(outcome["message"])
        )
    ),
    "TIFF: a predictor of uncompressed samples is undone; libtiff ignores it": (
        lambda case, outcome: (
            "tiff" in case.format and outcome["outcome"] == "differs" and has_predictor_alone(case)
        )
    ),
    "TIFF: without BitsPerSample, samples of a palette of 2 colours have 1 bit; libtiff refuses": (
        lambda case, outcome: (
            outcome["outcome"] == "ours alone"
            and only(case, "BitsPerSample tag")
            and 'required "Colormap"' in of_rasterio(outcome)
        )
    ),
    "OME-TIFF: pages that OME-XML does not list belong to no image": lambda case, outcome: (
        outcome["outcome"] == "vanished" and any("OME-XML" in label for label in labels(case))
    ),
    "OME-TIFF: a page that OME-XML does not use is damaged; GDAL does not read OME-XML": (
        lambda case, outcome: (
            outcome["outcome"] == "ours alone"
            and case.format == "ome-tiff"
            and any("OME-XML" in label for label in labels(case))
            and "refuses" in str(outcome["opinions"].get("tifffile"))
            and of_rasterio(outcome).startswith(("lacks", "refuses"))
        )
    ),
    "NITF: GDAL does not read lossless JPEG (C5)": lambda case, outcome: (
        case.format == "nitf" and any(e.get("hex") in ("4335", "4d35") for e in case.edits)
    ),
}
"""{reason: whether it applies}"""


def reason(case: Case, outcome: dict[str, Any]) -> str | None:
    """Return why an outcome is not a finding; None if it is one."""
    for text, applies in RULES.items():
        if applies(case, outcome):
            return text
    return None

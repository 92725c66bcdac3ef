"""NPY by numpy."""

import io
from collections.abc import Iterator

import numpy as np

from fuzz.cases import Field, Seed
from fuzz.seeds.pictures import field

VALUES = r"'[a-z_]+': ?(\([^)]*\)|'[^']*'|\w+)"
WORDS = (
    b"'<u2'", b"'>f8'", b"'|O'", b"'<U3'", b"'|V5'", b"'<M8[ns]'", b"'<c16'", b"True", b"None",
    b"(3,)", b"()", b"(0,)", b"(-1, 3)", b"(2**60,)", b"(1099511627776, 4)", b"[('a', '<u2')]",
    b"(3.0, 2)", b"'<f2'", b"'|b1'", b"(20, 30, 1)",
)  # fmt: skip


def saved(array: np.ndarray, version: tuple[int, int] = (1, 0)) -> bytes:
    """Return an NPY file."""
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version=version)
    return out.getvalue()


def seeds() -> Iterator[Seed]:
    """Yield NPY files."""
    arrays = {
        "u2": (field((20, 30), "u2"), (1, 0)),
        "fortran": (np.asfortranarray(field((20, 30), "f4")), (1, 0)),
        "big": (field((4, 5, 6), ">i4"), (2, 0)),
        "bool": (field((9, 7)) > 100, (1, 0)),
        "complex": (field((5, 7), "c8"), (3, 0)),
        "scalar": (np.float64(3.5).reshape(()), (1, 0)),
    }
    for name, (array, version) in arrays.items():
        data = saved(array, version)
        head = 10 if version == (1, 0) else 12
        end = data.index(b"\n")
        fields = (
            Field(file="a.npy", kind="padded", label="header", offset=head, length=end - head,
                  more={"values": VALUES, "only": WORDS}, weight=6),
            Field(file="a.npy", kind="uint", label="header length", offset=8, length=head - 8,
                  more={"order": "little"}),
            Field(file="a.npy", kind="uint", label="version", offset=6, length=1),
            Field(file="a.npy", kind="data", label="data", offset=end + 1,
                  length=len(data) - end - 1),
        )  # fmt: skip
        yield Seed(
            name=f"npy/{name}", format="npy", files={"a.npy": data}, entry="a.npy", fields=fields,
            peers=("numpy",),
        )  # fmt: skip

"""NIfTI by nibabel."""

import gzip
from collections.abc import Iterator

import nibabel
import numpy as np

from fuzz.cases import Field, Seed
from fuzz.seeds.pictures import field

KINDS = {1: nibabel.Nifti1Image, 2: nibabel.Nifti2Image}
FIELDS = {
    1: {"size": (0, 4), "dim": (40, 16), "datatype": (70, 2), "pixdim": (76, 32),
        "vox_offset": (108, 4), "scaling": (112, 8), "units": (123, 1), "forms": (252, 76)},
    2: {"size": (0, 4), "datatype": (12, 2), "dim": (16, 64), "pixdim": (104, 64),
        "vox_offset": (168, 8), "scaling": (176, 16), "forms": (344, 152), "units": (500, 4)},
}  # fmt: skip


def seeds() -> Iterator[Seed]:
    """Yield NIfTI files."""
    for version, kind in KINDS.items():
        for dtype, endian in (("i2", "<"), ("f4", ">"), ("u1", "<")):
            array = field((4, 6, 9), dtype).transpose()
            header = kind.header_class(endianness=endian)
            header.set_data_dtype(array.dtype)
            data = kind(array, np.eye(4), header).to_bytes()
            start = len(data) - array.nbytes
            for name in ("a.nii", "a.nii.gz"):
                is_compressed = name.endswith(".gz")
                places = {} if is_compressed else {**FIELDS[version], "data": (start, array.nbytes)}
                fields = [
                    Field(file=name, kind="data", label=label, offset=offset, length=length)
                    for label, (offset, length) in places.items()
                ]
                whole = gzip.compress(data, mtime=0) if is_compressed else data
                if is_compressed:
                    fields.append(
                        Field(file=name, kind="data", label="stream", offset=0, length=len(whole))
                    )
                yield Seed(
                    name=f"nifti/{version} {dtype} {name}", format="nifti", files={name: whole},
                    entry=name, fields=tuple(fields), peers=(),
                )  # fmt: skip

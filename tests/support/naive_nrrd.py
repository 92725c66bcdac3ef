"""A minimal reader of NRRD, written from the published definition of the format only.

No line of it is shared with the package. It reads what the text says, in the simplest way: whole
files, one value at a time where that is easier, and no leniency.
"""

import bz2
import gzip
import re
from pathlib import Path

import numpy as np

TYPES = {
    "i1": "signed char|int8|int8_t",
    "u1": "uchar|unsigned char|uint8|uint8_t",
    "i2": "short|short int|signed short|signed short int|int16|int16_t",
    "u2": "ushort|unsigned short|unsigned short int|uint16|uint16_t",
    "i4": "int|signed int|int32|int32_t",
    "u4": "uint|unsigned int|uint32|uint32_t",
    "i8": "longlong|long long|long long int|signed long long|signed long long int|int64|int64_t",
    "u8": "ulonglong|unsigned long long|unsigned long long int|uint64|uint64_t",
    "f4": "float",
    "f8": "double",
}
PER_AXIS = (
    *("sizes", "spacings", "thicknesses", "axis mins", "axis maxs", "centers", "centerings"),
    *("labels", "units", "kinds", "space directions"),
)
ORIENTED = ("space origin", "space directions", "measurement frame", "space units")


class Nrrd:
    """A parsed file: `fields` and `pairs` as text, `comments`, and samples slowest axis first."""

    def __init__(self, path):
        path = Path(path)
        head, _, rest = path.read_bytes().replace(b"\r\n", b"\n").partition(b"\n\n")
        lines = head.decode().split("\n")
        assert re.fullmatch("NRRD000[1-5]", lines[0]), lines[0]
        self.version = int(lines[0][-1])
        self.fields, self.pairs, self.comments = {}, {}, []
        names = None
        for number, line in enumerate(lines[1:], 1):
            if line.startswith("#"):
                self.comments.append(line.lstrip("# "))
            elif re.match(r"[a-z][a-z ]*: ", line):
                self.add_field(*line.split(": ", 1))
                if line.startswith("data file: LIST"):
                    names = [entry for entry in lines[number + 1 :] if entry]
                    break
            else:
                key, value = line.split(":=", 1)
                assert self.version >= 2
                assert key
                self.pairs[unescaped(key)] = unescaped(value)
        self.array = self.samples(path, rest, names)

    def add_field(self, name, text):
        assert name not in self.fields, f"{name} occurs twice"
        if name in PER_AXIS:
            assert "dimension" in self.fields, f"{name} precedes the dimension"
        if name in ORIENTED:
            assert "space" in self.fields or "space dimension" in self.fields, name
        if name == "measurement frame":
            assert self.version >= 5
        if name in PER_AXIS:
            assert len(words(text)) == int(self.fields["dimension"]), (name, text)
        self.fields[name] = text

    def samples(self, path, rest, names):
        kind = next(k for k, v in TYPES.items() if self.fields["type"] in v.split("|"))
        order = ""
        if kind[1] != "1":
            order = {"little": "<", "big": ">"}[self.fields["endian"]]
        sizes = [int(n) for n in self.fields["sizes"].split()]
        source = self.fields.get("data file")
        if source is None:
            parts = [rest]
        else:
            pattern = re.fullmatch(r"(\S+) (-?\d+) (-?\d+) (-?\d+)", source)
            if pattern:
                low, high, step = (int(n) for n in pattern.groups()[1:])
                names = [pattern[1] % n for n in range(low, high + 1, step)]
            parts = [(path.parent / name).read_bytes() for name in names or [source]]
            # by default, each file is one slice along the slowest axis
            assert len(parts) in (1, sizes[-1])
        decode = {"raw": bytes, "gzip": gzip.decompress, "bzip2": bz2.decompress}
        data = b"".join(decode[self.fields["encoding"]](part) for part in parts)
        return np.frombuffer(data, order + kind).reshape(sizes[::-1])


def words(text):
    """The values of a per-axis field: quoted strings, vectors, or words."""
    if text.startswith('"'):
        return re.findall(r'"(?:[^"\\]|\\.)*"', text)
    return re.findall(r"\([^)]*\)|\S+", text)


def unescaped(text):
    return re.sub(r"\\(.)", lambda m: {"n": "\n", "\\": "\\"}[m[1]], text)

"""Layouts of the file header and the subheaders of NITF 2.1, NSIF 1.0 and NITF 2.0.

Spec: MIL-STD-2500C and the Joint BIIF Profile, tables A-1 and following (NITF 2.1, NSIF 1.0);
      MIL-STD-2500A, tables I and following (NITF 2.0).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from anychunk import limits
from anychunk.errors import AnychunkError, FormatError, TruncatedError
from anychunk.io.source import Source

# Headers of fixed-width fields, declared as data and read to plain data.
#
# A layout is a sequence of `Field`, `When` (fields that exist only under a condition) and
# `Repeat` (a list of equal records).
#
# A number field whose text is not a number is kept as text: many files have errors in fields that
# do not affect their pixels. `number` returns a value that must be a number.


type Values = dict[str, Any]
type Layout = Sequence[Field | When | Repeat]
type Width = int | Callable[[Values], int]


@dataclass(frozen=True)
class Field:
    """One value of a known width in bytes."""

    name: str
    width: Width
    """Width in bytes, or a function that computes it from the values before it."""
    kind: Literal["text", "int", "uint", "bytes"] = "text"
    """text: ISO 8859-1, trailing blanks dropped; int: decimal digits; uint: big-endian binary."""


@dataclass(frozen=True)
class When:
    """Fields that exist only if `condition` holds for the values before them."""

    condition: Callable[[Values], bool]
    layout: Layout


@dataclass(frozen=True)
class Repeat:
    """Records stored as a list under `name`; `count` is computed from the values before them."""

    name: str
    count: Callable[[Values], int]
    layout: Layout


def number(values: Mapping[str, Any], name: str, *, default: int | None = None) -> int:
    """Return a value that must be a number; `default` if it is blank or missing.

    Raises:
        FormatError: it is not a number.
    """
    found = values.get(name)
    value = default if found is None or found == "" else found
    if not isinstance(value, int):
        raise FormatError(f"{name} is {found!r}, expected a number")
    return value


def read(layout: Layout, data: bytes, offset: int = 0) -> tuple[Values, int]:
    """Return the values of `layout` in `data` from `offset` on, and the offset of their end.

    Raises:
        TruncatedError: `data` ends within a field.
    """
    return _read(layout, data, offset, {})


def _read(layout: Layout, data: bytes, offset: int, values: Values) -> tuple[Values, int]:
    for entry in layout:
        if isinstance(entry, Field):
            width = entry.width if isinstance(entry.width, int) else entry.width(values)
            if width < 0 or offset + width > len(data):
                raise TruncatedError(
                    f"@{offset}: {entry.name} takes {width} bytes, "
                    f"the header ends after {len(data)}"
                )
            values[entry.name] = _value(entry.kind, data[offset : offset + width])
            offset += width
        elif isinstance(entry, When):
            if entry.condition(values):
                values, offset = _read(entry.layout, data, offset, values)
        else:
            records = []
            for _ in range(entry.count(values)):
                record, after = _read(entry.layout, data, offset, {})
                if after == offset:
                    # the count comes from the file: empty records would never run out of data
                    raise FormatError(
                        f"@{offset}: records of {entry.name} have length 0, expected at least 1"
                    )
                offset = after
                records.append(record)
            values[entry.name] = records
    return values, offset


def _value(kind: str, raw: bytes) -> Any:
    if kind == "bytes":
        return raw
    if kind == "uint":
        return int.from_bytes(raw, "big")
    text = raw.decode("latin-1").rstrip(" \0")
    digits = text.strip()
    # int() also accepts underscores and digits of other scripts, which the standard does not
    if kind == "int" and digits.removeprefix("-").removeprefix("+").isdigit() and digits.isascii():
        return int(digits)
    return text


type Kind = Literal["image", "graphic", "label", "text", "des", "res"]

VERSIONS = {b"NITF02.10": "2.1", b"NSIF01.00": "2.1", b"NITF02.00": "2.0"}
"""Version of the header layouts, by the first nine bytes of a file."""

UNKNOWN_LENGTH = 999_999_999_999
"""FL of a file that was written as a stream: the actual header is in its last segment."""
DELIMITER = b"\x0e\xca\x14\xbf"
"""SFH_DELIM2, which precedes the length of that header at the end of the file."""


def security(prefix: str, version: str) -> Layout:
    """Return the security fields, with names that begin with `prefix`."""
    if version == "2.1":
        widths = (
            "CLAS 1 CLSY 2 CODE 11 CTLH 2 REL 20 DCTP 2 DCDT 8 DCXM 4 DG 1 DGDT 8 CLTX 43 CATP 1 "
            "CAUT 40 CRSN 1 SRDT 8 CTLN 15"
        )
        return plain(widths, prefix)
    downgrade = f"{prefix}DWNG"
    return (
        *plain("CLAS 1 CODE 40 CTLH 40 REL 40 CAUT 20 CTLN 20 DWNG 6", prefix),
        When(lambda v: v[downgrade] == "999998", plain("DEVT 40", prefix)),
    )


def plain(
    widths: str, prefix: str = "", kind: Literal["text", "int"] = "text"
) -> tuple[Field, ...]:
    """Return fields declared as `NAME width NAME width …`."""
    words = widths.split()
    return tuple(Field(prefix + words[i], int(words[i + 1]), kind) for i in range(0, len(words), 2))


def count_of(name: str) -> Callable[[Values], int]:
    """Return a function that returns the count in the field `name`."""

    def count(values: Values) -> int:
        found = number(values, name, default=0)
        if found < 0:
            raise FormatError(f"{name} is {found}, expected a count")
        return found

    return count


def extension(length: str, overflow: str, data: str) -> Layout:
    """Return a length field, followed by overflow number and TREs unless it is 0."""
    return (
        Field(length, 5, "int"),
        When(
            # a negative length makes the width of the data negative, which is refused
            lambda v: number(v, length, default=0) != 0,
            (
                Field(overflow, 3, "int"),
                Field(data, lambda v: number(v, length) - 3, "bytes"),
            ),
        ),
    )


SEGMENTS: tuple[tuple[Kind, str, str, int, str, int], ...] = (
    ("image", "NUMI", "LISH", 6, "LI", 10),
    ("graphic", "NUMS", "LSSH", 4, "LS", 6),
    ("label", "NUML", "LLSH", 4, "LL", 3),
    ("text", "NUMT", "LTSH", 4, "LT", 5),
    ("des", "NUMDES", "LDSH", 4, "LD", 9),
    ("res", "NUMRES", "LRESH", 4, "LRE", 7),
)
"""Kind; names of the fields for count, subheader length and data length, with their widths."""


def lengths(version: str) -> Layout:
    """Return the layout of the fields with the lengths of all segments."""
    layout: list[Field | When | Repeat] = []
    for kind, count, head, head_width, body, body_width in SEGMENTS:
        # 2.1 has no labels, but keeps the place of their count
        if kind == "label" and version == "2.1":
            layout.append(Field("NUMX", 3, "int"))
            continue
        layout.append(Field(count, 3, "int"))
        record = (Field(head, head_width, "int"), Field(body, body_width, "int"))
        layout.append(Repeat(kind, count_of(count), record))
    return tuple(layout)


def file_layout(version: str) -> Layout:
    """Return the file header; FL is at 342 and HL at 354, unless a 2.0 file is downgraded."""
    contact: Layout = (
        (Field("FBKGC", 3, "bytes"), *plain("ONAME 24 OPHONE 18"))
        if version == "2.1"
        else plain("ONAME 27 OPHONE 18")
    )
    return (
        *plain("FHDR 9 CLEVEL 2 STYPE 4 OSTAID 10 FDT 14 FTITLE 80"),
        *security("FS", version),
        *plain("FSCOP 5 FSCPYS 5 ENCRYP 1"),
        *contact,
        *plain("FL 12 HL 6", kind="int"),
        *lengths(version),
        *extension("UDHDL", "UDHOFL", "UDHD"),
        *extension("XHDL", "XHDLOFL", "XHD"),
    )


def bands(values: Values) -> int:
    """Return the number of bands of an image."""
    return number(values, "NBANDS", default=0) or number(values, "XBANDS", default=0)


BAND: Layout = (
    *plain("IREPBAND 2 ISUBCAT 6 IFC 1 IMFLT 3"),
    Field("NLUTS", 1, "int"),
    When(
        lambda v: number(v, "NLUTS", default=0) > 0,
        (
            Field("NELUT", 5, "int"),
            Field("LUTD", lambda v: number(v, "NLUTS") * number(v, "NELUT"), "bytes"),
        ),
    ),
)


def image_layout(version: str) -> Layout:
    """Return the subheader of an image, without its TREs."""
    title = "IID2 80" if version == "2.1" else "ITITLE 80"
    # N means no coordinates in 2.0, but UTM on the northern hemisphere in 2.1
    none = (" ", "") if version == "2.1" else (" ", "", "N")
    return (
        *plain(f"IM 2 IID1 10 IDATIM 14 TGTID 17 {title}"),
        *security("IS", version),
        *plain("ENCRYP 1 ISORCE 42"),
        *plain("NROWS 8 NCOLS 8", kind="int"),
        *plain("PVTYPE 3 IREP 8 ICAT 8"),
        Field("ABPP", 2, "int"),
        *plain("PJUST 1 ICORDS 1"),
        When(lambda v: v["ICORDS"] not in none, plain("IGEOLO 60")),
        Field("NICOM", 1, "int"),
        Repeat("ICOM", count_of("NICOM"), plain("TEXT 80")),
        Field("IC", 2),
        When(lambda v: v["IC"] not in ("NC", "NM"), plain("COMRAT 4")),
        Field("NBANDS", 1, "int"),
        When(lambda v: number(v, "NBANDS", default=0) == 0, plain("XBANDS 5", kind="int")),
        Repeat("BANDS", bands, BAND),
        *plain("ISYNC 1 IMODE 1"),
        *plain("NBPR 4 NBPC 4 NPPBH 4 NPPBV 4 NBPP 2 IDLVL 3 IALVL 3", kind="int"),
        *plain("ILOC 10 IMAG 4"),
    )


IMAGE_EXTENSIONS: tuple[Layout, ...] = (
    extension("UDIDL", "UDOFL", "UDID"),
    extension("IXSHDL", "IXSOFL", "IXSHD"),
)
"""TREs after the subheader of an image; read separately because some files omit or damage them."""


def graphic_layout(version: str) -> Layout:
    """Return the subheader of a graphic (a symbol in 2.0)."""
    if version == "2.1":
        return (
            *plain("SY 2 SID 10 SNAME 20"),
            *security("SS", version),
            *plain("ENCRYP 1 SFMT 1 SSTRUCT 13"),
            *plain("SDLVL 3 SALVL 3", kind="int"),
            *plain("SLOC 10 SBND1 10 SCOLOR 1 SBND2 10 SRES2 2"),
            *extension("SXSHDL", "SXSOFL", "SXSHD"),
        )
    return (
        *plain("SY 2 SID 10 SNAME 20"),
        *security("SS", version),
        *plain("ENCRYP 1 STYPE 1"),
        *plain("NLIPS 4 NPIXPL 4 NWDTH 4 NBPP 1 SDLVL 3 SALVL 3", kind="int"),
        *plain("SLOC 10 SLOC2 10 SCOLOR 1 SNUM 6 SROT 3"),
        Field("NELUT", 3, "int"),
        Field("DLUT", count_of("NELUT"), "bytes"),
        *extension("SXSHDL", "SXSOFL", "SXSHD"),
    )


def text_layout(version: str) -> Layout:
    """Return the subheader of a text."""
    head = "TE 2 TEXTID 7 TXTALVL 3" if version == "2.1" else "TE 2 TEXTID 10"
    return (
        *plain(f"{head} TXTDT 14 TXTITL 80"),
        *security("TS", version),
        *plain("ENCRYP 1 TXTFMT 3"),
        *extension("TXSHDL", "TXSOFL", "TXSHD"),
    )


def label_layout(version: str) -> Layout:
    """Return the subheader of a label (2.0 only)."""
    return (
        *plain("LA 2 LID 10"),
        *security("LS", version),
        *plain("ENCRYP 1 LFS 1"),
        *plain("LCW 2 LCH 2 LDLVL 3 LALVL 3", kind="int"),
        *plain("LLOC 10"),
    )


OVERFLOW = ("TRE_OVERFLOW", "Registered Extensions", "Controlled Extensions")
"""DESID of segments with TREs that did not fit into a header."""


def des_layout(version: str) -> Layout:
    """Return the subheader of a data extension segment."""
    return (
        *plain("DE 2 DESID 25 DESVER 2"),
        *security("DES", version),
        When(
            lambda v: v["DESID"].strip() in OVERFLOW,
            (Field("DESOFLW", 6), Field("DESITEM", 3, "int")),
        ),
        Field("DESSHL", 4, "int"),
        Field("DESSHF", count_of("DESSHL"), "bytes"),
    )


LAYOUTS: dict[Kind, Callable[[str], Layout]] = {
    "image": image_layout,
    "graphic": graphic_layout,
    "label": label_layout,
    "text": text_layout,
    "des": des_layout,
}


@cache
def layout(kind: Kind | Literal["file"], version: str) -> Layout:
    """Return the layout of the file header, or of a kind of subheader."""
    return file_layout(version) if kind == "file" else LAYOUTS[kind](version)


@dataclass(frozen=True, kw_only=True)
class Segment:
    """One segment: its subheader, and where its bytes are."""

    kind: Kind
    number: int
    """Number among the segments of its kind, from 0."""
    header_offset: int
    header_length: int
    offset: int
    length: int
    values: Values
    is_last: bool = False
    """Whether it is the last segment of the file."""
    problem: str | None = None
    """Which part of the subheader could not be read; an image's pixels do not need it."""
    refusal: FormatError | None = None
    """Why an image is refused: its subheader cannot be read, or its position is unknown."""

    @property
    def name(self) -> str:
        """Name of the segment, for messages."""
        return f"{self.kind} {self.number}"

    @property
    def end(self) -> int:
        """Offset of the first byte after its data."""
        return self.offset + self.length


@dataclass(frozen=True, kw_only=True)
class File:
    """The headers of a file."""

    version: str
    values: Values
    segments: tuple[Segment, ...]

    def of(self, kind: Kind) -> tuple[Segment, ...]:
        """Return the segments of one kind."""
        return tuple(s for s in self.segments if s.kind == kind)


HEAD = 8192
"""Bytes of the first read; most headers are shorter."""


def read_file(source: Source, *, first: int = HEAD) -> File:
    """Read the file header and all subheaders.

    A damaged subheader does not prevent other segments from being read.

    Parameters:
        source: the file.
        first: bytes of the first read.

    Raises:
        FormatError: the file header cannot be read.
        TruncatedError: the file ends within the subheader of an image.
    """
    head = source.read(0, min(source.size(), first)).tobytes()
    version = VERSIONS.get(head[:9])
    if version is None:
        raise FormatError(
            f"{source.url}: begins with {head[:9]!r}, expected NITF02.10, NITF02.00 or NSIF01.00"
        )
    values = _file_header(source, head, version)
    found = _segments(source, values, version)
    return File(version=version, values=values, segments=tuple(found))


def _file_header(source: Source, head: bytes, version: str) -> Values:
    if version == "2.1" and head[342:354] == b"%d" % UNKNOWN_LENGTH:
        head = _streamed(source, head)
    # HL is at 354, or 40 bytes later in a downgraded 2.0 file, which has the field FSDEVT
    at = 354 + (40 if version == "2.0" and head[280:286] == b"999998" else 0)
    length = _digits(head[at : at + 6], "HL", source)
    limits.check_header(length, where=f"{source.url} HL")
    if length > len(head):
        head += source.read(len(head), max(0, length - len(head))).tobytes()
    try:
        values = read(layout("file", version), head[:length])[0]
    except AnychunkError as e:
        raise type(e)(f"{source.url} file header: {e}") from e
    if values.get("NUMX"):
        # it is reserved; a reader that takes it for a count finds all later fields elsewhere
        raise FormatError(f"{source.url} file header: NUMX is {values['NUMX']}, expected 000")
    return values


def _digits(text: bytes, name: str, source: Source) -> int:
    if not text.strip().isdigit():
        raise FormatError(f"{source.url} file header: {name} is {text!r}, expected a number")
    return int(text)


def _streamed(source: Source, head: bytes) -> bytes:
    """Return the start of a streamed file with the header from its last segment in front."""
    size = source.size()
    tail = source.read(max(0, size - 11), min(11, size)).tobytes()
    if tail[:4] != DELIMITER or not tail[4:].isdigit():
        raise FormatError(
            f"{source.url} file header: FL is {UNKNOWN_LENGTH} (a streamed file), expected "
            f"SFH_DELIM2 near the end of the file, found {tail[:4]!r}"
        )
    length = int(tail[4:])
    limits.check_header(length, where=f"{source.url} SFH_L2")
    if length < 360 or length + 11 > size:
        raise FormatError(
            f"{source.url} file header: SFH_L2 is {length}, expected 360 to {size - 11} bytes"
        )
    true = source.read(size - 11 - length, length).tobytes()
    return true + head[length:]


def _segments(source: Source, values: Values, version: str) -> list[Segment]:
    offset = number(values, "HL")
    found: list[Segment] = []
    lost: FormatError | None = None
    for kind, _, head, _, body, _ in SEGMENTS:
        for i, record in enumerate(values.get(kind, ())):
            header_length = length = 0
            try:
                header_length, length = _length(record, head), _length(record, body)
            except FormatError as e:
                # the end of this segment is unknown, so the start of all later ones is too
                lost = lost or FormatError(f"{source.url} {kind} {i}: {e}")
            start = offset + header_length
            parsed: Values = {}
            problem, refusal = (str(lost), lost) if lost else (None, None)
            if not lost:
                parsed, problem, refusal = _subheader(
                    source, kind, i, offset=offset, length=header_length, version=version
                )
            found.append(
                Segment(
                    kind=kind, number=i, header_offset=offset, header_length=header_length,
                    offset=start, length=length, values=parsed, problem=problem, refusal=refusal,
                )
            )  # fmt: skip
            offset = start + length
    return [*found[:-1], replace(found[-1], is_last=True)] if found else []


def _length(record: Values, name: str) -> int:
    length = number(record, name, default=0)
    if length < 0:
        raise FormatError(f"{name} is {length}, expected 0 or more")
    return length


def _subheader(
    source: Source, kind: Kind, i: int, *, offset: int, length: int, version: str
) -> tuple[Values, str | None, FormatError | None]:
    """Read one subheader.

    Returns:
        Its values, what could not be read, and for an image the error to refuse it with.
    """
    if kind not in LAYOUTS:
        return {}, None, None
    where, is_image = f"{source.url} {kind} {i}", kind == "image"
    try:
        limits.check_header(length, where=where)
        if offset + length > source.size():
            raise TruncatedError(
                f"its subheader of {length} bytes is at {offset}, "
                f"the file ends after {source.size()}"
            )
        data = source.read(offset, length).tobytes()
        values, end = read(layout(kind, version), data)
        if is_image and values["IM"] != "IM":
            raise FormatError(f"its subheader begins with {data[:2]!r}, expected b'IM'")
    except AnychunkError as e:
        # a truncated file: its images must not look like refused ones
        if is_image and (offset + length > source.size() or not isinstance(e, FormatError)):
            raise type(e)(f"{where}: {e}") from e
        if is_image and isinstance(e, FormatError):
            return {}, str(e), type(e)(f"{where}: {e}")
        return {}, str(e), None
    return values, _image_tres(values, data, end) if is_image else None, None


def _image_tres(values: Values, data: bytes, at: int) -> str | None:
    """Add the TRE fields of an image to its values; return what could not be read."""
    try:
        for layout in IMAGE_EXTENSIONS:
            found, at = read(layout, data, at)
            values.update(found)
    except AnychunkError as e:
        return str(e)
    return None


def lookup_tables(record: Values) -> list[list[int]]:
    """Return the look-up tables (LUTD) of a band."""
    data: Any = record.get("LUTD", b"")
    size = number(record, "NELUT", default=0)
    return [list(data[i : i + size]) for i in range(0, len(data), size)] if size else []

"""How many values the columns of a parquet file have, by its footer.

Spec: Apache Parquet's `parquet.thrift`, Thrift's compact protocol.

pyarrow says so, too, but ends the process where the statistics of a column are damaged (26.0: the
constructor of its column metadata raises where nothing catches it). Its reader of whole tables
raises an error that can be caught. So only the numbers that are needed before that are read here.
"""

from collections.abc import Iterator

from anychunk.errors import FormatError

MAGIC = b"PAR1"
TRUE, FALSE, BYTE, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
INTEGERS = (4, 5, 6)
SIZES = {TRUE: 0, FALSE: 0, BYTE: 1, DOUBLE: 8}
"""Bytes of values of fixed size."""
ROW_GROUPS, COLUMNS, METADATA, NUM_VALUES = 4, 1, 3, 5
"""Fields of FileMetaData, RowGroup, ColumnChunk and ColumnMetaData."""
DEEPEST = 32


def values_by_column(data: bytes, *, where: str) -> list[int]:
    """Return how many values each column has, in all row groups together.

    Parameters:
        data: The file.
        where: Its name, for errors.

    Raises:
        FormatError: The footer is damaged.
    """
    length = int.from_bytes(data[-8:-4], "little")
    if len(data) < 12 or data[-4:] != MAGIC or length > len(data) - 12:
        raise FormatError(f"{where}: expected a parquet footer at the end")
    reader = _Reader(data[-8 - length : -8])
    counts: list[int] = []
    try:
        for _ in _fields(reader, ROW_GROUPS, LIST):
            for _ in range(reader.list_of(STRUCT)):
                for _ in _fields(reader, COLUMNS, LIST):
                    for number in range(reader.list_of(STRUCT)):
                        count = sum(_values(reader))
                        counts += [0] * (number + 1 - len(counts))
                        counts[number] += count
    except (IndexError, ValueError) as e:
        raise FormatError(f"{where}: the parquet footer is damaged ({e})") from e
    return counts


def _values(reader: "_Reader") -> Iterator[int]:
    """Yield the number of values of the column chunk that begins here."""
    for _ in _fields(reader, METADATA, STRUCT):
        for _ in _fields(reader, NUM_VALUES, INTEGERS[-1]):
            yield reader.integer()


def _fields(reader: "_Reader", wanted: int, kind: int) -> Iterator[int]:
    """Stop at each field `wanted` of the structure that begins here; read past all others."""
    field = 0
    while head := reader.byte():
        field = field + (head >> 4) if head >> 4 else reader.integer()
        if field != wanted:
            reader.skip(head & 15)
        elif head & 15 != kind:
            raise ValueError(f"field {wanted} has type {head & 15}, expected {kind}")
        else:
            yield field


class _Reader:
    """The bytes of a footer, read one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def varint(self) -> int:
        value = shift = 0
        while (byte := self.byte()) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63:
                raise ValueError("a number of more than 64 bits")
        return value | byte << shift

    def integer(self) -> int:
        value = self.varint()
        return value >> 1 ^ -(value & 1)

    def list_of(self, kind: int) -> int:
        """Return the length of the list that begins here, whose elements must have a type."""
        head = self.byte()
        if head & 15 != kind:
            raise ValueError(f"a list has elements of type {head & 15}, expected {kind}")
        return self._length(head >> 4)

    def _length(self, short: int) -> int:
        length = self.varint() if short == 15 else short
        if length > len(self._data):
            raise ValueError(f"a list of {length} elements")
        return length

    def _skip_bytes(self, count: int) -> None:
        self._at += count
        if self._at > len(self._data):
            raise ValueError("it ends early")

    def skip(self, kind: int, depth: int = 0) -> None:
        """Read past a value."""
        if depth > DEEPEST:
            raise ValueError("it is nested too deeply")
        if kind in SIZES:
            self._skip_bytes(SIZES[kind])
        elif kind in INTEGERS:
            self.varint()
        elif kind == BINARY:
            self._skip_bytes(self.varint())
        elif kind in (LIST, SET):
            head = self.byte()
            self._skip_elements(self._length(head >> 4), (head & 15,), depth)
        elif kind == MAP:
            length = self._length(15)
            kinds = self.byte() if length else 0
            self._skip_elements(length, (kinds >> 4, kinds & 15), depth)
        elif kind == STRUCT:
            while head := self.byte():
                if not head >> 4:
                    self.varint()
                self.skip(head & 15, depth + 1)
        else:
            raise ValueError(f"a value of type {kind}")

    def _skip_elements(self, count: int, kinds: tuple[int, ...], depth: int) -> None:
        for _ in range(count):
            for kind in kinds:
                # as an element, a truth value takes a byte; as a field, it is in the type
                self.skip(BYTE if kind in (TRUE, FALSE) else kind, depth + 1)

import io
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anychunk.errors import AnychunkError, FormatError
from anychunk.io.opening import Folder
from anychunk.references import parquet
from anychunk.references.parquet import values_by_column

TABLE = pa.table(
    {
        "path": ["a.tif", None, "b.tif", "b.tif", "c.tif"],
        "offset": [0, 8, 16, 1 << 40, 3],
        "size": [8, 8, 0, 5, 1],
        "offsets": pa.array([[1, 2, 3], [], None, [4], [5, 6]], pa.list_(pa.int64())),
    }
)


def written(table, **options):
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return file.getvalue()


@pytest.mark.parametrize("options", [{}, {"row_group_size": 2}, {"write_statistics": False}])
def test_counts_are_those_of_pyarrow(options):
    data = written(TABLE, **options)
    metadata = pq.ParquetFile(io.BytesIO(data)).metadata
    groups = [metadata.row_group(n) for n in range(metadata.num_row_groups)]
    expected = [sum(g.column(c).num_values for g in groups) for c in range(metadata.num_columns)]
    assert values_by_column(data, where="a") == expected == [5, 5, 5, 8]


def test_a_table_without_rows():
    assert values_by_column(written(TABLE.slice(0, 0)), where="a") in ([], [0, 0, 0, 0])


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1\xff\0\0\0PAR1", b"x" * 20 + b"PAR1"])
def test_what_is_no_parquet(data):
    with pytest.raises(FormatError):
        values_by_column(data, where="a")


def test_damaged_footers_are_errors(tmp_path):
    """Counting values with pyarrow ends the process for some of them."""
    data = written(TABLE.drop_columns(["offsets"]), compression="zstd")
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    read = refused = 0
    for place in range(start, len(data) - 8):
        for value in (0x00, 0x15, 0xFF, data[place] ^ 1):
            damaged = bytearray(data)
            damaged[place] = value
            (tmp_path / "refs.0.parq").write_bytes(damaged)
            try:
                parquet._read_table(pa, Folder(str(tmp_path)), "refs.0.parq", 100)
                read += 1
            except FormatError:
                refused += 1
            with suppress(AnychunkError):
                values_by_column(bytes(damaged), where="a")
    assert read > 50
    assert refused > 200

"""Small tables of references, as pyarrow, fastparquet and fsspec read them."""

import io

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastparquet.cencoding import NumpyIO
from fsspec.implementations.reference import LazyReferenceMapper

import anychunk
from anychunk.model.index import WHOLE
from anychunk.references import parquet
from anychunk.references.chunk_references import ChunkReferences
from anychunk.references.small_parquet import write_references
from tests.combine.files import write_geotiff

COPIED = {
    "none": {},
    "one": {0: b"abc" * 500},
    "empty": {0: b"", 2: b"x"},
    "all": {number: bytes([number]) * number for number in range(1, 256)},
}


@pytest.mark.filterwarnings("ignore:The 'fastparquet' engine is deprecated")
@pytest.mark.parametrize("copied", COPIED)
@pytest.mark.parametrize("rows", [1, 2, 7, 8, 9, 64, 255, 256])
@pytest.mark.parametrize("url", ["/a/b.tif", "s3://ü/" + "x" * 200, None])
def test_other_readers_find_what_was_written(url, rows, copied):
    raws = [COPIED[copied].get(number) for number in range(rows)]
    has_raw = any(raw is not None for raw in raws)
    is_present = [url is not None and raw is None and n % 5 != 3 for n, raw in enumerate(raws)]
    url = url if any(is_present) else None
    offsets = np.arange(rows, dtype=np.uint64) * np.uint64(2**40 + 77)
    lengths = np.arange(rows, dtype=np.uint64) + np.uint64(1)
    data = write_references(url, offsets, lengths, is_present, raws if has_raw else None)
    expected = {
        "path": [url if there else None for there in is_present],
        "offset": offsets.tolist(),
        "size": lengths.tolist(),
    }
    if has_raw:
        expected["raw"] = raws
    table = pq.read_table(io.BytesIO(data))
    assert table.to_pydict() == expected
    kinds = pa.string(), pa.int64(), pa.int64(), pa.binary()
    assert table.schema.types == list(kinds[: len(expected)])
    frame = pd.read_parquet(io.BytesIO(data), engine="fastparquet")
    assert frame["offset"].dtype == frame["size"].dtype == np.int64
    texts = [path if isinstance(path, str) else None for path in frame["path"]]
    assert texts == expected["path"]
    for name in set(expected) - {"path"}:
        assert frame[name].tolist() == expected[name], name


@pytest.mark.parametrize("rows", [1, 4, 256])
def test_the_same_as_from_pyarrow(monkeypatch, rows):
    lengths = np.arange(rows, dtype=np.uint64) % np.uint64(3)
    lengths[0] = WHOLE
    copied = dict.fromkeys(range(1, rows, 4), b"copied")
    lengths[list(copied)] = 0
    references = ChunkReferences(
        grid=(rows,),
        offsets=np.arange(rows, dtype=np.uint64),
        lengths=lengths,
        urls=["/a.tif"],
        copied=copied,
    )
    found = []
    for small in (256, 0):
        monkeypatch.setattr(parquet, "SMALL_ROWS", small)
        ((number, data),) = parquet._records(pa, references, {"/a.tif": "/b.tif"}, {})
        assert number == 0
        found.append((pq.read_table(io.BytesIO(data)), b"anychunk" in data))
    assert [is_small for _, is_small in found] == [True, False]
    assert found[0][0].equals(found[1][0])


def test_fastparquet_reads_an_empty_page_to_the_end():
    """Why no page may be empty; if this fails, fastparquet has mended it."""
    assert len(NumpyIO(np.frombuffer(b"abcdef", np.uint8)).read(0)) == 6


@pytest.mark.filterwarnings("ignore:The 'fastparquet' engine is deprecated")
def test_fsspec_finds_every_chunk_of_a_group(tmp_path):
    """A table that fsspec cannot read is taken for absent chunks, read as fill values."""
    for number in range(3):
        write_geotiff(
            tmp_path / f"{number}.tif", np.full((64, 64), number, "uint16"), 500_000, 5_000_000
        )
    node = anychunk.index(sorted(tmp_path.glob("*.tif")), combine="group")
    node.save(tmp_path / "group.parquet")
    mapper = LazyReferenceMapper(str(tmp_path / "group.parquet"))
    opened = anychunk.open(tmp_path / "group.parquet")
    for number in range(3):
        for name, keys in {"y": ["0"], "x": ["0"], "image": ["0.0", "0.1", "1.0", "1.1"]}.items():
            for key in keys:
                assert mapper[f"{number}/0/0/{name}/{key}"], (name, key)
        assert (opened[f"{number}/0/0/image"][...] == number).all()
        assert np.diff(opened[f"{number}/0/0/x"][...]).all()

import numpy as np
import pytest
import rasterio

import anychunk
from anychunk.combine import combine
from anychunk.model.index import GroupIndex
from tests.combine.files import save_all

RANDOM = np.random.default_rng(5)
IMAGES = RANDOM.integers(0, 4000, (3, 40, 50), dtype="uint16")


@pytest.mark.parametrize("options", [{}, {"compression": "zlib", "predictor": True}])
def test_stack(tmp_path, options):
    paths = save_all(tmp_path, IMAGES, **options)
    node = anychunk.index(paths, combine="stack", along="t")
    level = node["0/0"]
    assert level.dimension_names[0] == "t"
    assert level.shape[0] == 3
    found = anychunk.open(node)["0/0"][...]
    np.testing.assert_array_equal(found.reshape(IMAGES.shape), IMAGES)
    assert set(node.pins) == set(paths)
    assert node.attributes["anychunk"]["files"] == 3
    axes = node["0"].attributes["ome"]["multiscales"][0]["axes"]
    assert axes[0] == {"name": "t", "type": "time"}
    assert len(axes) == len(level.shape)


def test_stack_of_cropped_chunks(tmp_path):
    """Headers in front of chunks get the new axis too."""
    values = np.arange(2 * 23 * 3, dtype="int32").reshape(2, 23, 3)
    for i in range(2):
        np.save(tmp_path / f"{i}.npy", values[i])
    import anychunk.formats.npy as npy

    whole = npy.array_index(
        npy.Header((23, 3), False, np.dtype("int32"), 128),
        url=str(tmp_path / "0.npy"),
        chunk_bytes=120,
    )
    assert whole.chunks.fronts
    other = npy.array_index(
        npy.Header((23, 3), False, np.dtype("int32"), 128),
        url=str(tmp_path / "1.npy"),
        chunk_bytes=120,
    )
    files = {u: GroupIndex(members={"a": a}) for u, a in (("0", whole), ("1", other))}
    found = anychunk.open(combine(files, "stack"))["a"][...]
    np.testing.assert_array_equal(found, values)


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_stack_of_jpeg2000_and_transposed(tmp_path):
    values = RANDOM.integers(0, 255, (2, 100, 130), dtype="uint8")
    for i, value in enumerate(values):
        with rasterio.open(
            tmp_path / f"{i}.jp2", "w", driver="JP2OpenJPEG", height=100, width=130, count=1,
            dtype="uint8", QUALITY=100, REVERSIBLE="YES", BLOCKXSIZE=64, BLOCKYSIZE=64,
        ) as file:  # fmt: skip
            file.write(value, 1)
        np.save(tmp_path / f"{i}.npy", np.asfortranarray(value))
    for ending in ("jp2", "npy"):
        node = anychunk.index(str(tmp_path / f"*.{ending}"), combine="stack")
        found = anychunk.open(node)["0/0"][...]
        np.testing.assert_array_equal(found.reshape(values.shape), values)

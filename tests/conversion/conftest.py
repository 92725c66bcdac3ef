"""Files that several tests of conversion start from."""

import numpy as np
import pytest
import rasterio


@pytest.fixture
def cog(tmp_path):
    data = np.random.default_rng(0).integers(0, 4000, (2, 515, 770), dtype="uint16")
    profile = {"width": 770, "height": 515, "count": 2, "dtype": "uint16", "crs": "EPSG:32611"}
    profile |= {"driver": "COG", "blocksize": 256, "compress": "deflate"}
    profile["transform"] = rasterio.transform.from_origin(440720, 3751320, 10, 10)
    with rasterio.open(tmp_path / "a.tif", "w", **profile) as out:
        out.write(data)
    return tmp_path / "a.tif", data

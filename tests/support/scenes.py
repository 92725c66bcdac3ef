"""Files for the tests of napari and bioio, written by tifffile, rasterio and zarr."""

import numpy as np
import rasterio
import tifffile
import zarr

RANDOM = np.random.default_rng(0)
GRID = rasterio.Affine(10, 0, 500_000, 0, -10, 4_000_000)


def cells(folder, **metadata):
    """Write two channels of a pyramid with physical sizes; return path and samples."""
    path = folder / "cells.ome.tif"
    data = RANDOM.integers(0, 4000, (2, 3, 96, 160)).astype("uint16")
    about = {"axes": "CZYX", "Channel": {"Name": ["DAPI", "GFP"]}, "Name": "embryo"}
    about |= {"PhysicalSizeX": 0.25, "PhysicalSizeXUnit": "µm"}
    about |= {"PhysicalSizeY": 0.5, "PhysicalSizeYUnit": "µm"}
    about |= {"PhysicalSizeZ": 2.0, "PhysicalSizeZUnit": "µm", **metadata}
    with tifffile.TiffWriter(path, ome=True) as out:
        out.write(data, tile=(32, 32), subifds=1, metadata=about)
        out.write(data[..., ::2, ::2], tile=(32, 32), subfiletype=1)
    return path, data


def raster(path, data, **options):
    """Write a GeoTIFF of 128 x 128 tiles."""
    profile = {"driver": "GTiff", "width": data.shape[2], "height": data.shape[1]}
    profile |= {"count": data.shape[0], "dtype": data.dtype.name, "crs": "EPSG:32633"}
    profile |= {"tiled": True, "blockxsize": 128, "blockysize": 128, "transform": GRID, **options}
    palette = profile.pop("palette", None)
    overviews = profile.pop("overviews", None)
    with rasterio.open(path, "w", **profile) as out:
        if palette is not None:
            out.write_colormap(1, palette)
        out.write(data)
        if overviews is not None:
            out.build_overviews(overviews, rasterio.enums.Resampling.nearest)
    return path


def picture(path, count=3, **options):
    """Write a colour picture with an overview; return path and samples."""
    data = RANDOM.integers(0, 256, (count, 256, 384)).astype("uint8")
    return raster(path, data, photometric="RGB", overviews=[2], **options), data


def segmented(folder):
    """Write an OME-Zarr 0.4 with an image and its labels; return path and labels."""
    path = folder / "segmented.zarr"
    labels = RANDOM.integers(0, 4, (40, 60)).astype("int32")
    root = zarr.open_group(path, mode="w", zarr_format=2)

    def write(group, data, **attributes):
        made = group.create_array("0", shape=data.shape, chunks=(20, 20), dtype=data.dtype)
        made[...] = data
        axes = [{"name": n, "type": "space", "unit": "micrometer"} for n in "yx"]
        steps = [{"type": "scale", "scale": [0.5, 0.5]}]
        levels = [{"path": "0", "coordinateTransformations": steps}]
        scale = {"version": "0.4", "axes": axes, "datasets": levels}
        group.attrs.update({"multiscales": [scale], **attributes})

    write(root, RANDOM.integers(0, 255, (40, 60)).astype("uint8"))
    holder = root.create_group("labels")
    holder.attrs["labels"] = ["nuclei"]
    colours = [{"label-value": 1, "rgba": [255, 0, 0, 255]}]
    about = {"version": "0.4", "colors": [*colours, {"label-value": "x", "rgba": [1]}]}
    write(holder.create_group("nuclei"), labels, **{"image-label": about})
    return path, labels

"""What processes of `tests.forked` have imported before they start. Not what starts threads: they end at a fork."""

import contextlib
import gc
import importlib
import pkgutil

import anychunk.codecs
import anychunk.formats

OURS = (
    *("anychunk.api", "anychunk.cli.commands", "anychunk.cli.convert", "anychunk.cli.index"),
    *("anychunk.conversion", "anychunk.conversion.writing", "anychunk.server.run"),
    *("anychunk.thumbnail", "anychunk.verification.checks", "anychunk.xarray_engine"),
)
OTHERS = (
    *(
        "coverage",
        "dask.array",
        "distributed",
        "jsonschema",
        "pyarrow.parquet",
        "pydantic.json_schema",
    ),
    *("pydantic.type_adapter", "pyproj", "rasterio", "rich.console", "rioxarray.xarray_plugin"),
    *("tifffile.geodb", "typer", "xarray", "zarrs.pipeline"),
    *("imagecodecs._blosc", "imagecodecs._deflate", "imagecodecs._zlib", "imagecodecs._zstd"),
)

for package in (anychunk.codecs, anychunk.formats):
    OURS += tuple(
        found.name for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    )
for name in (*OURS, *OTHERS):
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
# the collector would copy the memory that a forked process shares
gc.collect()
gc.freeze()

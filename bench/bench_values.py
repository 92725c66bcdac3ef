"""scale_offset and cast_value compared with zarr with cast-value-rs, and with plain copies.

Times are CPU times of the thread: on a busy machine the wall-clock time of either side varies.
"""

import time
import tracemalloc

import numpy as np
from zarr.codecs.cast_value import CastValue as ZarrCastValue
from zarr.codecs.scale_offset import ScaleOffset as ZarrScaleOffset

from anychunk.codecs import CastValue, ScaleOffset
from anychunk.codecs.base import ChunkSpec
from anychunk.codecs.cast.blockwise import fuse
from anychunk.zarr.codecs import adapted
from anychunk.zarr.foreign import array_spec
from bench.measure import OURS, Row, Times

MIB = 1 << 20


def field(count, dtype):
    """Return a smooth field with noise, around 273."""
    noise = np.random.default_rng(0).normal(size=count)
    return (273 + 100 * np.sin(np.arange(count) / 1000) + noise).astype(dtype)


def chain(codecs, array, dtype, *, decodes=False):
    """Return a function that runs codecs as zarr does."""
    dtype = np.dtype(dtype)
    spec = array_spec(ChunkSpec(array.shape, dtype, dtype.type(273)))
    pairs = []
    for codec in map(adapted, codecs):
        pairs.append((codec.evolve_from_array_spec(spec), spec))
        spec = codec.resolve_metadata(spec)
    make = spec.prototype.nd_buffer.from_ndarray_like

    def run():
        data = make(array)
        for codec, codec_spec in reversed(pairs) if decodes else pairs:
            data = (codec._decode_sync if decodes else codec._encode_sync)(data, codec_spec)
        return data.as_numpy_array()

    return run


def thread_times(calls, rounds=9):
    """Return the best thread time of each call, interleaved, after one warm-up."""
    times = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            np.ones(16 * MIB, np.uint8)  # put the allocator into the same state before every call
            start = time.thread_time()
            call()
            times[name].append(time.thread_time() - start)
    return Times(times)


def race(times):
    """Return only our time and zarr's, named as in the report."""
    names = {"ours": OURS, "zarr": "zarr + cast-value-rs"}
    return Times({names[key]: times.rounds[key] for key in names})


def peak_extra(call, result_bytes):
    """Return the peak of allocated bytes beyond the result."""
    call()
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak - result_bytes


def both(dtype, target, offset, scale, count):
    values = field(count, dtype)
    ours = [
        ScaleOffset(offset=offset, scale=scale, strict=False),
        CastValue(data_type=target, strict=False),
    ]
    theirs = [ZarrScaleOffset(offset=offset, scale=scale), ZarrCastValue(data_type=target)]
    encoded = chain(theirs, values, dtype)()
    patches = missing(values)
    nan = int(np.iinfo(target).min)  # a value that does not occur in the field
    scalar_map = {"encode": [["NaN", nan]], "decode": [[nan, "NaN"]]}
    mapped = [ours[0], CastValue(data_type=target, scalar_map=scalar_map, strict=False)]
    for decodes, source, target_dtype, least in (
        (False, values, target, 3),
        (True, encoded, dtype, 1.5),
    ):
        with_nan = chain(fuse(mapped), patches, dtype)() if decodes else patches
        calls = {
            "ours": chain(fuse(ours), source, dtype, decodes=decodes),
            "zarr": chain(theirs, source, dtype, decodes=decodes),
            "apart": chain(ours, source, dtype, decodes=decodes),
            "map": chain(fuse(mapped), with_nan, dtype, decodes=decodes),
            "scale": chain(ours[:1], values, dtype, decodes=decodes),
            "cast": chain(ours[1:], source, dtype, decodes=decodes),
            "copy": lambda s=source, t=target_dtype: s.astype(t),
            "same": values.copy,
        }
        np.testing.assert_array_equal(calls["ours"](), calls["zarr"]())
        times = thread_times(calls)
        name = f"{dtype} {'<-' if decodes else '->'} {target}"
        millis = {key: f"{1e3 * t:.1f} ms" for key, t in times.items()}
        yield Row(f"{name} with scale and offset, against zarr", times["zarr"] / times["ours"],
                  f">= {least}", f"{millis['ours']} against {millis['zarr']}; the two codecs apart "
                  f"{millis['apart']}", race(times))  # fmt: skip
        yield Row(f"{name}: scalar_map with NaN / without", times["map"] / times["ours"], "<= 1.5",
                  "a tenth is missing, in patches", times)  # fmt: skip
        yield Row(f"{name}: cast_value / copy of input to output", times["cast"] / times["copy"],
                  "<= 2.5", f"{millis['cast']} against {millis['copy']}", times)  # fmt: skip
        yield Row(f"{name}: scale_offset / copy", times["scale"] / times["same"], "<= 2.5",
                  f"{millis['scale']} against {millis['same']}", times)  # fmt: skip
        extra = peak_extra(calls["map"], calls["map"]().nbytes)
        yield Row(f"{name}: peak memory beyond input and output, MiB", extra / MIB, "<= 1")


def missing(values):
    """Replace a tenth of the values by NaN, in patches of a hundred to a thousand."""
    values = values.copy()
    rng = np.random.default_rng(1)
    count = values.size // 5500
    starts = rng.integers(0, values.size, count)
    for start, length in zip(starts, rng.integers(100, 1000, count), strict=True):
        values[start : start + length] = np.nan
    return values


def integers(count):
    values = np.random.default_rng(0).integers(2**40, 2**41, count, dtype=np.uint64)
    signed = values.astype(np.int64)
    options = {"offset": 100, "scale": 3}
    # zarr creates a Python object per value: a part of the data is enough
    part = values[: count // 16]
    theirs = chain([ZarrScaleOffset(**options)], part, "uint64")
    ours = chain([ScaleOffset(**options)], part, "uint64")
    times = thread_times({"ours": ours, "zarr": theirs}, rounds=3)
    yield Row("uint64 scale_offset, against zarr", times["zarr"] / times["ours"], ">= 10",
              f"{1e3 * times['ours']:.2f} ms against {1e3 * times['zarr']:.1f} ms, "
              f"{part.size} values", race(times))  # fmt: skip
    calls = {
        "uint64": chain([ScaleOffset(**options)], values, "uint64"),
        "int64": chain([ScaleOffset(**options)], signed, "int64"),
    }
    times = thread_times(calls)
    yield Row("uint64 / int64 scale_offset", times["uint64"] / times["int64"], "<= 1.2", "", times)


def run(quick):
    count = MIB // 2 if quick else 4 * MIB
    rows = list(both("float64", "uint16", 100.0, 100.0, count))
    rows += both("float32", "int16", 273.0, 64.1, count)
    rows += integers(count)
    return rows

"""The foundation: views of offset and pad, opening, many small chunks, large indexes."""

import pickle
import tempfile
import time
from pathlib import Path

import numpy as np
import zarr

import anychunk
from anychunk.codecs import Offset, Pad
from anychunk.model.index import ArrayIndex, ByteRanges
from bench.measure import OURS, Row, Times, best_of

MIB = 1 << 20


def affixes(quick):
    data = np.random.default_rng(0).integers(0, 256, (8 if quick else 64) * MIB, dtype=np.uint8)
    for codec in (Offset(offset=110), Pad(location="end", nbytes=110)):
        stored = codec.encode_bytes(data, None)
        times = best_of(
            {
                "copy": data.copy,
                "decode": lambda c=codec, s=stored: c.decode_bytes(s, None),
                "encode": lambda c=codec: c.encode_bytes(data, None),
            }
        )
        ratio = times["decode"] / times["copy"]
        yield Row(f"{codec.name}: decode / copy", ratio, "<= 0.01", seconds=times)
        ratio = times["encode"] / times["copy"]
        yield Row(f"{codec.name}: encode / copy", ratio, "<= 1.2", seconds=times)


def npy(quick):
    rows = 64 if quick else 1024
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.npy"
        np.save(path, np.random.default_rng(0).integers(0, 99, (rows, 512, 512), dtype=np.int32))
        chunk = anychunk.open_array(path).chunks[0]

        def ours():
            return anychunk.open_array(path)[:chunk]

        def numpy():
            return np.load(path, mmap_mode="r")[:chunk].copy()

        array, mapped = anychunk.open_array(path), np.load(path, mmap_mode="r")
        warm = best_of({"ours": lambda: array[:chunk], "numpy": mapped[:chunk].copy}, rounds=50)
        cold = best_of({"ours": ours, "numpy": numpy}, rounds=20)
        for name, times in {"opened before": warm, "with opening": cold}.items():
            detail = f"{times['ours'] * 1e6:.0f} us against {times['numpy'] * 1e6:.0f} us"
            yield Row(
                f"npy, {rows} MiB: one chunk, {name} / numpy.load + copy",
                times["ours"] / times["numpy"],
                "<= 1.5",
                detail,
                times,
            )


def many_chunks(quick):
    count = 4_000 if quick else 100_000
    data = np.random.default_rng(0).integers(0, 255, count * 4096, dtype=np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chunks"
        data.tofile(path)
        ours = anychunk.open(flat_index(count, str(path)))
        memory = zarr.create_array(
            zarr.storage.MemoryStore(),
            shape=data.shape,
            chunks=(4096,),
            dtype="u1",
            compressors=None,
        )
        memory[:] = data
        with zarr.config.set(
            {"codec_pipeline.path": "zarr.core.codec_pipeline.FusedCodecPipeline"}
        ):
            fused = zarr.open_array(memory.store, mode="r")
        readers = {"ours": ours, "default": memory, "fused": fused}
        times = best_of({n: lambda a=a: a[:] for n, a in readers.items()}, rounds=3)
    for peer, target in {"default": ">= 2", "fused": ">= 1"}.items():
        detail = f"{count / times['ours']:.0f} chunks/s against {count / times[peer]:.0f}"
        ratio = times[peer] / times["ours"]
        seconds = Times({OURS: times.rounds["ours"], f"zarr, {peer}": times.rounds[peer]})
        yield Row(f"{count:,} chunks of 4 KiB, full read", ratio, target, detail, seconds)


def flat_index(count, url):
    return ArrayIndex(
        shape=(count * 4096,),
        chunk_shape=(4096,),
        data_type="uint8",
        codecs=({"name": "bytes"},),
        chunks=ByteRanges(
            offsets=np.arange(count, dtype=np.uint64) * np.uint64(4096),
            lengths=np.full(count, 4096, np.uint64),
            urls=(url,),
        ),
        dimension_names=("x",),
    )


def large_index(quick):
    count = 1_000_000
    start = time.perf_counter()
    index = flat_index(count, "u")
    built = time.perf_counter() - start
    start = time.perf_counter()
    data = pickle.dumps(index)
    pickled = time.perf_counter() - start
    yield Row("index of 1,000,000 chunks: seconds to build", built, "< 0.1")
    yield Row("index of 1,000,000 chunks: bytes a chunk", index.chunks.nbytes / count, "<= 32")
    yield Row(
        "index of 1,000,000 chunks: seconds to pickle", pickled, "< 0.5", f"{len(data)} bytes"
    )


def run(quick):
    for cases in (affixes, npy, many_chunks, large_index):
        yield from cases(quick)

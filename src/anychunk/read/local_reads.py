"""Read chunks of local files: as runs of bytes, by the compiled loop, as windows, or one by one."""

from anychunk.decode.chunks import ChunkReader, Reading
from anychunk.io import measuring
from anychunk.io.threads import run_ranges
from anychunk.model.grid import Numbers, Plan
from anychunk.read.adjacent import adjacent_runs
from anychunk.read.batch import Batch
from anychunk.read.chunk_threads import INLINE_BYTES, INLINE_COPY, in_threads, workers
from anychunk.read.many_chunks import many_chunks

LEAST_COPIES, LEAST_COPY = 16 << 20, 4 << 20
"""Adjacent uncompressed samples are divided among threads above this, in pieces of this size."""
MANY_BYTES = 4 << 20
"""How many bytes of chunks a thread decodes in one call of the compiled loop."""


def read_adjacent(
    batch: Batch, reader: ChunkReader, reading: Reading, plan: Plan, numbers: Numbers
) -> bool:
    """Read chunks that follow each other together; return False, having read none, if few do."""
    reading.check()
    runs = adjacent_runs(reader, reading, plan, numbers, batch.dtype)
    if runs is None:
        return False
    total = batch.out.nbytes
    threads = workers() if total > LEAST_COPIES else 1
    pieces = list(runs.pieces(total if threads == 1 else max(LEAST_COPY, total // (2 * threads))))

    def copy(positions: range) -> None:
        for run in pieces[positions.start : positions.stop]:
            target = runs.target(run)
            place = batch.out[target]
            if measuring.collectors:
                measuring.count(
                    chunks=run.chunks, stored_bytes=place.nbytes, decoded_bytes=place.nbytes
                )
                is_done = measuring.timed("fetch_seconds", runs.fill, run, place)
            else:
                is_done = runs.fill(run, place)
            if not is_done:
                batch.place(target, runs.array(run))

    def read(positions: range) -> None:
        for position in positions:
            number = runs.rest[position]
            batch.scatter(
                range(number, number + 1),
                reading.stream(numbers[number : number + 1]),
                lambda position: reader.describe(int(numbers[position])),
            )

    if threads == 1:
        copy(range(len(pieces)))
    else:
        run_ranges(copy, len(pieces), threads=min(threads, len(pieces)), most=1)
    if runs.rest:
        in_threads(read, len(runs.rest), batch.decode)
    return True


def read_many(
    batch: Batch, reader: ChunkReader, reading: Reading, plan: Plan, numbers: Numbers
) -> bool:
    """Read chunks by the compiled loop; return False, having read none, if it cannot."""
    reading.check()
    chunks = many_chunks(reader, reading, plan, numbers, out=batch.out, decode=batch.decode)
    if chunks is None:
        return False
    batch.locate(numbers, reader.grid)

    def name(position: int) -> str:
        return reader.describe(int(numbers[position]))

    def run(positions: range) -> None:
        for left in chunks.take(positions):
            part = range(left, left + 1)
            batch.scatter(part, reading.stream(numbers[part.start : part.stop]), name)

    nbytes, count = batch.decode.nbytes, len(numbers)
    is_little = count * nbytes <= (INLINE_COPY if batch.decode.is_view else INLINE_BYTES)
    threads = 1 if is_little else min(workers(), count)
    run_ranges(run, count, threads=threads, most=max(1, MANY_BYTES // nbytes))
    return True


def read_local(batch: Batch, reader: ChunkReader, reading: Reading, numbers: Numbers) -> None:
    """Read chunks one by one, or parts of tiles."""
    # before any thread starts: a changed file is one error, not one per thread
    reading.check()
    if reader.windows is not None:
        from anychunk.read.window_reads import read_windows  # with all of JPEG 2000

        if read_windows(batch, reader, reading, numbers):
            return
    reading.expect(numbers)
    batch.locate(numbers, reader.grid)

    def name(position: int) -> str:
        return reader.describe(int(numbers[position]))

    def run(positions: range) -> None:
        batch.scatter(positions, reading.stream(numbers[positions.start : positions.stop]), name)

    in_threads(run, len(numbers), batch.decode, row=batch.row)

import threading

import numpy as np
import pytest

from anychunk.codecs.seek import walk
from anychunk.codecs.seek.points import begin
from anychunk.codecs.seek.walk import Stream, Walker, checksum, stream_of
from anychunk.errors import ChunkDecodeError
from tests.codecs.seek.encoders import BZIP2, CASES, GZIP, RAW

STEP = 300_000
STARTS = list(range(10, len(RAW), STEP))


def walker_of(stream, compression="gzip"):
    opened = stream_of(stream) if isinstance(stream, bytes) else stream
    return Walker(lambda: begin(opened, compression, len(RAW)), starts=STARTS, stop=len(RAW))


def read(walker, number):
    start = STARTS[number]
    out = np.empty(min(STEP, len(RAW) - start), np.uint8)
    walker.read(start, out)
    return out.tobytes() == RAW[start : start + len(out)]


@pytest.mark.parametrize(("compression", "name", "encode"), CASES, ids=lambda v: str(v)[:20])
def test_any_order(compression, name, encode):
    walker = walker_of(encode(RAW), compression)
    assert all(read(walker, number) for number in (3, 0, 6, 1, 5, 3, 2, 4, 6))


def test_later_reads_decode_one_piece():
    walker = walker_of(GZIP["zlib 6"](RAW))
    read(walker, 6)
    before = walker.decoded
    assert read(walker, 3)
    assert walker.decoded - before == STEP


@pytest.mark.parametrize("step", [1, 2])
def test_bzip2_in_order(step):
    """Its decoder cannot be copied; reads in order continue where the last one ended."""
    walker = walker_of(BZIP2["bzip2 9"](RAW), "bzip2")
    assert read(walker, 6)
    before = walker.decoded
    numbers = range(0, len(STARTS), step)
    assert all(read(walker, number) for number in numbers)
    assert walker.decoded - before <= len(RAW)
    assert read(walker, 1)


def test_bzip2_of_several_streams():
    """Reading again begins at the stream that a piece begins in, not at the first."""
    walker = walker_of(BZIP2["streams"](RAW), "bzip2")
    assert read(walker, 6)
    before = walker.decoded
    assert read(walker, 4)
    assert walker.decoded - before == STARTS[5] - 500_001


def test_states_are_bounded(monkeypatch):
    monkeypatch.setattr(walk, "MOST_STATES", 3)
    walker = walker_of(GZIP["zlib 6"](RAW))
    assert all(read(walker, number) for number in (6, 5, 4, 3, 2, 1, 0))
    assert len(walker._states) <= 3


def test_threads():
    walker, wrong = walker_of(GZIP["zlib 1"](RAW)), []

    def work(numbers):
        wrong.extend(number for number in numbers if not read(walker, number))

    orders = [(6, 1, 3), (0, 5, 2), (4, 6, 0)]
    threads = [threading.Thread(target=work, args=(order,)) for order in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_whole_checksum():
    """Damage that decodes is found when the end is reached, and by every read from then on."""
    stream = bytearray(GZIP["zlib 0"](RAW))
    stream[1_200_000] ^= 1
    walker = walker_of(bytes(stream))
    assert read(walker, 0)
    for _ in range(2):
        with pytest.raises(ChunkDecodeError):
            read(walker, 6)
    with pytest.raises(ChunkDecodeError):
        read(walker, 0)


@pytest.mark.parametrize("cut", [1, 4, 9, 1000, 200_000])
def test_truncated(cut):
    walker = walker_of(GZIP["zlib 6"](RAW)[:-cut])
    for _ in range(2):
        with pytest.raises(ChunkDecodeError):
            read(walker, 6)


def test_a_failed_request_is_tried_again():
    stream, failures = GZIP["zlib 6"](RAW), [3]
    data = np.frombuffer(stream, np.uint8)

    def fetch(offset, length):
        failures[0] -= 1
        if not failures[0]:
            raise OSError("no answer")
        return data[offset : offset + length]

    walker = walker_of(Stream(fetch, len(data), ahead=1 << 18))
    with pytest.raises(OSError, match="no answer"):
        read(walker, 6)
    assert all(read(walker, number) for number in (6, 2))


def test_a_failed_request_for_the_end_is_tried_again():
    """The checksum is still found to be wrong."""
    stream = bytearray(GZIP["zlib 0"](RAW))
    stream[-5] ^= 1
    data, failures = np.frombuffer(bytes(stream), np.uint8), [1]

    def fetch(offset, length):
        if failures[0] and offset + length == len(data):
            failures[0] -= 1
            raise OSError("no answer")
        return data[offset : offset + length]

    walker = walker_of(Stream(fetch, len(data)))
    with pytest.raises(OSError, match="no answer"):
        read(walker, 6)
    for number in (6, 0):
        with pytest.raises(ChunkDecodeError):
            read(walker, number)


def test_reading_to_the_end():
    """The first read decodes everything once, and knows then whether it is right."""
    walker = walker_of(GZIP["zlib 6"](RAW))
    out = np.empty(STEP, np.uint8)
    for _ in range(2):
        walker.read(STARTS[1], out, to_end=True)
        assert out.tobytes() == RAW[STARTS[1] : STARTS[2]]
        assert walker.verdict.is_sound
    assert walker.decoded == len(RAW) + STEP


def test_remote_streams_are_read_in_large_ranges():
    data = np.frombuffer(GZIP["zlib 6"](RAW), np.uint8)
    requests = []

    def fetch(offset, length):
        requests.append((offset, length))
        return data[offset : offset + length]

    walker = walker_of(Stream(fetch, len(data), ahead=1 << 18))
    assert read(walker, 6)
    assert len(requests) <= len(data) // (1 << 18) + 2
    assert sum(length for _, length in requests) <= len(data) + (1 << 17)


def test_checksum():
    assert checksum(np.frombuffer(b"123456789", np.uint8)) == 0xCBF43926
    assert checksum(np.empty(0, np.uint8)) == 0

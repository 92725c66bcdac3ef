"""Generate the conformance vectors of this folder, with exact arithmetic and nothing but Python.

    python specs/vectors/generate.py

writes `cast_value.json`, `scale_offset.json`, `offset.json`, `pad.json`, `n5_default.json`,
`packbits.json` and `tiles.json`; the same files in every run and on every system. README.md
describes them.
"""

import base64
import json
import math
import random
import struct
import sys
import zlib
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from numbers_exact import (  # noqa: E402
    HALF,
    ROUNDINGS,
    TYPES,
    Floats,
    Integers,
    Type,
    Value,
    payload_nan,
    round_to_type,
    to_json,
)

type Json = Any

CONFIGURATIONS = [(mode, rule) for rule in (None, "clamp", "wrap") for mode in ROUNDINGS]
"""Every pair of `rounding` and `out_of_range`."""


# -- cast_value


def cast(value: Value, target: Type, mode: str, rule: str | None) -> Value | None:
    """Cast one value as the text of `cast_value` says; None if it must be an error."""
    if isinstance(value, float) and value == 0:  # -0.0
        return value if target.has_negative_zero else cast(Fraction(0), target, mode, rule)
    if isinstance(value, float):
        survives = target.has_nan if math.isnan(value) else target.has_infinity
        return value if survives else None
    number = round_to_type(value, target, mode)
    if target.low <= number <= target.high:
        return number
    if rule == "wrap":
        return (number - target.low) % (target.high - target.low + 1) + target.low
    if rule != "clamp":
        return None
    if target.has_infinity:
        return math.inf if number > 0 else -math.inf
    return target.high if number > target.high else target.low


def undecided(value: Value, target: Type, mode: str, rule: str | None) -> list[Value | None] | None:
    """Return all results that the text allows, where it does not decide.

    `nearest-even` asks for the number "whose least significant digit is even". Numbers of
    float8_e8m0fnu are powers of two, with one digit each, which is 1.
    """
    is_tie = (
        target.name == "float8_e8m0fnu"
        and mode == "nearest-even"
        and isinstance(value, Fraction)
        and value > 0
        and value / target.step(value) == 3 * HALF
    )
    if not is_tie:
        return None
    both = [cast(value, target, way, rule) for way in ("towards-negative", "towards-positive")]
    return both if both[0] != both[1] else None


def interesting(source: Type, target: Type, rng: random.Random) -> list[Value]:
    """Return values of `source` at which casts to `target` go wrong."""
    wanted: list[Fraction] = [Fraction(0), Fraction(1), source.low, source.high]
    for bound, away in ((target.low, -1), (target.high, 1)):
        step = target.step(bound)
        wanted += [bound + away * step * part for part in (0, Fraction(1, 4), HALF, 1, 3)]
        wanted += [bound * 2 + away * 5, bound - away * step]
    for _ in range(12):
        bits = rng.choice([1, 2, 4, 7, 12, 23, 40, 52, 60, 63])
        number = Fraction(rng.getrandbits(bits) * rng.choice([1, -1]), rng.choice([1, 1, 2, 4, 8]))
        number *= Fraction(2) ** rng.choice([0, 0, -3, -9, -20, -130])
        near = round_to_type(number, target)
        step = target.step(near)
        wanted += [number, near, near + step / 2, near - step / 2, near + step / 4]
    found: dict[Value, None] = {}
    for number in wanted:
        nearest = round_to_type(number, source)
        if source.low <= nearest <= source.high:
            found[nearest] = None
    return list(found)


def specials(source: Type) -> list[Value]:
    """Return NaN, infinities and -0.0, as far as the type has them."""
    both: list[Value] = [math.inf, -math.inf] if source.has_infinity else []
    nan: list[Value] = [math.nan] if source.has_nan else []
    return both + nan + ([-0.0] if source.has_negative_zero else [])


def chosen(source: Type, target: Type, rng: random.Random) -> list[Value]:
    """Return a few values of each sort: rounded, a tie, beyond either end, exact, special."""
    sorts: dict[str, list[Value]] = {}
    for value in interesting(source, target, rng):
        assert isinstance(value, Fraction)
        number = round_to_type(value, target)
        if number < target.low:
            sort = "below"
        elif number > target.high:
            sort = "above"
        elif number == value:
            sort = "exact"
        else:
            sort = "tie" if abs(number - value) * 2 == target.step(value) else "rounded"
        sorts.setdefault(sort, []).append(value)
    found = [rng.choice(values) for _, values in sorted(sorts.items())]
    special = specials(source)
    return found[:5] + ([rng.choice(special)] if special else [])


def cast_group(source: Type, target: Type, values: list[Value], pairs: Json = None) -> Json:
    """Return the results of all configurations for one pair of types; equal ones are listed once.

    Where no rounding makes a difference, only two of them are kept.
    """
    mapped: dict[str, Json] = {}
    for key, value in pairs or ():
        mapped.setdefault(json.dumps(key), value)
    inputs = [value if isinstance(value, str) else to_json(value, source) for value in values]

    def result(given: Json, value: Value | str, mode: str, rule: str | None) -> Json:
        if json.dumps(given) in mapped:
            return mapped[json.dumps(given)]
        exact = math.nan if isinstance(value, str) else value
        several = undecided(exact, target, mode, rule)
        if several is None:
            return to_json(cast(exact, target, mode, rule), target)
        return [to_json(one, target) for one in several]

    outs: dict[str, tuple[list[int], Json]] = {}
    for rule in (None, "clamp", "wrap"):
        if rule == "wrap" and isinstance(target, Floats):
            continue
        rows = {
            mode: [result(*pair, mode, rule) for pair in zip(inputs, values, strict=True)]
            for mode in ROUNDINGS
        }
        is_same = len({json.dumps(out) for out in rows.values()}) == 1
        other = ROUNDINGS[1 + len(json.dumps([inputs, rule])) % 4]
        for mode, out in rows.items():
            if not is_same or mode in (ROUNDINGS[0], other):
                number = CONFIGURATIONS.index((mode, rule))
                outs.setdefault(json.dumps(out), ([], out))[0].append(number)
    group = {"source": source.name, "target": target.name}
    if pairs:
        group["scalar_map"] = pairs
    return {**group, "in": inputs, "out": [[numbers, out] for numbers, out in outs.values()]}


def map_group(source: Type, target: Type, rng: random.Random) -> Json:
    """Return a group with a scalar map: special values, the first of equal keys, bits of a NaN."""
    numbers = [v for v in interesting(source, target, rng) if v != 0]
    rng.shuffle(numbers)
    inside = [
        round_to_type(v, target)
        for v in interesting(target, target, rng)
        if isinstance(v, Fraction) and v != 0
    ]
    results: list[Value] = [v for v in inside if target.low <= v <= target.high]
    results += [v for v in specials(target) if v != 0]
    pick = lambda: to_json(rng.choice(results), target)  # noqa: E731
    keys: list[Value | str] = list(numbers[:2])
    keys += [v for v in specials(source) if v != 0]
    pairs = [[key if isinstance(key, str) else to_json(key, source), pick()] for key in keys]
    pairs.append([pairs[0][0], pick()])  # repeated: the first one counts
    values: list[Any] = [*keys, *numbers[2:5]]
    if source.name in ("float16", "float32", "float64") and rng.random() < 0.5:
        # only this NaN is mapped; the default one is not
        assert isinstance(source, Floats)
        pairs = [pair for pair in pairs if pair[0] != "NaN"]
        pairs.append([payload_nan(source), pick()])
        values.append(payload_nan(source))
    return cast_group(source, target, values, pairs)


def key_groups() -> Iterator[Json]:
    """Yield what the text leaves open about keys: zeros of both signs, NaNs of other bits.

    And what it is clear about: the first of equal keys, bits that are not in a key.
    """
    target = "int16"
    for name in ("float16", "float32", "float64"):
        kind = TYPES[name]
        assert isinstance(kind, Floats)
        nan = payload_nan(kind)
        for pairs, values, out in (
            ([[0.0, 7]], [0.0, -0.0, 1], [7, [7, 0], 1]),
            ([[-0.0, 9]], [0.0, -0.0, 1], [[9, 0], 9, 1]),
            ([[0.0, 7], [-0.0, 9]], [0.0, -0.0], [7, [7, 9]]),
            ([[-0.0, 9], [0.0, 7]], [0.0, -0.0], [[9, 7], 9]),
            ([["NaN", 1]], ["NaN", nan, 2], [1, [1, None], 2]),
            ([[nan, 1]], [nan, 2], [1, 2]),
            ([[nan, 1], ["NaN", 3]], [nan, "NaN"], [1, 3]),
            ([["NaN", 3], [nan, 1]], [nan, "NaN"], [[3, 1], 3]),
        ):
            group = {"source": name, "target": target, "scalar_map": pairs, "in": values}
            yield {**group, "out": [[[0], out]]}


def cast_value() -> Json:
    """Return the vectors of `cast_value`."""
    groups = []
    for source in TYPES.values():
        for target in TYPES.values():
            rng = random.Random(f"{source.name} {target.name}")
            groups.append(cast_group(source, target, chosen(source, target, rng)))
    for source in TYPES.values():
        rng = random.Random(f"map {source.name}")
        for target in rng.sample(list(TYPES.values()), 5):
            groups.append(map_group(source, target, rng))
    groups += key_groups()
    cases = sum(len(numbers) * len(out) for group in groups for numbers, out in group["out"])
    configurations = [{"rounding": mode, "out_of_range": rule} for mode, rule in CONFIGURATIONS]
    return {
        "codec": "cast_value",
        "cases": cases,
        "configurations": configurations,
        "groups": groups,
    }


# -- scale_offset


def fits(value: Fraction, kind: Type) -> bool:
    """Return whether an exact result is a number of the type; floats may still round it."""
    if isinstance(kind, Integers):
        return value.denominator == 1 and kind.low <= value <= kind.high
    return kind.low <= value <= kind.high


def rounded(value: Fraction, kind: Type) -> Fraction:
    return value if isinstance(kind, Integers) else round_to_type(value, kind)


def scaled_json(value: Value, offset: Fraction, scale: Fraction, kind: Type, way: str) -> Json:
    """Return the result as JSON; all that are allowed where floats overflow.

    The text asks for the arithmetic of the type, in which they become infinite, and for an error
    if a value is not representable, which an infinity is.
    """
    found = scaled(value, offset, scale, kind, way)
    if found is None and isinstance(kind, Floats) and kind.has_infinity:
        first = value - offset if way == "encode" else value / scale
        second = first * scale if way == "encode" else first + offset
        if fits(rounded(first, kind), kind):
            first = second  # only the second operation overflows
        elif way == "encode":
            first *= scale
        return [None, to_json(math.inf if first > 0 else -math.inf, kind)]
    return to_json(found, kind)


def scaled(value: Value, offset: Fraction, scale: Fraction, kind: Type, way: str) -> Value | None:
    """Return `(x - offset) * scale` or `x / scale + offset`; None if it must be an error."""
    if isinstance(value, float):  # NaN, or an infinity, of which only the sign can change
        return value if scale > 0 or math.isnan(value) else -value
    first = rounded(value - offset if way == "encode" else value / scale, kind)
    if not fits(first, kind):
        return None
    second = rounded(first * scale if way == "encode" else first + offset, kind)
    return second if fits(second, kind) else None


def scale_offset() -> Json:
    """Return the vectors of `scale_offset`."""
    groups = []
    for kind in TYPES.values():
        if isinstance(kind, Floats) and not kind.has_zero:
            continue  # float8_e8m0fnu has no zero, which a missing offset stands for
        rng = random.Random(f"scale_offset {kind.name}")
        for number in range(12):
            groups.append(_scale_group(kind, rng, number))
    cases = sum(len(group[way]["in"]) for group in groups for way in ("encode", "decode"))
    return {"codec": "scale_offset", "cases": cases, "groups": groups}


def _scale_group(kind: Type, rng: random.Random, number: int) -> Json:
    small = [Fraction(n) for n in (1, 2, 3, 5, 10, -1, -2, -3)]
    if isinstance(kind, Integers):
        near = [kind.low, kind.high, kind.high // 3, kind.low + 1, Fraction(7), *small]
        offsets = scales = [n for n in near if kind.low <= n <= kind.high]
    else:
        parts = [Fraction(n, 10) for n in (1, 3, 7, 25, -4)]
        parts += [HALF, Fraction(1, 8), kind.high, kind.high / 3]
        both = [round_to_type(n, kind) for n in small + parts]
        offsets = scales = [n for n in both if kind.low <= n <= kind.high]
    offset = Fraction(0) if number == 0 else rng.choice(offsets)
    scale = Fraction(1) if number == 1 else rng.choice([n for n in scales if n])
    values: list[Value] = [v for v in interesting(kind, kind, rng) if isinstance(v, Fraction)]
    group = {
        "data_type": kind.name,
        "offset": to_json(offset, kind),
        "scale": to_json(scale, kind),
    }
    for way in ("encode", "decode"):
        near_results = [scaled(v, offset, scale, kind, "decode") for v in values]
        pool: list[Value] = [v for v in near_results if isinstance(v, Fraction)] + values
        picked = rng.sample(pool, min(7, len(pool)))
        if isinstance(kind, Integers) and kind.low < 0:
            picked.append(kind.low)
        picked += [v for v in specials(kind) if v != 0]
        out = [scaled_json(v, offset, scale, kind, way) for v in picked]
        group[way] = {"in": [to_json(v, kind) for v in picked], "out": out}
    return group


# -- offset and pad


def header_cases() -> Iterator[tuple[bytes, bytes | None, bytes]]:
    """Yield headers, how the configuration states each (None: not at all), and payloads."""
    rng = random.Random("headers")
    yield b"", None, b"payload"
    yield b"", b"", b""
    yield b"MY_CUSTOM_HEADER", b"MY_CUSTOM_HEADER", b"payload"
    yield bytes(4), None, b"\1\2\3"
    for length in (1, 2, 3, 12, 110, 255, 256, 1000):
        header = rng.randbytes(length)
        yield header, header, rng.randbytes(rng.choice([0, 1, 7, 64]))
        yield bytes(length), None, rng.randbytes(5)


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


NOT_BASE64 = ("QQ", "Q===", "QQ==\n", "Q Q=", "QR==", "base64:QQ==", "é", 5, None, [81])
NOT_COUNTS = (-1, 1.5, "4", True, None, [4])


def offset() -> Json:
    """Return the vectors of `offset`."""
    cases = []
    for header, stated, payload in header_cases():
        configuration: dict[str, Json] = {"offset": len(header)}
        if stated is not None:
            configuration["prefix"] = text(stated)
        cases.append(_affixed(configuration, payload, header + payload, len(header)))
    refused = [{}, {"offset": 2, "prefix": text(b"abc")}, {"offset": 1, "nbytes": 1}]
    refused += [{"offset": count} for count in NOT_COUNTS]
    refused += [{"offset": 1, "prefix": prefix} for prefix in NOT_BASE64 if prefix is not None]
    return {"codec": "offset", "cases": cases, "refused": refused}


def pad() -> Json:
    """Return the vectors of `pad`."""
    cases = []
    for header, stated, payload in header_cases():
        for location in ("start", "end"):
            configuration: dict[str, Json] = {"location": location, "nbytes": len(header)}
            if stated is not None:
                configuration["padding"] = text(stated)
            encoded = header + payload if location == "start" else payload + header
            cases.append(_affixed(configuration, payload, encoded, len(header)))
    good = {"location": "start", "nbytes": 1}
    refused = [{}, {"nbytes": 1}, {"location": "start"}, {**good, "location": "middle"}]
    refused += [{**good, "nbytes": 2, "padding": text(b"abc")}, {**good, "offset": 1}]
    refused += [{**good, "nbytes": count} for count in NOT_COUNTS]
    refused += [{**good, "padding": padding} for padding in NOT_BASE64 if padding is not None]
    return {"codec": "pad", "cases": cases, "refused": refused}


def _affixed(configuration: Json, payload: bytes, encoded: bytes, length: int) -> Json:
    case = {"configuration": configuration, "decoded": text(payload), "encoded": text(encoded)}
    if length:
        case["too_short"] = text(encoded[: length - 1])  # decoding it must be an error
    return case


# -- n5_default


def stored_gzip(data: bytes) -> bytes:
    """Return a gzip stream of one stored block, which no version of zlib writes differently."""
    block = struct.pack("<BHH", 1, len(data), len(data) ^ 0xFFFF) + data
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + block + struct.pack("<II", zlib.crc32(data), len(data))


def stored_zlib(data: bytes) -> bytes:
    """Return a zlib stream of one stored block."""
    block = struct.pack("<BHH", 1, len(data), len(data) ^ 0xFFFF) + data
    return b"\x78\x01" + block + struct.pack(">I", zlib.adler32(data))


CODES = {
    "uint8": "B", "int8": "b", "uint16": "H", "int16": "h", "uint32": "I", "int32": "i",
    "uint64": "Q", "int64": "q", "float32": "f", "float64": "d",
}  # fmt: skip


def n5_default() -> Json:
    """Return the vectors of `n5_default`: whole blocks, cropped ones, and damaged ones."""
    cases = []
    for number, (kind, code) in enumerate(CODES.items()):
        chunk = [(3,), (2, 3), (2, 3, 4)][number % 3]
        for block in (chunk, tuple(max(1, n - 1) for n in chunk)):
            cases.append(_n5_case(kind, code, chunk, block, is_compressed=number % 2 == 1))
    head = struct.pack(">HHII", 0, 2, 2, 3)
    refused = {
        "no header": b"\0\0\0",
        "mode 3": struct.pack(">HHII", 3, 2, 2, 3) + bytes(6),
        "object block": struct.pack(">HI", 2, 6) + bytes(6),
        "one dimension too few": struct.pack(">HHI", 0, 1, 6) + bytes(6),
        "header cut off": head[:10],
        "a block larger than the chunk": struct.pack(">HHII", 0, 2, 2, 4) + bytes(8),
        "too few samples": head + bytes(5),
        "too many samples": head + bytes(7),
    }
    damaged = [{"what": what, "encoded": text(data)} for what, data in refused.items()]
    return {
        "codec": "n5_default",
        "cases": cases,
        "damaged": {
            "configuration": _n5_configuration(2, "uint8", is_compressed=False),
            "data_type": "uint8",
            "shape": [2, 3],
            "chunks": damaged,
        },
    }


def _n5_configuration(ndim: int, kind: str, *, is_compressed: bool) -> Json:
    order = list(range(ndim))[::-1]
    codecs: list[Json] = [{"name": "transpose", "configuration": {"order": order}}]
    has_order = kind not in ("uint8", "int8")
    codecs.append(
        {"name": "bytes", "configuration": {"endian": "big"}} if has_order else {"name": "bytes"}
    )
    if is_compressed:
        codecs.append({"name": "gzip", "configuration": {"level": 5}})
    return {"codecs": codecs}


def _n5_case(
    kind: str, code: str, chunk: tuple[int, ...], block: tuple[int, ...], *, is_compressed: bool
) -> Json:
    """Return a block; its first axis is the fastest, as N5 has it."""
    samples: dict[tuple[int, ...], int] = {}
    payload = b""
    for number, place in enumerate(places(block[::-1])):
        value = number * 37 % 100 - (0 if kind.startswith("u") else 50)
        samples[place[::-1]] = value
        payload += struct.pack(f">{code}", value)
    decoded = [samples.get(place, 9) for place in places(chunk)]  # 9: the fill value
    header = struct.pack(f">HH{len(block)}I", 0, len(block), *block)
    case = {
        "configuration": _n5_configuration(len(chunk), kind, is_compressed=is_compressed),
        "data_type": kind,
        "shape": list(chunk),
        "fill_value": 9,
        "decoded": decoded,
        "encoded": text(header + (stored_gzip(payload) if is_compressed else payload)),
    }
    # a compressor may write other bytes, and Zarr always writes whole chunks
    return case if block == chunk and not is_compressed else {**case, "decode_only": True}


def places(shape: Iterable[int]) -> Iterator[tuple[int, ...]]:
    """Yield all coordinates in C order."""
    first, *rest = [*shape, None]
    if first is None:
        yield ()
        return
    for i in range(first):
        for place in places(rest[:-1]):
            yield i, *place


# -- packbits


BITS = {"bool": 1, "int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "int8": 8, "uint8": 8}
BITS |= {f"{sign}int{bits}": bits for bits in (16, 32, 64) for sign in ("", "u")}


def packbits() -> Json:
    """Return the vectors of `packbits`."""
    cases = []
    for kind, bits in BITS.items():
        rng = random.Random(f"packbits {kind}")
        parts: list[tuple[int | None, int | None]] = [(None, None)]
        if bits > 2:
            parts += [(0, bits - 2), (1, bits // 2), (bits - 3, None), (None, bits // 2 - 1)]
        for first, last in parts:
            for padding in ("none", "first_byte", "last_byte"):
                cases.append(_packed(kind, bits, first, last, padding, rng))
    return {"codec": "packbits", "cases": cases}


def _packed(
    kind: str, bits: int, first: int | None, last: int | None, padding: str, rng: random.Random
) -> Json:
    configuration: dict[str, Json] = {}
    if padding != "none":
        configuration["padding_encoding"] = padding
    if first is not None:
        configuration["first_bit"] = first
    if last is not None:
        configuration["last_bit"] = last
    begin = 0 if first is None else first
    end = bits - 1 if last is None else last
    count = rng.choice([1, 3, 8, 11])
    width = end - begin + 1
    stream, values = 0, []
    for place in range(count):
        part = rng.getrandbits(width)
        stream |= part << place * width
        code = part << begin
        is_signed = kind.startswith("int")
        # the highest stored bit is the sign, which the bits above it repeat
        if is_signed and part >> (width - 1):
            code -= 1 << (end + 1)
        values.append(bool(code) if kind == "bool" else code)
    nbytes = -(-count * width // 8)
    encoded = stream.to_bytes(nbytes, "little")
    unused = bytes([nbytes * 8 - count * width])
    if padding == "first_byte":
        encoded = unused + encoded
    elif padding == "last_byte":
        encoded += unused
    return {
        "configuration": configuration,
        "data_type": kind,
        "shape": [count],
        "decoded": values,
        "encoded": text(encoded),
    }


# -- tiles

U = "https://awslabs.github.io/osml-imagery-io/codecs"


def tiles() -> Json:
    """Return chunks of jbp-block and tiff-tile, computed here, and recorded ones of the others."""
    recorded = json.loads((HERE / "tiles-recorded.json").read_text("utf-8"))
    return {"cases": [*jbp_blocks(), *tiff_tiles(), *recorded["cases"]]}


def _samples(bands: int, height: int, width: int, most: int) -> list[int]:
    """Return samples in the order (band, y, x)."""
    rng = random.Random(f"tile {bands} {height} {width} {most}")
    return [rng.randrange(most + 1) for _ in range(bands * height * width)]


def jbp_blocks() -> Iterator[Json]:
    """Yield uncompressed NITF blocks: every IMODE, bits packed from the most significant one on."""
    bands, height, width = 2, 3, 5
    count = height * width
    for imode in "BPRS":
        for nbpp in (1, 8, 12, 16, 32):
            data = _samples(bands, height, width, (1 << nbpp) - 1)
            bits = ""
            planes: list[str] = []
            for b, y, x in _orders(imode, bands, height, width):
                bits += f"{data[b * count + y * width + x]:0{nbpp}b}"
                if imode in "BS" and y == height - 1 and x == width - 1:
                    planes.append(bits)  # each band begins at a whole byte
                    bits = ""
            planes += [bits] if bits else []
            packed = b"".join(_packed_bits(plane) for plane in planes)
            kind = "uint8" if nbpp <= 8 else "uint16" if nbpp <= 16 else "uint32"
            configuration = {
                "num_bands": bands, "block_height": height, "block_width": width, "nbpp": nbpp,
                "imode": imode, "pvtype": "B" if nbpp == 1 else "INT",
            }  # fmt: skip
            # osml-imagery-io has whole bytes alone, and anychunk the others under its own name
            name = f"{U}/jbp-block" if nbpp % 8 == 0 else "anychunk.jbp-block"
            yield _tile(name, configuration, kind, (bands, height, width), data, packed)


def _orders(imode: str, bands: int, height: int, width: int) -> Iterator[tuple[int, int, int]]:
    """Yield (band, y, x) in the order in which an IMODE stores samples."""
    sizes = {"b": bands, "y": height, "x": width}
    axes = {"B": "byx", "S": "byx", "R": "ybx", "P": "yxb"}[imode]
    for place in places(sizes[axis] for axis in axes):
        at = dict(zip(axes, place, strict=True))
        yield at["b"], at["y"], at["x"]


def _packed_bits(bits: str) -> bytes:
    padded = bits + "0" * (-len(bits) % 8)
    return bytes(int(padded[i : i + 8], 2) for i in range(0, len(padded), 8))


def tiff_tiles() -> Iterator[Json]:
    """Yield TIFF tiles: no compression, PackBits and Deflate; both predictors; bands; byte order."""
    for bands, bits, code in ((1, 8, "B"), (3, 8, "B"), (1, 16, "H"), (2, 16, "H"), (1, 32, "I")):
        height, width = 3, 4
        data = _samples(bands, height, width, (1 << bits) - 1)
        rows = [
            [data[b * height * width + y * width + x] for x in range(width) for b in range(bands)]
            for y in range(height)
        ]
        for predictor in (1, 2):
            stored = [_differences(row, bands, bits) for row in rows] if predictor == 2 else rows
            for order, mark in (("little", "<"), ("big", ">")):
                plain = b"".join(struct.pack(f"{mark}{len(row)}{code}", *row) for row in stored)
                for compression, pack in ((1, bytes), (8, stored_zlib), (32773, _runs)):
                    if predictor == 2 and compression != 8:
                        continue  # TIFF defines it for LZW and Deflate
                    configuration: dict[str, Json] = {
                        "compression": compression, "bits_per_sample": bits,
                        "samples_per_pixel": bands, "photometric": 1, "planar_config": 1,
                        "predictor": predictor, "tile_width": width, "tile_height": height,
                        "sample_format": 1,
                    }  # fmt: skip
                    if order == "big":
                        if bits == 8:
                            continue
                        configuration["byte_order"] = "big"
                    # osml-imagery-io ignores the key, and decodes other numbers
                    name = "anychunk.tiff-tile" if order == "big" else f"{U}/tiff-tile"
                    kind, shape = f"uint{bits}", (bands, height, width)
                    yield _tile(name, configuration, kind, shape, data, pack(plain))


def _differences(row: list[int], bands: int, bits: int) -> list[int]:
    """Return a row after predictor 2: each sample minus the one of the same band before it."""
    return [
        (value - (row[i - bands] if i >= bands else 0)) % (1 << bits) for i, value in enumerate(row)
    ]


def _runs(data: bytes) -> bytes:
    """Return a PackBits stream of literal runs."""
    parts = [data[i : i + 128] for i in range(0, len(data), 128)]
    return b"".join(bytes([len(part) - 1]) + part for part in parts)


def _tile(
    name: str, configuration: Json, kind: str, shape: tuple[int, ...], data: list[int], raw: bytes
) -> Json:
    return {
        "name": name,
        "configuration": configuration,
        "data_type": kind,
        "shape": list(shape),
        "decoded": data,
        "encoded": text(raw),
    }


# -- files


LONGEST = 2**53
"""Beyond it, JSON libraries that read numbers as float64 change integers."""


def with_text(item: Json) -> Json:
    """Return a group with each list that has long integers a second time, with these as text."""
    if not isinstance(item, dict):
        return item
    found = {}
    for key, value in item.items():
        found[key] = with_text(value)
        if not isinstance(value, dict) and (text := as_text(value)) != value:
            found[f"{key}_text"] = text
    return found


def as_text(value: Json) -> Json:
    if isinstance(value, list):
        return [as_text(one) for one in value]
    return str(value) if isinstance(value, int) and abs(value) > LONGEST else value


def dumps(vectors: Json) -> str:
    """Return JSON with one line per case."""
    parts = []
    for key, value in vectors.items():
        if key == "groups":
            value = [with_text(group) for group in value]  # noqa: PLW2901
        if isinstance(value, list):
            lines = ",\n".join(json.dumps(item, separators=(",", ":")) for item in value)
            parts.append(f"{json.dumps(key)}: [\n{lines}\n]")
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


FILES = {
    "cast_value": cast_value,
    "scale_offset": scale_offset,
    "offset": offset,
    "pad": pad,
    "n5_default": n5_default,
    "packbits": packbits,
    "tiles": tiles,
}


def main() -> None:
    for name, make in FILES.items():
        (HERE / f"{name}.json").write_text(dumps(make()), "utf-8")


if __name__ == "__main__":
    main()

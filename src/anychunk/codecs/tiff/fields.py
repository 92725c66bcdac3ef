"""What the fields of a `tiff-tile` configuration may be: untrusted JSON, held against its kinds."""

import math


def is_count(name: str, value: object) -> bool:
    if name == "bits_per_sample" and isinstance(value, tuple):
        return True
    return type(value) is int and value >= 0


def are_counts(value: object, lengths: tuple[int, ...]) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) in lengths
        and all(type(v) is int and 0 < v <= 128 for v in value)
    )


def are_numbers(value: object, lengths: tuple[int, ...]) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) in lengths
        and all(isinstance(v, int | float) and math.isfinite(v) and abs(v) < 2048 for v in value)
    )


def is_within(value: object, most: int) -> bool:
    return value is None or (type(value) is int and 0 < value <= most)

"""DTED by hand, from MIL-PRF-89020B: records with checksums, a partial cell."""

from collections.abc import Iterator

from fuzz.cases import Field, Seed
from fuzz.seeds.pictures import field

HEADERS = 80 + 648 + 2700


def record(number: int, column: list[int]) -> bytes:
    """Return a data record; elevations from south to north."""
    data = b"\xaa" + number.to_bytes(3, "big") + number.to_bytes(2, "big") + bytes(2)
    data += b"".join((abs(v) | (0x8000 if v < 0 else 0)).to_bytes(2, "big") for v in column)
    return data + sum(data).to_bytes(4, "big")


def cell(rows: int, columns: int, *, partial: bytes = b"00", kept: int | None = None) -> bytes:
    """Return a file."""
    uhl = b"UHL10100000E0450000N03000300NA  U  ".ljust(47) + b"%04d%04d0" % (columns, rows)
    dsi = b"DSIU".ljust(59) + b"DTED0".ljust(82) + b"MSLWGS84"
    dsi = dsi.ljust(281) + b"%04d%04d" % (rows, columns) + partial
    values = field((columns, rows), "i2")
    records = [record(n, [int(v) for v in values[n]]) for n in range(columns)][:kept]
    return uhl.ljust(80) + dsi.ljust(648) + b"ACC".ljust(2700) + b"".join(records)


def seeds() -> Iterator[Seed]:
    """Yield DTED files."""
    for name, data in (
        ("cell", cell(21, 11)),
        ("partial", cell(7, 5, partial=b"60", kept=3)),
    ):
        fields = (
            Field(file="a.dt0", kind="text", label="UHL", offset=0, length=80, weight=4),
            Field(file="a.dt0", kind="text", label="DSI", offset=80, length=648),
            Field(file="a.dt0", kind="uint", label="counts", offset=HEADERS, length=8),
            Field(file="a.dt0", kind="data", label="data", offset=HEADERS,
                  length=len(data) - HEADERS),
        )  # fmt: skip
        yield Seed(
            name=f"dted/{name}", format="dted", files={"a.dt0": data}, entry="a.dt0", fields=fields
        )

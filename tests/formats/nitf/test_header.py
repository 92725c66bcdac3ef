import pytest

from anychunk.errors import FormatError, TruncatedError
from anychunk.formats.nitf.header import Field, Repeat, When, number, read

LAYOUT = (
    Field("NAME", 6),
    Field("COUNT", 2, "int"),
    Repeat(
        "ITEMS", lambda v: number(v, "COUNT", default=0), (Field("A", 1), Field("B", 2, "uint"))
    ),
    When(
        lambda v: v["NAME"] == "more",
        (Field("LENGTH", 1, "int"), Field("DATA", lambda v: v["LENGTH"], "bytes")),
    ),
)
BYTES = b"more  02x\x01\x02y\xff\xff3abc"
VALUES = {
    "NAME": "more", "COUNT": 2, "ITEMS": [{"A": "x", "B": 258}, {"A": "y", "B": 65535}],
    "LENGTH": 3, "DATA": b"abc",
}  # fmt: skip


def test_every_kind_of_entry():
    assert read(LAYOUT, BYTES) == (VALUES, len(BYTES))
    assert read(LAYOUT, b"ab" + BYTES + b"cd", 2) == (VALUES, 2 + len(BYTES))


def test_fields_that_are_not_there():
    values, end = read(LAYOUT, b"other 00rest")
    assert values == {"NAME": "other", "COUNT": 0, "ITEMS": []}
    assert end == 8


@pytest.mark.parametrize("length", range(len(BYTES)))
def test_every_cut_is_an_error(length):
    with pytest.raises(TruncatedError, match=rf"@\d+: [A-Z]+ .*\b{length}\b"):
        read(LAYOUT, BYTES[:length])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"  ", ""),
        (b"ab", "ab"),
        (b"+1", 1),
        (b"-1", -1),
        (b" 7", 7),
        (b"1_", "1_"),
        (b"\xb2 ", "\xb2"),
    ],
)
def test_numbers_that_are_none_stay_text(text, value):
    found, _ = read((Field("N", 2, "int"),), text)
    assert found == {"N": value}
    if isinstance(value, int):
        assert number(found, "N") == value
    else:
        with pytest.raises(FormatError, match=r"\bN\b") as caught:
            number(found, "N")
        assert repr(value) in str(caught.value)


def test_blank_numbers_may_have_a_default():
    assert number({"N": ""}, "N", default=4) == 4
    assert number({}, "N", default=4) == 4
    with pytest.raises(FormatError):
        number({"N": "x"}, "N", default=4)


def test_negative_widths_and_empty_records():
    with pytest.raises(TruncatedError):
        read((Field("N", lambda _: -1, "bytes"),), b"abc")
    with pytest.raises(FormatError, match=r"@0: .*\bR\b"):
        read((Repeat("R", lambda _: 10**12, (Field("N", 0),)),), b"abc")

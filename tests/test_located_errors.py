"""Errors that name the chunk they come from."""

import zlib

import pytest

from anychunk.errors import (
    AnychunkError,
    ChunkDecodeError,
    FormatError,
    InternalError,
    SourceError,
    TruncatedError,
    located,
)


def where():
    return "a.tif 0/0 chunk (1, 2)"


@pytest.mark.parametrize("kind", [FormatError, TruncatedError, SourceError, ChunkDecodeError])
@pytest.mark.parametrize("is_decoding", [True, False])
def test_our_errors_get_the_address_and_keep_their_class(kind, is_decoding):
    with pytest.raises(AnychunkError) as caught, located(where, is_decoding=is_decoding):
        raise kind("stream ends after 7 bytes")
    assert type(caught.value) is kind
    assert str(caught.value) == "a.tif 0/0 chunk (1, 2): stream ends after 7 bytes"
    assert isinstance(caught.value.__cause__, kind)


def test_the_address_is_given_once():
    with pytest.raises(FormatError) as caught, located(where), located(where):
        raise FormatError("bad marker")
    assert str(caught.value).count(where()) == 1


@pytest.mark.parametrize("error", [zlib.error("incorrect header check"), RuntimeError("libtiff")])
def test_errors_of_decoders_are_the_data_s_fault(error):
    with pytest.raises(ChunkDecodeError) as caught, located(where):
        # a library raises it: the innermost frame is not ours
        exec("raise error", {"__name__": "imagecodecs", "error": error})
    assert str(caught.value) == f"{where()}: {error}"
    assert caught.value.__cause__ is error


def test_an_error_without_a_message_is_named():
    with pytest.raises(ChunkDecodeError, match="OverflowError"), located(where):
        exec("raise OverflowError", {"__name__": "imagecodecs"})


@pytest.mark.defect
def test_a_defect_of_ours_is_not_blamed_on_the_data():
    with pytest.raises(InternalError) as caught, located(where):
        exec("{}['missing']", {"__name__": "anychunk.codecs.some"})
    assert where() in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("error", [FileNotFoundError("a.tif"), ValueError("foreign")])
def test_foreign_errors_while_fetching_stay_as_they_are(error):
    with pytest.raises(type(error)) as caught, located(where, is_decoding=False):
        raise error
    assert caught.value is error


@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError, SystemExit])
def test_what_is_not_the_data_s_fault_passes(kind):
    error = kind()
    with pytest.raises(kind) as caught, located(where):
        raise error
    assert caught.value is error


def test_the_address_is_computed_only_for_a_failure():
    def never():
        raise AssertionError

    with located(never):
        pass

import ctypes
import sys
from dataclasses import replace

import pytest

from anychunk.codecs import libraries
from tests.support.compiled import needs_compiled

pytestmark = needs_compiled


@pytest.fixture
def changed(monkeypatch):
    """Return what looks the functions of a kind up, with some fields of its library replaced."""

    def look_up(kind, **fields):
        library = replace(libraries.LIBRARIES[kind], **fields)
        monkeypatch.setitem(libraries.LIBRARIES, kind, library)
        return libraries.functions.__wrapped__(kind)

    return look_up


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only wheels for Linux are known to have them"
)
@pytest.mark.parametrize("kind", libraries.LIBRARIES)
def test_functions_are_found(kind):
    size = ctypes.sizeof(ctypes.c_void_p)
    assert len(libraries.functions(kind)) == size * len(libraries.LIBRARIES[kind].names)


@pytest.mark.parametrize("kind", libraries.LIBRARIES)
def test_a_missing_library_or_function_is_no_error(changed, kind):
    names = libraries.LIBRARIES[kind].names
    assert changed(kind, names=(*names[:-1], "no_such_function")) is None
    assert changed(kind, names=names, module="_no_such_module") is None


@pytest.mark.parametrize("kind", libraries.LIBRARIES)
def test_a_library_that_decodes_something_else_is_not_used(changed, kind):
    known = bytearray.fromhex(libraries.LIBRARIES[kind].known)
    known[-6] ^= 0xFF
    assert changed(kind, known=known.hex()) is None


@pytest.mark.parametrize("kind", [libraries.NONE, libraries.PACKBITS, libraries.LZW, libraries.FAX])
def test_some_kinds_need_no_library(kind):
    assert libraries.functions(kind) == b""


def test_a_function_of_another_interface_is_not_used(changed):
    """Libjpeg compares the version and size of its structure before it writes to it."""
    names = libraries.LIBRARIES[libraries.JPEG].names
    swapped = (names[0], "jpeg_CreateCompress", *names[2:])
    assert changed(libraries.JPEG, names=swapped) is None

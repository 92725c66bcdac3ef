"""Every exception class of anychunk.

Messages read `where: what was found, against what was expected; what to do`.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

OWN = ("anychunk", "anychunk_serve", "anychunk_plugins")
"""The packages whose defects are ours."""


class AnychunkError(Exception):
    """Base class of all errors raised by anychunk."""


class FormatError(AnychunkError, ValueError):
    """The file breaks the rules of its format."""


class TruncatedError(FormatError):
    """The file ends before what it announces."""


class UnsupportedError(AnychunkError, NotImplementedError):
    """The file is valid, but anychunk does not open it."""


class CodecConfigError(AnychunkError, ValueError):
    """The configuration of a codec is wrong."""


class CodecTypeError(CodecConfigError, TypeError):
    """A value in the configuration of a codec has the wrong type."""


class ChunkDecodeError(AnychunkError, ValueError):
    """One chunk cannot be decoded."""


class ChunkEncodeError(AnychunkError, ValueError):
    """One chunk cannot be encoded; nothing of it was written."""


class LimitError(AnychunkError, ValueError):
    """A file asks for more than `anychunk.limits` grants."""


class SourceError(AnychunkError, OSError):
    """Bytes could not be read, because of permissions, the network or a server."""


class SourceChangedError(AnychunkError, OSError):
    """The source has changed since it was indexed."""


class MissingFileError(AnychunkError, FileNotFoundError):
    """There is no such file, object or folder."""


class NoSuchImageError(AnychunkError, KeyError):
    """A file has no image, level or array of the requested name or number."""

    __str__ = Exception.__str__  # KeyError would show the message in quotes


class OptionError(AnychunkError, ValueError, TypeError):
    """The caller passed an option that does not exist, or with a value that is not accepted."""


class TargetExistsError(AnychunkError, FileExistsError):
    """There is something at the target already, and it is not replaced without `overwrite`."""

    def __init__(self, target: object, what: str = "already exists") -> None:
        self.target, self.what = target, what
        super().__init__(f"{target}: {what}; remove it, or pass overwrite=True (--overwrite)")

    def __reduce__(self) -> tuple[type["TargetExistsError"], tuple[object, str]]:
        return type(self), (self.target, self.what)


class FilesError(AnychunkError):
    """Some of many files could not be indexed; `failures` maps their urls to the reasons."""

    def __init__(self, failures: Mapping[str, str], count: int) -> None:
        self.failures, self.count = failures, count
        shown = "; ".join(list(failures.values())[:20])
        more = f"; and {len(failures) - 20} more" if len(failures) > 20 else ""
        super().__init__(f"{len(failures)} of {count} files could not be indexed: {shown}{more}")

    def __reduce__(self) -> tuple[type["FilesError"], tuple[Mapping[str, str], int]]:
        # exceptions are pickled by their message unless told otherwise
        return type(self), (self.failures, self.count)


class MissingDependencyError(AnychunkError, ImportError):
    """An optional package is not installed."""


class InternalError(AnychunkError):
    """A defect of anychunk itself, or of a plug-in, whatever the input was; please report it."""


class FormatWarning(UserWarning):
    """A file is opened although it breaks a rule that does not affect its samples."""


REPORT = "please report it with the file: https://github.com/anychunk/anychunk/issues"


def is_defect(error: BaseException, *, own: tuple[str, ...] = OWN) -> bool:
    """Return whether an unexpected exception comes from code of ours.

    Decoder libraries raise all kinds of exceptions on bad data: that is the data's fault. The same
    exception raised by code in the packages `own` is a defect there. The innermost frame decides;
    frames of numpy and of the standard library are skipped, because they fail only if they are
    called wrongly.
    """
    return _blamed(error) in own


@contextmanager
def untrusted(where: str, *, own: tuple[str, ...] = OWN) -> Iterator[None]:
    """Run code that interprets untrusted input, so that it raises only errors of ours.

    What the code raises on purpose is an `AnychunkError`. Any other exception, a panic of a library
    in Rust included, is blamed on the input if a library raised it, and is a defect if code in the
    packages `own` did.
    """
    try:
        yield
    except (AnychunkError, MemoryError, Warning):
        raise
    except BaseException as e:
        if not isinstance(e, Exception) and not is_panic(e):
            raise
        if is_defect(e, own=own):
            raise defect(e, where) from e
        text = " ".join(str(e).split())[:300]
        raise FormatError(f"{where}: {type(e).__name__}: {text}") from e


def is_panic(error: BaseException) -> bool:
    """Return whether a library in Rust has panicked; the class is no `Exception`, nor public."""
    return type(error).__module__ == "pyo3_runtime"


def _blamed(error: BaseException) -> str:
    """Return the package that an exception comes from."""
    blamed = ""
    frame = error.__traceback__
    while frame is not None:
        package = str(frame.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        if package != "numpy" and package not in sys.stdlib_module_names:
            blamed = package
        frame = frame.tb_next
    return blamed


def defect(error: BaseException, where: str) -> InternalError:
    """Return the error that reports a defect of ours or a plug-in's; raise it `from error`."""
    package = _blamed(error)
    whom = REPORT if package in (*OWN, "") else f"please report it to the authors of {package}"
    return InternalError(f"{where}: {type(error).__name__}: {error}; this is a defect, {whom}")

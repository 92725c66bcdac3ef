"""Every exception that anychunk raises on its own behalf.

Messages read `where: what was found, against what was expected; what to do`.
"""

import sys


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
    """One chunk does not decode."""


class ChunkEncodeError(AnychunkError, ValueError):
    """One chunk does not encode; nothing of it was written."""


class LimitError(AnychunkError, ValueError):
    """A file asks for more than `anychunk.limits` grants."""


class SourceError(AnychunkError, OSError):
    """Bytes could not be read: permission, network, server."""


class SourceChangedError(AnychunkError, OSError):
    """The source has changed since it was indexed."""


class NoSuchImageError(AnychunkError, KeyError):
    """A file has no image, level or array of the name or number that was asked for."""

    __str__ = Exception.__str__  # KeyError would show the message in quotes


class OptionError(AnychunkError, ValueError):
    """The caller passed an option with a value that is not accepted."""


class MissingDependencyError(AnychunkError, ImportError):
    """An optional package is not installed."""


class InternalError(AnychunkError):
    """A defect of anychunk itself, or of a plug-in, whatever the input was; please report it."""


class FormatWarning(UserWarning):
    """A file is opened although it breaks a rule that does not affect its samples."""


REPORT = "please report it with the file: https://github.com/anychunk/anychunk/issues"


def is_defect(error: BaseException, *, own: tuple[str, ...] = ("anychunk",)) -> bool:
    """Whether an exception that nobody meant to raise comes from code of ours.

    Decoder libraries raise all kinds of exceptions on bad data: that is the data's fault. The same
    exception raised by code in the packages `own` is a defect there. The innermost frame decides;
    frames of numpy and of the standard library are skipped, because they only do as they are told.
    """
    return _blamed(error) in own


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
    whom = (
        REPORT if package in ("anychunk", "") else f"please report it to the authors of {package}"
    )
    return InternalError(f"{where}: {type(error).__name__}: {error}; this is a defect, {whom}")

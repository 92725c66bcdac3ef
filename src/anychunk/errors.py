"""Every exception that anychunk raises on its own behalf.

Messages read `where: what was found, against what was expected; what to do`.
"""


class AnychunkError(Exception):
    """Root of all errors raised by anychunk."""


class FormatError(AnychunkError, ValueError):
    """The file breaks its own rules."""


class TruncatedError(FormatError):
    """The file ends before what it announces."""


class UnsupportedError(AnychunkError, NotImplementedError):
    """Valid, but not opened by us."""


class CodecConfigError(AnychunkError, ValueError):
    """The configuration of a codec is wrong."""


class CodecTypeError(CodecConfigError, TypeError):
    """A value in the configuration of a codec is of the wrong type."""


class ChunkDecodeError(AnychunkError, ValueError):
    """One chunk does not decode."""


class ChunkEncodeError(AnychunkError, ValueError):
    """One chunk does not encode; nothing of it was written."""


class LimitError(AnychunkError, ValueError):
    """A file asks for more than `anychunk.limits` grants."""


class SourceError(AnychunkError, OSError):
    """Bytes could not be read: permission, network, server."""


class SourceChangedError(AnychunkError, OSError):
    """The source is no longer the one that was indexed."""


class InternalError(AnychunkError):
    """A defect of anychunk itself, not of the input; please report it."""


class MissingDependencyError(AnychunkError, ImportError):
    """An optional package is absent."""


class FormatWarning(UserWarning):
    """A file is opened although it breaks a rule that does not touch its samples."""

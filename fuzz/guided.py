"""Guided by coverage: atheris mutates bytes and keeps those that reach new lines of a parser.

`make fuzz-native GUIDED=jpeg2000 MINUTES=5`. It runs in an environment of its own, because atheris
is not needed for anything else; the first inputs are the seeds, written by `python -m fuzz
--corpus FOLDER`. A finding is any exception that is not one of ours; atheris writes its bytes to a
file and stops.
"""

import sys
from importlib import import_module
from pathlib import Path

import atheris

TARGETS = ("tiff", "nitf", "jpeg2000", "jnrrd", "npy")

with atheris.instrument_imports(include=["anychunk"]):
    from anychunk.errors import AnychunkError, InternalError, is_defect
    from anychunk.io.buffers import MemorySource

    MODULES = {name: import_module(f"anychunk.formats.{name}") for name in TARGETS}


def parse(name: str, data: bytes) -> None:
    """Parse bytes; anything but an error of ours is a finding."""
    try:
        MODULES[name].parse(MemorySource(data, "memory:a"))
    except InternalError:
        raise
    except AnychunkError:
        pass
    except Exception as e:
        # libraries may raise anything on bad data; `anychunk.index` reports that as FormatError
        if is_defect(e):
            raise


def main() -> None:
    """Run atheris on the target that the first argument names; the others are libFuzzer's."""
    name = sys.argv[1]
    if name not in TARGETS:
        sys.exit(f"fuzz.guided: unknown target {name!r}, expected one of: {' '.join(TARGETS)}")
    corpus = Path(sys.argv[2])
    corpus.mkdir(parents=True, exist_ok=True)
    arguments = [sys.argv[0], *sys.argv[3:], "-timeout=20", "-rss_limit_mb=2048", str(corpus)]
    atheris.Setup(arguments, lambda data: parse(name, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()

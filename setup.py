"""The compiled module, which is optional: a build without a compiler succeeds, without it.

`ANYCHUNK_PURE=1` builds the wheel for every system, without the module. Everything else is in
pyproject.toml.
"""

import os
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

OLDEST = "cp312"
# a free-threaded interpreter has no stable ABI
IS_STABLE = not sysconfig.get_config_var("Py_GIL_DISABLED")

loops = Extension(
    "anychunk.native._loops",
    [path.as_posix() for path in sorted(Path("src/anychunk/native").glob("*.c"))],
    define_macros=[("Py_LIMITED_API", "0x030C0000")] if IS_STABLE else [],
    py_limited_api=IS_STABLE,
    optional=True,
)


class BuildExt(build_ext):
    """Notes whether the module was built."""

    def run(self) -> None:
        super().run()
        self.distribution.has_loops = any(map(_exists, self.get_outputs()))


def _exists(path: str) -> bool:
    return Path(path).exists()


class Wheel(bdist_wheel):
    """Tags the wheel: for every system if the module is not in it, else for one, from 3.12 on."""

    def get_tag(self) -> tuple[str, str, str]:
        _, abi, platform = super().get_tag()
        if not getattr(self.distribution, "has_loops", False):
            self.root_is_pure = True
            return "py3", "none", "any"
        return (OLDEST, "abi3", platform) if IS_STABLE else (self.python_tag, abi, platform)


is_pure = bool(os.environ.get("ANYCHUNK_PURE"))
setup(
    ext_modules=[] if is_pure else [loops], cmdclass={"build_ext": BuildExt, "bdist_wheel": Wheel}
)

"""Hide OpenJPEG's shared library from ctypes; `.ci/bare` puts this folder on PYTHONPATH.

`ctypes.util.find_library` runs /sbin/ldconfig by its full path, so an empty PATH does not hide
system libraries. Libraries inside wheels are loaded by the linker, not by ctypes.
"""

import sys


def hide(event: str, arguments: tuple[object, ...]) -> None:
    if event == "subprocess.Popen" and str(arguments[0]).endswith("/ldconfig"):
        raise FileNotFoundError(arguments[0])
    if event == "ctypes.dlopen" and "openjp2" in str(arguments[0]):
        raise OSError(f"{arguments[0]}: hidden by .ci/bare")


sys.addaudithook(hide)

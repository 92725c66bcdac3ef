"""A child process that lacks what another system lacks, and does everything with every format.

Run as `python -m tests.support.without_system_calls SYSTEM FOLDER`. The folder holds a file of each format,
and its pixels as `NAME.expected.npy`.
"""

import os
import shutil
import sys
import threading
import warnings
from pathlib import Path

from tests.support.patience import PATIENCE_S, wait_until

# These adapt to the real system when they are imported; anychunk is what is tested.
PRELOADED = "asyncio concurrent.futures logging multiprocessing numpy random selectors shutil socket ssl subprocess tempfile"

LACKS = {
    "macos": {
        "os": "RWF_NOWAIT RWF_HIPRI O_PATH O_TMPFILE sched_getaffinity posix_fadvise memfd_create copy_file_range",
        "select": "epoll",
    },
    "windows": {
        "os": """RWF_NOWAIT RWF_HIPRI O_PATH O_TMPFILE O_NOFOLLOW O_DIRECTORY O_NONBLOCK O_CLOEXEC O_SYNC
            pread preadv readv writev pwrite pwritev fchmod fchown chown lchown mkfifo fork forkpty
            register_at_fork sched_getaffinity posix_fadvise posix_fallocate memfd_create
            copy_file_range sendfile getuid geteuid getgid setsid killpg statvfs fstatvfs sysconf
            uname getloadavg splice""",
        "select": "epoll poll",
        "signal": """SIGHUP SIGALRM SIGUSR1 SIGUSR2 SIGCHLD SIGQUIT SIGKILL SIGPIPE SIGBUS alarm
            setitimer pthread_kill pthread_sigmask sigwait""",
        "mmap": "MADV_DONTNEED MADV_WILLNEED MADV_RANDOM MADV_SEQUENTIAL MAP_SHARED PROT_READ",
    },
}
MODULES = {
    "macos": [],
    "windows": ["fcntl", "resource", "termios", "tty", "pty", "grp", "pwd", "uvloop"],
}


def take_away(name: str) -> None:
    for module in PRELOADED.split():
        __import__(module)
    for module, attributes in LACKS[name].items():
        found = __import__(module)
        for attribute in attributes.split():
            if hasattr(found, attribute):
                delattr(found, attribute)
    if hasattr(os, "process_cpu_count"):  # since Python 3.13; elsewhere it is this function
        os.process_cpu_count = os.cpu_count
    for module in MODULES[name]:
        sys.modules[module] = None
    if name == "windows":
        os.supports_dir_fd.clear()
        shutil._use_fd_functions = False  # chosen at import, by what the real system has
    isdir = os.path.isdir
    os.path.isdir = lambda path: not str(path).startswith("/proc") and isdir(path)
    from anychunk.io import system

    system.IS_WINDOWS = name == "windows"
    assert not system.HAS_PROC
    assert (name != "windows") == system.HAS_HANDLES
    assert (name != "windows") == system.HAS_PREADV


def first_array(place):
    """Return the pixels of the first array of a file or url."""
    import numpy as np

    import anychunk
    from anychunk.model.index import ArrayIndex, walk
    from anychunk.zarr.array import open_path

    node = anychunk.index(place)
    path = next(path for path, found in walk(node) if isinstance(found, ArrayIndex))
    return np.asarray(open_path(node, path))


def converted(file: Path, suffix: str):
    import zarr

    import anychunk

    target = file.with_name(f"{file.stem}-{file.suffix[1:]}{suffix}")
    anychunk.convert(file, target)
    anychunk.convert(file, target, overwrite=True)
    if suffix != ".zarr":
        return first_array(target)
    return array_of(zarr.open_group(str(target), mode="r"))


def array_of(group):
    """Return the pixels of the first array in a Zarr group."""
    import numpy as np
    import zarr

    members = sorted(group.members(max_depth=None))
    return np.asarray(next(found for _, found in members if isinstance(found, zarr.Array)))


def saved(file: Path):
    import anychunk

    target = file.with_name(f"{file.name}.index.json")
    anychunk.index(file).save(target)
    return first_array(target)


def served(files: list[Path]) -> dict:
    """Return the pixels of files as a Zarr client reads them from `anychunk serve`."""
    import zarr
    from obstore.store import HTTPStore
    from zarr.storage import ObjectStore

    from anychunk_serve import run

    urls, servers, is_ready = [], [], threading.Event()

    def ready(url):
        urls.append(url)
        is_ready.set()

    arguments = ([str(file) for file in files], run.Settings(port=0))
    options = {"ready": ready, "verbose": False, "started": servers.append}
    thread = threading.Thread(target=run.serve, args=arguments, kwargs=options, daemon=True)
    thread.start()
    wait_until(lambda: is_ready.is_set() or not thread.is_alive())
    assert is_ready.is_set(), "the server ended"
    found = {}
    for file in files:
        place = f"{urls[0]}zarr/{file.name}"
        store = HTTPStore.from_url(place, client_options={"allow_http": True})
        found[file] = array_of(zarr.open_group(ObjectStore(store, read_only=True), mode="r"))
    servers[0].should_exit = True
    thread.join(PATIENCE_S)
    return found


def main(name: str, folder: str) -> None:
    # what is opened without an encoding is read differently on Windows
    warnings.filterwarnings("error", category=EncodingWarning, module=r"anychunk")
    take_away(name)
    import numpy as np

    files = sorted(p for p in Path(folder).iterdir() if not p.name.endswith(".expected.npy"))
    served_pixels = served(files)
    for file in files:
        expected = np.squeeze(np.load(file.with_name(f"{file.name}.expected.npy")))
        ways = {
            "read": first_array(file),
            "saved": saved(file),
            "served": served_pixels[file],
            **{suffix: converted(file, suffix) for suffix in (".zarr", ".n5", ".jnrrd")},
        }
        for way, pixels in ways.items():
            found = np.squeeze(pixels)
            if found.shape == expected.shape[::-1]:
                found = found.T  # a conversion to N5 may reverse the axes
            np.testing.assert_array_equal(found, expected, err_msg=f"{file} {way}")
        print(file.name, *ways)  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main(*sys.argv[1:])

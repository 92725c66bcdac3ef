"""Urls: which are local, and their paths."""

import os
from urllib.parse import quote, unquote, urlsplit

PLAIN = "/ !$&'()+,;=@:~"
"""What stands in a url as it is; `%`, `#` or `?` in an object's name would change or end it."""


def is_remote(url: str) -> bool:
    """Whether `url` has a scheme other than file. One letter before the colon is a drive."""
    scheme = urlsplit(url).scheme
    return len(scheme) > 1 and scheme != "file"


def local_path(url: str) -> str:
    """Give the path of a local url."""
    return unquote(urlsplit(url).path) if url.startswith("file:") else url


def below(folder: str, name: str) -> str:
    """Give the url of the object of this name in a folder; a path, where the folder is one."""
    is_url = is_remote(folder) or folder.startswith("file:")
    return f"{folder}/{quote(name, safe=PLAIN) if is_url else name}"


def absolute(url: str) -> str:
    """Give a local url as an absolute path; remote ones are as they are."""
    return url if is_remote(url) else os.path.abspath(local_path(url))  # noqa: PTH100 - keeps links

"""Urls: which are local, their paths, and names below them."""

import os
from urllib.parse import quote, unquote, urlsplit

PLAIN = "/ !$&'()+,;=@:~"
"""Characters that need no escape in a url's path; `%`, `#` and `?` in a name do."""


def is_remote(url: str) -> bool:
    """Return whether `url` has a scheme other than file; a single letter is a Windows drive."""
    scheme = urlsplit(url).scheme
    return len(scheme) > 1 and scheme != "file"


def local_path(url: str) -> str:
    """Return the path of a local url."""
    return unquote(urlsplit(url).path) if url.startswith("file:") else url


def below(folder: str, name: str) -> str:
    """Return the url of the object `name` in a folder; a path if the folder is a path."""
    is_url = is_remote(folder) or folder.startswith("file:")
    return f"{folder}/{quote(name, safe=PLAIN) if is_url else name}"


def absolute(url: str) -> str:
    """Return a local url as an absolute path, a remote one unchanged."""
    return url if is_remote(url) else os.path.abspath(local_path(url))  # noqa: PTH100 - keeps links

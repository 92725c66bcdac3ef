"""Urls: which are local, and their paths."""

from urllib.parse import unquote, urlsplit


def is_remote(url: str) -> bool:
    """Whether `url` has a scheme other than file. One letter before the colon is a drive."""
    scheme = urlsplit(url).scheme
    return len(scheme) > 1 and scheme != "file"


def local_path(url: str) -> str:
    """Give the path of a local url."""
    return unquote(urlsplit(url).path) if url.startswith("file:") else url

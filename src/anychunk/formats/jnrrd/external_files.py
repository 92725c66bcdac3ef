"""Files that a header refers to: data files and external tiles, resolved against its folder.

Spec: JNRRD Tiling Extension 1.0.0 section 6; docs/formats/jnrrd.md.
"""

import posixpath
from dataclasses import dataclass, field

from anychunk.errors import FormatError
from anychunk.io.inside import resolve
from anychunk.io.source import is_remote, local_path
from anychunk.io.system import is_link, is_special


@dataclass
class References:
    """Resolves the names in a header, which must not leave its folder unless allowed.

    A header is untrusted, and may name a million tiles: each directory is resolved only once.
    """

    folder: str
    """The folder of the header."""
    base_dir: str = ""
    """`tile:base_dir`, relative to `folder`."""
    allow: tuple[str, ...] = ()
    """Folders outside `folder` that the caller allows."""
    bounds: tuple[str, ...] = ()
    """The folders that the header itself had to lie in."""
    _folders: dict[str, str] = field(default_factory=dict)

    @property
    def roots(self) -> tuple[str, ...]:
        """The local folders that tiles may be in, links resolved."""
        allowed = (local_path(place) for place in self.allow if not is_remote(place))
        return () if is_remote(self.folder) else (*(self.bounds or (self.folder,)), *allowed)

    def url(self, name: str) -> str:
        """Return the url of a file by its name in the header.

        Raises:
            FormatError: The name is empty, or leaves the allowed folders.
        """
        if not name:
            raise FormatError(f"{self.folder}: the name of a file is empty")
        joined = name if is_remote(name) else posixpath.join(self.base_dir, name)
        parent, _, last = joined.rpartition("/")
        is_absolute = is_remote(joined) or joined.startswith("file:") or joined == f"/{last}"
        if is_absolute or last in ("", ".", ".."):
            return resolve(self.folder, joined, allow=self.allow)
        if parent not in self._folders:
            self._folders[parent] = resolve(self.folder, parent or ".", allow=self.allow)
        found = f"{self._folders[parent]}/{last}"
        # only a link can lead out of a folder that is inside, or a name that servers decode
        if any(c in last for c in "\0\\%") or is_special(last) or is_link(found):
            return resolve(self.folder, joined, allow=self.allow)
        return found

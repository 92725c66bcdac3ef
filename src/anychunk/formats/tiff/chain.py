"""The chain of directories of a TIFF file, also where it runs in a circle.

tifffile follows a circle for ever, or leaves out pages that are on it; each directory counts once.
"""

import tifffile


class Chain(tifffile.TiffPages):  # type: ignore[misc] # final, with no other place for this
    """Pages up to the directory that leads back to one that was there before."""

    def _seek(self, index: int, /) -> int:
        seen: set[int] = self.__dict__.setdefault("_seen", set())
        while not self._indexed and not 0 <= index < len(self._offsets):
            seen.update(self._offsets[len(seen) :])
            count = len(self._offsets)
            try:
                super()._seek(count)  # one more
            except IndexError:
                break
            if self._offsets[-1] in seen:
                del self._offsets[-1]
                self._indexed = True
        return super()._seek(index)

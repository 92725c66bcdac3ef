"""Guess where a parser will read next, from where it has read so far.

Parsers follow chains: every directory of a TIFF file, or header of a tile-part of JPEG 2000, says
where the next one is. One request after the other would take the latency of as many requests as
there are links. Links are often about equally far apart, so the next ones can be asked for before
their places are known:

- links that lie close together are read with what is between them, in few long requests, by the
  same rule by which ranges of chunks are coalesced (`limits.coalesce_gap`);
- links that lie far apart at equal distances are read in short requests, many at a time;
- links that lie far apart at other distances are read one by one, in short requests.
"""

from dataclasses import dataclass, field

from anychunk import limits

SHORT = 8 * limits.KIB
"""The length of a request for a link that lies far from the others."""
FIRST, GROWTH = 32, 8
"""How many links the first long request covers, and how much longer each following one is."""
GUESSES = 4
"""How many links are guessed at first; each time that the guesses were right, four times more."""


@dataclass
class Ahead:
    """What to read now, from the place that the parser wants."""

    length: int = 0
    """Of one long request; 0: as usual."""
    places: tuple[int, ...] = ()
    """Of several short requests, the first at the wanted place."""


@dataclass
class Chain:
    """The last places that had to be requested, and how well the next ones were guessed."""

    places: list[int] = field(default_factory=lambda: [0])
    """The head of the object is always read."""
    step: int = 0
    """The distance between links, while they are read in long requests."""
    end: int = 0
    """Where the last long request ended, or the last guess was; 0: there was none."""
    length: int = 0
    guesses: int = GUESSES

    def after(self, place: int) -> Ahead:
        """Return what to read if `place` has to be requested now."""
        if self.length and self.end <= place <= self.end + 2 * self.step:
            return self._long(place, self.length * GROWTH)
        self.places = [*self.places[-2:], place]
        steps = [b - a for a, b in zip(self.places, self.places[1:], strict=False)]
        gap = limits.get().coalesce_gap
        if len(steps) == 2 and min(steps) > gap and steps[0] == steps[1]:
            return self._guess(place, steps[1])
        self.length, self.end, self.guesses = 0, 0, GUESSES
        if len(steps) == 2 and min(steps) > gap:
            return Ahead(places=(place,))
        if len(steps) == 2 and 0 < max(steps) <= min(gap, 2 * min(steps)):
            self.step = max(steps)
            return self._long(place, FIRST * self.step)
        return Ahead()

    def _long(self, place: int, length: int) -> Ahead:
        self.length = min(length, limits.get().coalesce_cap)
        self.end = place + self.length
        return Ahead(length=self.length)

    def _guess(self, place: int, step: int) -> Ahead:
        if self.end:
            self.guesses = 4 * self.guesses if place == self.end + step else GUESSES
        places = tuple(place + n * step for n in range(self.guesses))
        self.end = places[-1]
        self.places = [self.end - step, self.end]
        return Ahead(places=places)

"""Names of images, levels and bands of the file on a command line, for the shell to complete.

Reads the structure of local files only, without zarr: a shell waits for the answer.
"""

import typer

from anychunk.cli.completion import Offers
from anychunk.cli.printing import times
from anychunk.errors import AnychunkError, NoSuchImageError
from anychunk.indexing import index_url
from anychunk.io.source import is_remote
from anychunk.metadata.reading import meaning_of
from anychunk.model import images as im
from anychunk.model.images import Image
from anychunk.model.index import ArrayIndex, Node, find

MOST = 200
"""Words that are offered at most."""


def images_of(ctx: typer.Context, incomplete: str) -> Offers:
    """Return the numbers and the paths of images."""
    found = [
        (node, image, number)
        for node, listed in opened(ctx)
        for number, image in enumerate(listed[:MOST])
    ]
    offers = []
    for node, image, number in found:
        about = f"{image.path or '/'}: {times(shape_of(node, image.levels[0]))}"
        offers += [(str(number), about)]
        if image.path and image.path != str(number):
            offers += [(image.path, about)]
    return starting(offers, incomplete)


def levels_of(ctx: typer.Context, incomplete: str) -> Offers:
    """Return the numbers of the levels of the image on the line, or of the first."""
    offers = []
    for node, image in chosen(ctx):
        for number, path in enumerate(image.levels[:MOST]):
            about = times(shape_of(node, path))
            offers.append((str(number), about))
            name = image.level_names[number]
            if name != str(number):
                offers.append((name, about))
    return starting(offers, incomplete)


def bands_of(ctx: typer.Context, incomplete: str) -> Offers:
    """Return the numbers and names of bands; what is before the last comma is kept."""
    before, comma, last = incomplete.rpartition(",")
    offers: Offers = []
    for node, image in chosen(ctx):
        names = image.names
        count = shape_of(node, image.levels[0])[names.index("c")] if "c" in names else 1
        meaning = meaning_of(node, image)
        for number in range(min(count, MOST)):
            name = meaning.band(number).name
            offers.append((str(number), name or ""))
            if name and "," not in name:
                offers.append((name, f"band {number}"))
    return [(f"{before}{comma}{word}", about) for word, about in starting(offers, last)]


def starting(offers: Offers, incomplete: str) -> Offers:
    """Return the words that begin as the incomplete one does, each once."""
    found = {word: about for word, about in reversed(offers) if word.startswith(incomplete)}
    return list(found.items())[::-1][:MOST]


def chosen(ctx: typer.Context) -> list[tuple[Node, Image]]:
    """Return the image that the line names, or the first, of each file."""
    found = []
    for node, listed in opened(ctx):
        try:
            found.append((node, im.chosen(listed, ctx.params.get("image") or 0)))
        except NoSuchImageError:
            continue
    return found


def opened(ctx: typer.Context) -> list[tuple[Node, list[Image]]]:
    """Return the index and the images of the first local file on the line that opens."""
    given = ctx.params
    files = [given.get("file"), *(given.get("files") or ()), *(given.get("paths") or ())]
    files += ctx.args  # what is left where the line ends with an option without its value
    for file in files:
        if not isinstance(file, str) or is_remote(file):
            continue
        try:
            node = index_url(file)
        except (AnychunkError, OSError, ValueError):
            continue  # nothing is offered, and the command will say why
        return [(node, list(im.images(node)))]
    return []


def shape_of(node: Node, path: str) -> list[int]:
    """Return the shape of an array of an index."""
    array = find(node, path)
    return list(array.shape) if isinstance(array, ArrayIndex) else []

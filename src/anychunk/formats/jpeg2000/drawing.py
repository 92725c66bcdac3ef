"""How a codestream is drawn, by the boxes of a JP2 file: colour space, palette, channels.

Spec: T.800 I.5.3.3 to I.5.3.6 (colr, pclr, cmap, cdef).
"""

from dataclasses import dataclass

from anychunk.codestream.jpeg2000 import MainHeader, Siz
from anychunk.formats.jpeg2000.boxes import Header
from anychunk.metadata.meaning import Alpha, Band, Display
from anychunk.model.index import Json

ANY = 65535
"""Value of cdef: the type of a channel is not known, or it belongs to no colour."""
OPACITY = {"opacity": False, "premultiplied opacity": True}
"""Types of channels that hold opacity; whether colours are multiplied by it."""
MODELS = {"sRGB": "rgb", "greyscale": "grey", "sYCC": "ycbcr", "CMYK": "cmyk", "bilevel": "grey"}
"""Models of the enumerated colour spaces."""
COUNTS = {"grey": 1, "rgb": 3, "ycbcr": 3, "cmyk": 4}
"""Number of colour channels of each model."""
NAMES = {
    "grey": ("Gray",),
    "rgb": ("Red", "Green", "Blue"),
    "ycbcr": ("YCbCr_Y", "YCbCr_Cb", "YCbCr_Cr"),
    "cmyk": ("Cyan", "Magenta", "Yellow", "Black"),
}
"""GDAL's names of the colours of each model."""
FEW_BITS = 8
"""Samples of up to as many bits are drawn over their whole range."""


@dataclass(frozen=True)
class _Source:
    """Where a channel comes from."""

    component: int
    column: int | None = None
    """Column of the palette that the component's samples are looked up in."""


@dataclass(frozen=True)
class _Channels:
    colours: tuple[_Source, ...]
    """The sources of the colours, in the order of the colour space."""
    alpha: _Source | None = None
    is_associated: bool = False


def image_display(stream: MainHeader, header: Header) -> Display:
    """Return how an image is drawn.

    Parameters:
        stream: main header of the codestream.
        header: what JP2 boxes state about its components.
    """
    siz = stream.siz
    channels = _channels(siz, header)
    model = _model(stream, header, channels)
    shown = channels.colours[: COUNTS.get(model, 0)]
    if header.palette is not None and shown and all(s.column is not None for s in shown):
        table = _palette(header.palette, shown, channels.alpha)
        return Display(model="palette", bands=[shown[0].component], palette=table)
    if len(shown) != COUNTS.get(model, -1):
        return _with_alpha(Display(model="channels"), siz, channels)
    bands = [source.component for source in shown]
    drawn = Display(model=model, bands=bands)
    ranges = [_range(siz, band) for band in bands]
    if all(siz.components[band].depth <= FEW_BITS for band in bands):
        drawn["range"] = ranges[:1] if len({tuple(r) for r in ranges}) == 1 else ranges
    return _with_alpha(drawn, siz, channels)


def image_bands(stream: MainHeader, header: Header) -> tuple[Band, ...]:
    """Return the bands, with their colours as far as boxes state them; empty if they do not."""
    if not header.colors and header.channels is None:
        return ()  # a bare codestream
    display = image_display(stream, header)
    names: dict[int, str] = {}
    if display["model"] == "palette":
        names[display["bands"][0]] = "Palette"
    else:
        names |= dict(zip(display.get("bands", []), NAMES.get(display["model"], ()), strict=False))
    if "alpha" in display:
        names[display["alpha"]["band"]] = "Alpha"
    return tuple(Band(interpretation=names.get(n)) for n in range(len(stream.siz.components)))


def _channels(siz: Siz, header: Header) -> _Channels:
    """Return the sources of colours and opacity: the components, unless boxes say otherwise."""
    count = len(siz.components)
    sources = [_Source(number) for number in range(count)]
    if header.palette is not None and header.mapping is not None:
        columns = len(header.palette["depths"])
        mapped = [_Source(entry["component"], entry["column"]) for entry in header.mapping]
        sources = [s for s in mapped if s.component < count and (s.column or 0) < columns]
    if header.channels is None:
        return _Channels(tuple(sources))
    colours: dict[int, _Source] = {}
    alpha, is_associated = None, False
    for entry in header.channels:
        number, association = entry["channel"], entry["association"]
        if number >= len(sources):
            continue
        if entry["type"] == "color" and 0 < association < ANY:
            colours.setdefault(association, sources[number])
        elif entry["type"] in OPACITY and alpha is None:
            alpha, is_associated = sources[number], OPACITY[entry["type"]]
    found = tuple(colours[place] for place in sorted(colours))
    return _Channels(found, alpha, is_associated)


def _model(stream: MainHeader, header: Header, channels: _Channels) -> str:
    """Return the model that the first colour space with one has, or that the components have."""
    siz, count = stream.siz, len(channels.colours)
    if count == 3 and _has_coarse_chroma(siz):
        return "ycbcr"  # as OpenJPEG takes it, also where a box says sRGB
    for color in header.colors:
        if (model := MODELS.get(str(color.get("space")))) is not None:
            # without channel definitions, nothing says which of several components is the grey one
            is_clear = model != "grey" or count == 1 or header.palette is not None
            return model if is_clear else "channels"
    if count != 3:
        return "grey" if count == 1 else "channels"
    # the codestream's own transform (T.800 annex G) makes red, green and blue of three components
    is_colour = stream.cod.is_transformed or siz.components[0].depth <= FEW_BITS
    return "rgb" if is_colour or header.colors else "channels"


def _has_coarse_chroma(siz: Siz) -> bool:
    if len(siz.components) < 3:
        return False
    first, second, third = siz.components[:3]
    same = (second.dx, second.dy) == (third.dx, third.dy)
    return same and (second.dx > first.dx or second.dy > first.dy)


def _range(siz: Siz, band: int) -> list[float]:
    component = siz.components[band]
    if component.is_signed:
        half = 1 << component.depth - 1
        return [-half, half - 1]
    return [0, (1 << component.depth) - 1]


def _with_alpha(drawn: Display, siz: Siz, channels: _Channels) -> Display:
    source = channels.alpha
    if source is not None and source.column is None:
        drawn["alpha"] = Alpha(
            band=source.component,
            associated=channels.is_associated,
            range=_range(siz, source.component),
        )
    return drawn


def _palette(
    table: dict[str, Json], shown: tuple[_Source, ...], alpha: _Source | None
) -> dict[str, Json]:
    """Return the colours of a palette as red, green, blue and alpha of 8 bits."""
    depths = table["depths"]
    columns = [source.column or 0 for source in shown]
    columns = columns * 3 if len(columns) == 1 else columns[:3]
    opacity = alpha.column if alpha is not None else None

    def entry(row: list[int], column: int) -> int:
        top = (1 << depths[column]) - 1
        return int((row[column] & top) * 255 / top + 0.5)

    colours = [
        [*(entry(row, c) for c in columns), 255 if opacity is None else entry(row, opacity)]
        for row in table["entries"]
    ]
    return {"first": 0, "colors": colours}

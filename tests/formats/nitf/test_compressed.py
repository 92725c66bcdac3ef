import io
import struct

import imagecodecs
import numpy as np
import pytest
from PIL import Image as PillowImage

import anychunk
from anychunk.codecs.jpeg2000 import tiny_tiles
from anychunk.errors import AnychunkError, FormatError, UnsupportedError
from tests.support.gdal import gdal_shown, gdal_write, without_band
from tests.support.nitf_writer import Image, fax, image_data, nitf, tre, vq_header, vq_image

RNG = np.random.default_rng(6)


def smooth(shape, bits=8):
    """A smooth field and some noise, over the full range of `bits`."""
    bands, rows, columns = shape
    b, y, x = np.mgrid[:bands, :rows, :columns]
    field = np.sin((x + 9 * b) / 11) + np.cos((y - 5 * b) / 8) + RNG.normal(0, 0.05, shape)
    scaled = (field - field.min()) / np.ptp(field) * ((1 << bits) - 1)
    return scaled.astype("u1" if bits <= 8 else "u2")


def save(folder, image, **options):
    file = folder / "a.ntf"
    file.write_bytes(nitf([image], **options))
    return file


def read(folder, image, **options):
    return anychunk.open(save(folder, image, **options))["0/0/image"][...]


@pytest.mark.parametrize("ic", ["C3", "M3"])
@pytest.mark.parametrize("bands", [1, 3])
@pytest.mark.parametrize("block", [64, 96, 200])
def test_jpeg_equals_gdal(tmp_path, ic, bands, block):
    file = tmp_path / "a.ntf"
    gdal_write(
        file, smooth((bands, 200, 300)), driver="NITF", IC=ic, BLOCKXSIZE=block, BLOCKYSIZE=block,
        QUALITY=90,
    )  # fmt: skip
    found = anychunk.open(file)["0/0/image"]
    assert found.chunks[-2:] == (block, block)
    assert found.chunks[:-2] == ((bands,) if bands > 1 else ())
    np.testing.assert_array_equal(found[...], gdal_shown(file))


@pytest.mark.parametrize("restart", [0, 4])
@pytest.mark.parametrize("imode", "BSP")
def test_bands_in_streams_of_their_own(tmp_path, imode, restart):
    values = smooth((3, 48, 40))
    streams = {}
    expected = np.empty_like(values)
    for down in range(3):
        for across in range(2):
            block = np.zeros((3, 16, 32), "u1")
            part = values[:, down * 16 : down * 16 + 16, across * 32 : across * 32 + 32]
            block[:, :, : part.shape[2]] = part
            made = [jpeg(band, restart) for band in block]
            for b, data in enumerate(made):
                streams[b, down, across] = data
                part = imagecodecs.jpeg8_decode(data)
                width = min(32, 40 - across * 32)
                expected[b, down * 16 : down * 16 + 16, across * 32 : across * 32 + width] = part[
                    :, :width
                ]
            streams[down, across] = b"".join(made)
    image = Image(values, ic="C3", imode=imode, block=(16, 32))
    image.payload = image_data(image, streams)
    np.testing.assert_array_equal(read(tmp_path, image), without_band(expected))
    masked = Image(values, ic="M3", imode=imode, block=(16, 32), pad=b"\x05")
    masked.absent = {(1, 1)} if imode != "S" else {(0, 1, 1)}
    masked.payload = image_data(masked, streams)
    expected[0 if imode == "S" else slice(None), 16:32, 32:] = 5
    np.testing.assert_array_equal(read(tmp_path, masked), expected)


@pytest.mark.parametrize("fill", [1, 3, 200])
@pytest.mark.parametrize(("ic", "block"), [("C3", (32, 48)), ("C3", (16, 16)), ("M3", (16, 16))])
def test_fill_before_jpeg_streams(tmp_path, ic, block, fill):
    """T.81 B.1.1.2: any marker may be preceded by bytes of 0xFF, also SOI."""
    values = smooth((1, 32, 48))
    height, width = block
    streams, expected = {}, np.empty_like(values)
    for y in range(0, 32, height):
        for x in range(0, 48, width):
            plain = jpeg(values[0, y : y + height, x : x + width])
            expected[0, y : y + height, x : x + width] = imagecodecs.jpeg8_decode(plain)
            streams[y // height, x // width] = (
                b"\xff" * (fill if fill < 64 or not x + y else 9) + plain
            )
    image = Image(values, ic=ic, block=block)
    image.payload = image_data(image, streams)
    np.testing.assert_array_equal(read(tmp_path, image), without_band(expected))


def jpeg(band, restart=0):
    out = io.BytesIO()
    options = {"restart_marker_blocks": restart} if restart else {}
    PillowImage.fromarray(band).save(out, "JPEG", quality=92, **options)
    return out.getvalue()


@pytest.mark.parametrize("ic", ["C5", "M5"])
@pytest.mark.parametrize(("bands", "bits"), [(1, 8), (3, 8), (1, 12), (1, 16), (1, 2)])
def test_lossless_jpeg(tmp_path, ic, bands, bits):
    values = smooth((bands, 40, 52), bits)
    streams = {}
    for down in range(2):
        for across in range(2):
            block = values[:, down * 20 : down * 20 + 20, across * 26 : across * 26 + 26]
            pixels = np.ascontiguousarray(np.moveaxis(block, 0, -1)).squeeze()
            streams[down, across] = imagecodecs.jpeg8_encode(
                pixels, lossless=True, predictor=2, bitspersample=bits
            )
    nbpp = 8 if bits <= 8 else 16
    image = Image(values, ic=ic, imode="P", block=(20, 26), nbpp=nbpp, abpp=bits)
    image.payload = image_data(image, streams)
    np.testing.assert_array_equal(read(tmp_path, image), without_band(values))


def test_downsampled_jpeg(tmp_path):
    small = smooth((1, 30, 40))[0]
    stream = jpeg(small)
    image = Image(smooth((1, 120, 160)), ic="I1", payload=stream)
    found = read(tmp_path, image)
    assert found.shape == (30, 40)
    np.testing.assert_array_equal(found, imagecodecs.jpeg8_decode(stream))


@pytest.mark.parametrize("level", [1, 2, 3, 4, 5])
def test_default_tables(tmp_path, level):
    """A stream whose tables are those of MIL-STD-188-198A may leave them out."""
    from anychunk.codestream.jpeg_scan import _Q_TABLES

    zigzag = [int(v) for v in _Q_TABLES[level].split()]
    natural = np.empty(64, int)
    natural[ZIGZAG] = zigzag
    out = io.BytesIO()
    PillowImage.fromarray(smooth((1, 64, 64))[0]).save(out, "JPEG", qtables=[natural.tolist()])
    whole = out.getvalue()
    kept, at = [b"\xff\xd8", app6(level)], 2
    while whole[at + 1] != 0xDA:
        length = 2 + int.from_bytes(whole[at + 2 : at + 4], "big")
        if whole[at + 1] not in (0xDB, 0xC4, 0xE0):
            kept.append(whole[at : at + length])
        at += length
    stream = b"".join(kept) + whole[at:]
    assert len(stream) < len(whole)
    image = Image(smooth((1, 64, 64)), ic="C3", comrat=f"0{level}.0", payload=stream)
    np.testing.assert_array_equal(read(tmp_path, image), imagecodecs.jpeg8_decode(whole))


ZIGZAG = np.asarray(
    sorted(range(64), key=lambda i: (i // 8 + i % 8, (i // 8 if (i // 8 + i % 8) % 2 else i % 8)))
)


def app6(level):
    body = b"NITF\0\x02\x00B" + struct.pack(">HH", 1, 1) + bytes([0, 8, 0, 1, level, 0, 8, 0, 0, 0])
    return b"\xff\xe6" + struct.pack(">H", len(body) + 2) + body


@pytest.mark.parametrize("tiles", [64, 100, 256])
@pytest.mark.parametrize(("bands", "dtype"), [(1, "u1"), (3, "u1"), (2, "u2")])
def test_jpeg2000_equals_gdal(tmp_path, tiles, bands, dtype):
    values = smooth((bands, 200, 260), 8 if dtype == "u1" else 12)
    file = tmp_path / "a.ntf"
    gdal_write(
        file, values, driver="NITF", IC="C8", BLOCKXSIZE=tiles, BLOCKYSIZE=tiles, QUALITY=100,
    )  # fmt: skip
    group = anychunk.open(file)["0"]
    found = group["0/image"][...]
    np.testing.assert_array_equal(found, gdal_shown(file))
    # GDAL gives small tiles no lower resolution
    levels = sorted(group.group_keys())
    assert len(levels) > 1 or tiles < 256
    shape = (100, 130) if bands == 1 else (bands, 100, 130)
    assert [group[level]["image"].shape for level in levels[1:2]] == [shape] * (len(levels) > 1)


@pytest.mark.parametrize("has_tiny_tiles", [False, True])
def test_masked_jpeg2000(tmp_path, has_tiny_tiles, monkeypatch):
    if not has_tiny_tiles:  # those are decoded together
        monkeypatch.setattr(tiny_tiles, "TINY_PIXELS", 0)
    values = smooth((1, 64, 96))
    gdal_write(
        tmp_path / "a.j2k", values, driver="JP2OpenJPEG", CODEC="J2K", QUALITY=100, REVERSIBLE="YES",
        BLOCKXSIZE=32, BLOCKYSIZE=32,
    )  # fmt: skip
    stream = (tmp_path / "a.j2k").read_bytes()
    head = 10 + 1 + 4 * 6
    table = struct.pack(">6I", 0, 0xFFFFFFFF, 0, 0, 0, 0)
    mask = struct.pack(">IHHH", head, 4, 0, 8) + b"\x09" + table
    image = Image(values, ic="M8", block=(32, 32), comrat="N012", payload=mask + stream)
    expected = values.copy()
    expected[:, :32, 32:64] = 9
    np.testing.assert_array_equal(read(tmp_path, image), without_band(expected))


def test_jp2_file_as_image_data(tmp_path):
    values = smooth((1, 64, 64))
    jp2 = imagecodecs.jpeg2k_encode(values[0], level=0, reversible=True, codecformat="JP2")
    image = Image(values, ic="C8", comrat="N012", payload=jp2)
    np.testing.assert_array_equal(read(tmp_path, image), without_band(values))


def test_codestream_must_fit_the_subheader(tmp_path):
    stream = imagecodecs.jpeg2k_encode(smooth((1, 64, 64))[0], level=0, codecformat="J2K")
    image = Image(smooth((1, 64, 65)), ic="C8", comrat="N012", payload=stream)
    with pytest.raises(FormatError, match="image 0: .*\\b64 x 64\\b.*\\b64 x 65\\b"):
        read(tmp_path, image)


@pytest.mark.parametrize(
    ("options", "comrat"), [(0, "1D  "), (1, "2DS "), (1, "2DH "), (4, "1D  "), (5, "2DS ")]
)
def test_bilevel(tmp_path, options, comrat):
    pixels = (smooth((1, 60, 216)) > 128).astype("u1")
    image = Image(
        pixels, ic="C1", nbpp=1, pvtype="B", comrat=comrat, payload=fax(pixels[0], options)
    )
    file = save(tmp_path, image)
    found = anychunk.open(file)["0/0/image"][...]
    np.testing.assert_array_equal(found, pixels[0])
    np.testing.assert_array_equal(found, gdal_shown(file))


def test_masked_bilevel(tmp_path):
    pixels = (smooth((1, 64, 64)) > 128).astype("u1")
    blocks = {
        (i, j): fax(pixels[0, 32 * i : 32 * i + 32, 32 * j : 32 * j + 32], 0)
        for i in (0, 1)
        for j in (0, 1)
    }
    image = Image(
        pixels, ic="M1", nbpp=1, pvtype="B", comrat="1D  ", block=(32, 32), absent={(0, 1)}
    )
    image.payload = image_data(image, blocks)
    expected = pixels.copy()
    expected[:, :32, 32:] = 0
    np.testing.assert_array_equal(read(tmp_path, image), without_band(expected))
    unmasked = Image(
        pixels, ic="C1", nbpp=1, pvtype="B", comrat="1D  ", block=(32, 32), payload=image.payload
    )
    with pytest.raises(UnsupportedError, match="image 0: .*C1.*2 x 2 blocks"):
        read(tmp_path, unmasked)


def test_vector_quantisation(tmp_path):
    tables, values, data = vq_image(2)
    image = Image(values, ic="C4", comrat="0.75", block=(256, 256))
    image.payload = vq_header(tables) + b"".join(data)
    np.testing.assert_array_equal(read(tmp_path, image), without_band(values))


@pytest.mark.parametrize("late", [b"", b"\0"])
def test_masked_vector_quantisation(tmp_path, late):
    """Some CADRG frames have their table of blocks a byte late."""
    tables, values, data = vq_image(2)
    header = vq_header(tables)
    table = late + struct.pack(">4I", 0, 0xFFFFFFFF, 6144, 2 * 6144)
    mask = struct.pack(">IHHH", 11 + len(table) + len(header), 4, 0, 8) + b"\xd8" + table
    image = Image(values, ic="M4", comrat="0.75", block=(256, 256))
    image.payload = mask + header + data[0] + data[2] + data[3]
    expected = values.copy()
    expected[:, :256, 256:] = 216
    np.testing.assert_array_equal(read(tmp_path, image), without_band(expected))


def rpf(offset, header, tables_at, codes_at, mask_at=None):
    """The location table of an RPF frame (MIL-STD-2411), as an RPFIMG extension."""
    rows = [(132, header, tables_at), (140, 0, codes_at)]
    if mask_at is not None:
        rows.append((138, 0, mask_at))
    table = b"".join(struct.pack(">HII", *row) for row in rows)
    return tre("RPFIMG", struct.pack(">HIHHI", 14 + len(table), 14, len(rows), 10, 0) + table)


@pytest.mark.parametrize("version", ["NITF02.00", "NITF02.10"])
@pytest.mark.parametrize("has_mask", [False, True])
def test_cadrg_equals_gdal(tmp_path, version, has_mask):
    tables, values, data = vq_image(6)
    lut = tuple(bytes(RNG.integers(0, 256, 216, "u1")) for _ in range(3))
    header = vq_header(tables)
    mask = b""
    expected = values.copy()
    if has_mask:
        offsets = [0xFFFFFFFF if i in (3, 20) else 6144 * i for i in range(36)]
        mask = struct.pack(">HHH", 4, 0, 0) + b"".join(o.to_bytes(4, "big") for o in offsets)
        expected[:, :256, 768:1024] = expected[:, 768:1024, 512:768] = 216
    image = Image(values, ic="C4", comrat="0.75", block=(256, 256), lut=lut, irep="RGB/LUT")
    image.payload = mask + header + b"".join(data)
    # offsets in the location table count from the beginning of the file, which holds the table itself
    image.tres = rpf(0, 0, 0, 0, 0 if has_mask else None)
    raw = nitf([image], version=version)
    start = len(raw) - len(image.payload)
    places = (start + len(mask) + 15, start + len(mask) + len(header), start if has_mask else None)
    image.tres = rpf(0, 0, *places)
    file = save(tmp_path, image, version=version)
    found = anychunk.open(file)["0/0/image"][...]
    np.testing.assert_array_equal(found, expected[0])
    np.testing.assert_array_equal(found, gdal_shown(file))


DAMAGE = {
    "C3": lambda values: jpeg(values[0]),
    "C5": lambda values: imagecodecs.jpeg8_encode(values[0], lossless=True, predictor=1),
    "C8": lambda values: imagecodecs.jpeg2k_encode(
        values[0], level=0, reversible=True, codecformat="J2K"
    ),
}


@pytest.mark.parametrize("ic", list(DAMAGE))
def test_damaged_streams_are_no_pictures(tmp_path, ic):
    values = smooth((1, 128, 128))
    stream = DAMAGE[ic](values)
    half = len(stream) // 2
    noise = RNG.integers(0, 256, half - 100, "u1").tobytes()
    damages = {
        "half": stream[:half],
        "half with an end": stream[:half] + (b"\xff\xd9"),
        "noise": stream[: half - 100] + noise + stream[-200:],
        "nothing": b"",
        "zeros": bytes(len(stream)),
        "header only": stream[:20],
    }
    if ic == "C8":
        # inside the body of one packet any bits are a picture
        del damages["noise"]
    for name, data in damages.items():
        image = Image(values, ic=ic, comrat="00.0", payload=data)
        with pytest.raises(AnychunkError):
            pytest.fail(f"{name}: {read(tmp_path, image).shape}")


@pytest.mark.parametrize("field", ["height", "width", "bands", "depth"])
def test_jpeg_frames_that_lie(tmp_path, field):
    stream = bytearray(jpeg(smooth((1, 64, 64))[0]))
    at = bytes(stream).index(b"\xff\xc0") + 4
    change = {
        "depth": (0, b"\x0c"),
        "height": (1, b"\xff\xff"),
        "width": (3, b"\xff\xff"),
        "bands": (5, b"\xff"),
    }
    offset, value = change[field]
    stream[at + offset : at + offset + len(value)] = value
    with pytest.raises(AnychunkError):
        read(tmp_path, Image(smooth((1, 64, 64)), ic="C3", payload=bytes(stream)))


def test_missing_jpeg_stream(tmp_path):
    values = smooth((1, 32, 32))
    streams = b"".join(jpeg(values[0, i : i + 16, j : j + 16]) for i in (0, 16) for j in (0, 16))
    whole = Image(values, ic="C3", block=(16, 16), payload=streams)
    assert read(tmp_path, whole).shape == (32, 32)
    image = Image(values, ic="C3", block=(16, 16), payload=streams[: streams.rindex(b"\xff\xd8")])
    with pytest.raises(FormatError, match=r"image 0: .*\b3\b.*\b4\b"):
        read(tmp_path, image)

"""Tiles in files of their own: one test for each ruling on what the text leaves open."""

import numpy as np
import pytest

import anychunk
from anychunk.errors import AnychunkError, FormatError
from anychunk.formats.jnrrd import validate
from tests.support.jnrrd_tiles import GRID, cut, external, read


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("t/{z}_{y}_{x}.raw", lambda i, n: f"t/{i[2]}_{i[1]}_{i[0]}.raw"),
        ("{d0}-{d1}-{d2}", lambda i, n: f"{i[0]}-{i[1]}-{i[2]}"),
        ("{z:03d}_{y:02d}_{x:1d}.raw", lambda i, n: f"{i[2]:03d}_{i[1]:02d}_{i[0]}.raw"),
        ("{i}.raw", lambda i, n: f"{n}.raw"),
        ("{l}/{i:04d}.raw", lambda i, n: f"0/{n:04d}.raw"),
        ("{x}{y}{z}", lambda i, n: f"{i[0]}{i[1]}{i[2]}"),
    ],
)
def test_external(tmp_path, pattern, name):
    """Placeholders by position, our own format; two tiles of one name are an error."""
    values = np.arange(4 * 4 * 6, dtype=np.uint8).reshape(4, 4, 6)
    number = 0
    for z in range(2):
        for y in range(2):
            for x in range(3):
                file = tmp_path / "base" / name((x, y, z), number)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(
                    values[2 * z : 2 * z + 2, 2 * y : 2 * y + 2, 2 * x : 2 * x + 2].tobytes()
                )
                number += 1
    path = external(tmp_path / "a.jnrrd", [6, 4, 4], [2, 2, 2], pattern=pattern, base_dir="base")
    np.testing.assert_array_equal(read(path), values)
    (tmp_path / "base" / name((2, 1, 0), 5)).unlink()
    with pytest.raises(AnychunkError, match="missing|no such"):
        read(path)


@pytest.mark.parametrize(
    ("pattern", "match"),
    [
        ("{x}_{y}.raw", "entry 2.*add {d2}"),
        ("same.raw", "entry 0.*add {d0}"),
        ("{q}", "placeholder {q}"),
        ("{x.__class__}_{y}_{z}", "brace"),
        ("{x!r}_{y}_{z}", "brace"),
        ("{0}_{y}_{z}", "brace"),
        ("{x}_{y}_{z}_{d3}", "{d3}.* 3 "),
        ("{x:>99999999}_{y}_{z}", "brace"),
        ("../{x}_{y}_{z}", "leads outside"),
        ("/tmp/{x}_{y}_{z}", "leads outside"),
        ("s3://bucket/{x}_{y}_{z}", "leads outside"),
    ],
)
def test_external_pattern_is_refused(tmp_path, pattern, match):
    with pytest.raises(FormatError, match=match):
        anychunk.index(external(tmp_path / "a.jnrrd", [60, 40, 4], [2, 2, 2], pattern=pattern))


def test_external_names_that_run_together(tmp_path):
    with pytest.raises(FormatError, match="'{x}{y}'.* '110'"):
        anychunk.index(external(tmp_path / "a.jnrrd", [12, 12], [1, 1], pattern="{x}{y}"))
    anychunk.index(external(tmp_path / "b.jnrrd", [12, 12], [1, 1], pattern="{x:02d}{y:02d}"))
    with pytest.raises(FormatError, match="add {l}"):
        anychunk.index(
            external(
                tmp_path / "c.jnrrd",
                [12, 12],
                [4, 4],
                pattern="{x}_{y}",
                levels=2,
                level_scales=[1, 2],
            )
        )


def test_external_fourth_and_fifth_axis_and_labels(tmp_path):
    values = np.arange(2 * 3 * 2 * 2 * 2, dtype=np.uint8).reshape(2, 3, 2, 2, 2)
    for c in range(3):
        for t in range(2):
            (tmp_path / f"c{c}t{t}").write_bytes(values[t, c].tobytes())
    options = {"pattern": "c{c}t{t}"}
    path = external(tmp_path / "a.jnrrd", [2, 2, 2, 3, 2], [2, 2, 2, 1, 1], **options)
    np.testing.assert_array_equal(read(path), values)
    # by label: c is the first axis in the list here
    path = external(
        tmp_path / "b.jnrrd",
        [2, 2, 2, 3, 2],
        [1, 1],
        dimensions=[3, 4],
        labels=["x", "y", "z", "c", "t"],
        **options,
    )
    np.testing.assert_array_equal(read(path), values)


def test_files(tmp_path):
    """Level 0 if missing; duplicates and gaps are errors; nothing leads outside."""
    tiles = cut(GRID, (4, 5))
    entries = []
    for number, tile in enumerate(tiles):
        (tmp_path / f"t{number}").write_bytes(tile)
        entries.append({"indices": [number % 2, number // 2], "file": f"t{number}"})
    np.testing.assert_array_equal(
        read(external(tmp_path / "a.jnrrd", [9, 7], [5, 4], files=entries[::-1])), GRID
    )
    for broken, match in (
        ([*entries, entries[0]], "has 5 entries, expected 4"),
        ([*entries[:3], entries[0]], r"entry 3 .*tile \[0, 0\] of level 0"),
        (entries[:3], "has 3 entries, expected 4"),
        ([*entries[:3], {**entries[3], "file": "t0"}], "t0 .*two tiles"),
        ([*entries[:3], {**entries[3], "level": 1}], "entry 3 has level 1"),
        ([*entries[:3], {**entries[3], "indices": [9, 9]}], "has indices"),
        ([*entries[:3], {"indices": [1, 1]}], "'file' is a required property"),
        ([*entries[:3], {**entries[3], "file": "../t3"}], "leads outside"),
        ([*entries[:3], {**entries[3], "file": "/etc/passwd"}], "leads outside"),
        ([*entries[:3], {**entries[3], "file": "http://x/y"}], "leads outside"),
        ([*entries[:3], {**entries[3], "file": ""}], "empty"),
    ):
        with pytest.raises(FormatError, match=match):
            read(external(tmp_path / "b.jnrrd", [9, 7], [5, 4], files=broken))
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(FormatError, match="leads outside"):
        read(
            external(
                tmp_path / "c.jnrrd",
                [9, 7],
                [5, 4],
                files=[*entries[:3], {**entries[3], "file": "link"}],
            )
        )
    with pytest.raises(FormatError, match="leads outside"):
        read(
            external(
                tmp_path / "d.jnrrd", [9, 7], [5, 4], files=entries, base_dir="/data/large_volume/"
            )
        )
    (tmp_path / "below").mkdir()
    path = external(
        tmp_path / "below/e.jnrrd", [9, 7], [5, 4], files=entries, base_dir=str(tmp_path)
    )
    np.testing.assert_array_equal(read(path, allow=[str(tmp_path)]), GRID)


def test_files_of_two_levels_in_any_order(tmp_path):
    half = GRID[::2, ::2][:3, :4]
    tiles = [(0, n, tile) for n, tile in enumerate(cut(GRID, (4, 5)))]
    tiles += [(1, 0, cut(half, (4, 5))[0])]
    entries = []
    for level, number, tile in tiles:
        (tmp_path / f"{level}.{number}").write_bytes(tile)
        indices = [number % 2, number // 2]
        entries.append({"level": level, "indices": indices, "file": f"{level}.{number}"})
    options = {"levels": 2, "level_scales": [1, 2]}
    for order in ([4, 2, 0, 3, 1], [3, 2, 1, 4, 0]):
        files = [entries[n] for n in order]
        path = external(tmp_path / "a.jnrrd", [9, 7], [5, 4], files=files, **options)
        np.testing.assert_array_equal(read(path), GRID)
        np.testing.assert_array_equal(read(path, level=1), half)
        assert validate(path) == []
        assert anychunk.verify(path).findings == []


def test_absolute_base_dir_in_the_folder_of_the_header(tmp_path, monkeypatch):
    folder = tmp_path / "a"
    (folder / "tiles").mkdir(parents=True)
    for number, tile in enumerate(cut(GRID, (4, 5))):
        (folder / "tiles" / f"t{number}").write_bytes(tile)
    (tmp_path / "link").symlink_to(folder, target_is_directory=True)
    for base in (f"{folder}/tiles", f"{folder}/tiles/", f"{tmp_path}/link/tiles"):
        path = external(folder / "a.jnrrd", [9, 7], [5, 4], pattern="t{i}", base_dir=base)
        np.testing.assert_array_equal(read(path), GRID)
        assert validate(path) == []
        assert anychunk.verify(path).findings == []
    monkeypatch.chdir(folder)
    np.testing.assert_array_equal(read("a.jnrrd"), GRID)
    (tmp_path / "ab").mkdir()
    for base in (f"{tmp_path}/ab", f"{folder}/tiles/../../ab", str(tmp_path)):
        path = external(folder / "b.jnrrd", [9, 7], [5, 4], pattern="t{i}", base_dir=base)
        with pytest.raises(FormatError, match="leads outside"):
            read(path)

"""Links in folders that are opened or written: inside they are followed, outside refused."""

import contextlib
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import tifffile

import anychunk
from anychunk.errors import AnychunkError, FormatError, SourceError
from anychunk.io import inside, system
from anychunk.io.inside import resolve
from anychunk.io.opening import Folder
from tests.support.jnrrd_tiles import external

SECRET = b"top secret"
DATA = np.arange(1, 65, dtype="uint8").reshape(8, 8)


needs_links = pytest.mark.skipif(
    os.name == "nt", reason="on Windows a symbolic link takes a right of its own"
)
pytestmark = needs_links


@pytest.fixture
def outside(tmp_path):
    """A container of somebody else, with a file that is nobody's business."""
    place = tmp_path / "outside"
    anychunk.write(DATA, place / "other.n5/data", chunk=(4, 4), compression="raw", axes="xyz")
    (place / "secret").write_bytes(SECRET)
    return place


@pytest.fixture
def container(tmp_path):
    place = tmp_path / "in" / "a.n5"
    anychunk.write(DATA, place / "group/data", chunk=(4, 4), compression="raw", axes="xyz")
    return place


PATH = "group/data/0/image"


def opened(container):
    """The container in N5's order of axes, in which blocks are named."""
    return anychunk.open(container, axes="xyz")


def replaced(path, target):
    """Put a link in the place of what is there."""
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    path.symlink_to(target)


@pytest.fixture(params=["proc", "handles", "names"])
def way(request, monkeypatch):
    """Open files in each of the ways that systems have."""
    monkeypatch.setattr(system, "HAS_PROC", system.HAS_PROC and request.param == "proc")
    monkeypatch.setattr(system, "HAS_HANDLES", system.HAS_HANDLES and request.param != "names")


@pytest.mark.usefixtures("way")
class TestN5:
    @pytest.mark.parametrize("target", ["secret", "other.n5/data/1/0", "not there"])
    def test_a_block_outside_is_refused(self, container, outside, target):
        replaced(container / "group/data/1/0", outside / target)
        array = opened(container)[PATH]
        np.testing.assert_array_equal(array[:4], DATA[:4])
        with pytest.raises(FormatError):
            array[...]
        with pytest.raises(FormatError):
            array.store.get_sync(f"{PATH}/c/1/0")
        with pytest.raises(FormatError):
            array.store._size(f"{PATH}/c/1/0")

    def test_a_folder_of_blocks_outside_is_refused(self, container, outside):
        replaced(container / "group/data/1", outside / "other.n5/data/1")
        with pytest.raises(FormatError):
            opened(container)[PATH][...]

    @pytest.mark.parametrize("name", ["group/data", "group"])
    def test_a_folder_outside_is_refused(self, container, outside, name):
        replaced(container / name, outside / "other.n5" / ("data" if "/" in name else ""))
        with pytest.raises(FormatError):
            anychunk.open(container)[name]
        with pytest.raises(FormatError):
            anychunk.describe(container)

    def test_a_folder_outside_without_attributes_is_refused(self, container, tmp_path):
        (tmp_path / "plain").mkdir()
        (container / "link").symlink_to(tmp_path / "plain")
        with pytest.raises(FormatError):
            anychunk.open(container)["link"]

    @pytest.mark.parametrize("name", ["", "group", "group/data"])
    @pytest.mark.parametrize("target", ["other.n5/data/attributes.json", "not there"])
    def test_attributes_outside_are_refused(self, container, outside, name, target):
        replaced(container / name / "attributes.json", outside / target)
        with pytest.raises(FormatError):
            anychunk.describe(container)

    def test_links_inside_are_followed(self, container):
        (container / "again").symlink_to("group/data")
        (container / "group/data/1/0").unlink()
        (container / "group/data/1/0").symlink_to("../0/0")
        expected = DATA.copy()
        expected[4:, :4] = DATA[:4, :4]
        group = opened(container)
        np.testing.assert_array_equal(group[PATH][...], expected)
        np.testing.assert_array_equal(group["again/0/image"][...], expected)
        # an absent block behind a link is absent
        (container / "group/data/0/1").unlink()
        expected[:4, 4:] = 0
        np.testing.assert_array_equal(opened(container)["again/0/image"][...], expected)

    def test_the_opened_path_may_be_a_link_and_is_the_root(self, container, tmp_path):
        (tmp_path / "link.n5").symlink_to(container)
        np.testing.assert_array_equal(opened(tmp_path / "link.n5")[PATH][...], DATA)
        (container / "group/data/1/0").unlink()
        (container / "block").write_bytes((container / "group/data/0/0").read_bytes())
        (container / "group/data/1/0").symlink_to("../../../block")
        assert opened(container)[PATH][4, 0] == DATA[0, 0]
        with pytest.raises(FormatError):
            anychunk.open(container / "group/data")[...]

    def test_links_that_lead_to_nothing_inside_are_errors(self, container):
        replaced(container / "group/data/1/0", "not there")
        with pytest.raises(AnychunkError):
            opened(container)[PATH][...]
        replaced(container / "group/data/1", "not there")
        with pytest.raises(AnychunkError):
            opened(container)[PATH][...]

    def test_links_in_a_circle_are_errors(self, container):
        replaced(container / "group/data/1/0", "0")
        with pytest.raises(AnychunkError):
            opened(container)[PATH][...]

    def test_a_folder_that_becomes_a_link_after_it_was_read(self, container, outside):
        array = opened(container)[PATH]
        np.testing.assert_array_equal(array[...], DATA)
        replaced(container / "group/data/1", outside / "other.n5/data/1")
        with pytest.raises(FormatError):
            array[...]

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are a thing of POSIX")
    def test_a_pipe_is_no_block(self, container):
        (container / "group/data/1/0").unlink()
        os.mkfifo(container / "group/data/1/0")
        with pytest.raises(SourceError):
            opened(container)[PATH][...]

    @pytest.mark.parametrize("name", ["group/data/1/0", "group/data/1"])
    def test_an_index_is_not_saved_of_what_is_refused(self, container, outside, name, tmp_path):
        replaced(container / name, outside / "other.n5" / name.removeprefix("group/"))
        with pytest.raises(FormatError):
            anychunk.index(container).save(tmp_path / "in" / "a.json")

    def test_an_index_has_what_is_behind_links_inside(self, container, tmp_path):
        shutil.move(container / "group/data/1", container / "ones")
        (container / "group/data/1").symlink_to("../../ones")
        anychunk.index(container).save(tmp_path / "in" / "a.json")
        array = anychunk.open(tmp_path / "in" / "a.json")[PATH]
        np.testing.assert_array_equal(array[...], DATA.T)


class TestJnrrd:
    @pytest.fixture
    def volume(self, tmp_path):
        (tmp_path / "in").mkdir()
        tiles = [DATA[y : y + 4, x : x + 4].tobytes() for y in (0, 4) for x in (0, 4)]
        (tmp_path / "in" / "t").mkdir()
        for number, tile in enumerate(tiles):
            (tmp_path / "in" / f"t/{number % 2}_{number // 2}").write_bytes(tile)
        return external(tmp_path / "in/v.jnrrd", [8, 8], [4, 4], pattern="t/{x}_{y}")

    def test_tiles(self, volume):
        np.testing.assert_array_equal(anychunk.open(volume)["0/0/image"][...], DATA)

    @pytest.mark.parametrize("name", ["t/0_0", "t/0_1", "t/1_1", "t"])
    def test_tiles_outside_are_refused(self, volume, tmp_path, name):
        shutil.copytree(volume.parent / "t", tmp_path / "t")
        replaced(volume.parent / name, tmp_path / name)
        with pytest.raises(FormatError):
            anychunk.open(volume)["0/0/image"][...]
        array = anychunk.open(volume, allow=[str(tmp_path)])["0/0/image"]
        np.testing.assert_array_equal(array[...], DATA)

    def test_tiles_replaced_after_opening_are_refused(self, volume, tmp_path):
        files = [
            {"indices": [x, y], "file": f"t/{x}_{y}", "level": 0} for y in (0, 1) for x in (0, 1)
        ]
        listed = external(tmp_path / "in/w.jnrrd", [8, 8], [4, 4], files=files)
        array = anychunk.open(listed)["0/0/image"]
        np.testing.assert_array_equal(array[:4, :4], DATA[:4, :4])
        (tmp_path / "secret").write_bytes(bytes(16))
        replaced(volume.parent / "t/1_1", tmp_path / "secret")
        with pytest.raises(FormatError):
            array[4:, 4:]

    def test_tiles_inside_are_followed(self, volume):
        shutil.move(volume.parent / "t", volume.parent / "elsewhere")
        (volume.parent / "t").symlink_to("elsewhere")
        np.testing.assert_array_equal(anychunk.open(volume)["0/0/image"][...], DATA)


def ome_set(folder, pixels=None):
    """Write two planes as an OME-TIFF of two files; by default the second is one brighter."""
    folder.mkdir(parents=True)
    uuids = [
        "urn:uuid:11111111-1111-1111-1111-111111111111",
        "urn:uuid:22222222-2222-2222-2222-222222222222",
    ]
    tiff_data = "".join(
        f'<TiffData FirstZ="{n}" IFD="0" PlaneCount="1">'
        f'<UUID FileName="{n}.ome.tif">{uuid}</UUID></TiffData>'
        for n, uuid in enumerate(uuids)
    )
    for number, uuid in enumerate(uuids):
        xml = (
            '<?xml version="1.0" encoding="UTF-8"?>'
            f'<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06" UUID="{uuid}">'
            '<Image ID="Image:0"><Pixels ID="Pixels:0" DimensionOrder="XYZCT" Type="uint8" '
            'SizeX="8" SizeY="8" SizeZ="2" SizeC="1" SizeT="1">'
            f'<Channel ID="Channel:0:0"/>{tiff_data}</Pixels></Image></OME>'
        )
        tifffile.imwrite(
            folder / f"{number}.ome.tif",
            DATA + number if pixels is None else pixels,
            description=xml.encode(),
            metadata=None,
        )
    return folder / "0.ome.tif"


class TestOme:
    def test_a_companion_outside_is_refused(self, tmp_path):
        first = ome_set(tmp_path / "in")
        np.testing.assert_array_equal(
            np.squeeze(anychunk.open(first)["0/0/image"][...])[1], DATA + 1
        )
        shutil.move(first.parent / "1.ome.tif", tmp_path / "1.ome.tif")
        (first.parent / "1.ome.tif").symlink_to(tmp_path / "1.ome.tif")
        with pytest.raises(FormatError):
            anychunk.open(first)
        (first.parent / "1.ome.tif").unlink()
        shutil.move(tmp_path / "1.ome.tif", first.parent / "moved")
        (first.parent / "1.ome.tif").symlink_to("moved")
        np.testing.assert_array_equal(
            np.squeeze(anychunk.open(first)["0/0/image"][...])[1], DATA + 1
        )


@pytest.fixture
def saved(tmp_path):
    """Save an index of a file beside it; give the folder of both."""
    (tmp_path / "in").mkdir()
    tifffile.imwrite(tmp_path / "in" / "a.tif", np.tile(DATA, (8, 8)), tile=(32, 32))
    return tmp_path / "in"


class TestParquet:
    @pytest.mark.parametrize(
        "name",
        [".zmetadata", "anychunk.json", "0/0/image/refs.0.parq", "0/0/image", "0/0", "0"],
    )
    @pytest.mark.parametrize("is_there", [True, False])
    def test_what_is_outside_is_refused(self, saved, tmp_path, name, is_there):
        target = saved / "a.parquet"
        anychunk.index(saved / "a.tif").save(target)
        assert anychunk.open(target)["0/0/image"][..., 0, 1] == 2
        shutil.move(target / name, tmp_path / "moved")
        if not is_there:
            (tmp_path / "moved").rename(tmp_path / "gone")
        (target / name).symlink_to(tmp_path / "moved")
        with pytest.raises(FormatError):
            anychunk.open(target)["0/0/image"][...]

    def test_nothing_is_written_outside(self, saved, tmp_path):
        (tmp_path / "victim").mkdir()
        (saved / "a.parquet").mkdir()
        (saved / "a.parquet" / "0").symlink_to(tmp_path / "victim")
        with pytest.raises(FormatError):
            anychunk.index(saved / "a.tif").save(saved / "a.parquet", overwrite=True)
        assert not list((tmp_path / "victim").iterdir())


class TestIcechunk:
    @pytest.mark.parametrize("name", ["snapshots", "manifests", "one"])
    def test_what_is_outside_is_refused(self, saved, tmp_path, name):
        target = saved / "a.icechunk"
        index = anychunk.index(saved / "a.tif")
        index.save(target)
        assert anychunk.open(target)["0/0/image"][..., 0, 1] == 2
        moved = next((target / "manifests").iterdir()) if name == "one" else target / name
        shutil.move(moved, tmp_path / "moved")
        moved.symlink_to(tmp_path / "moved")
        with pytest.raises(FormatError):
            anychunk.open(target)
        with pytest.raises(FormatError):
            index.save(target, overwrite=True)
        with pytest.raises(FormatError):
            anychunk.append([saved / "a.tif"], target)

    def test_links_inside_are_followed(self, saved):
        target = saved / "a.icechunk"
        anychunk.index(saved / "a.tif").save(target)
        shutil.move(target / "manifests", target / "elsewhere")
        (target / "manifests").symlink_to("elsewhere")
        assert anychunk.open(target)["0/0/image"][..., 0, 1] == 2


class TestWriters:
    """Nothing is written through a link that leads out of the target."""

    @pytest.fixture
    def victim(self, tmp_path):
        (tmp_path / "victim").mkdir()
        return tmp_path / "victim"

    @pytest.mark.parametrize("name", ["0", "1/0"])
    def test_n5_blocks(self, tmp_path, victim, name):
        place = tmp_path / "out.n5" / "data" / name
        place.parent.mkdir(parents=True)
        place.symlink_to(victim)
        with pytest.raises(FormatError):
            anychunk.write(np.ones((4, 4, 4), "uint8"), tmp_path / "out.n5/data", chunk=(2, 2, 2))
        assert not list(victim.iterdir())

    def test_n5_levels(self, tmp_path, victim):
        (tmp_path / "out.n5").mkdir()
        (tmp_path / "out.n5" / "s1").symlink_to(victim)
        with pytest.raises(FormatError):
            anychunk.write(DATA, tmp_path / "out.n5", chunk=(4, 4), levels=2)
        assert not list(victim.iterdir())

    @pytest.mark.parametrize("name", ["group", "group/data"])
    @pytest.mark.parametrize("also_zarr", [False, True])
    def test_n5_groups(self, tmp_path, victim, name, also_zarr):
        place = tmp_path / "out.n5" / name
        place.parent.mkdir(parents=True)
        place.symlink_to(victim)
        with pytest.raises(FormatError):
            anychunk.write(DATA, tmp_path / "out.n5/group/data", also_zarr=also_zarr)
        assert not list(victim.iterdir())

    def test_n5_groups_inside(self, tmp_path):
        (tmp_path / "out.n5" / "elsewhere").mkdir(parents=True)
        (tmp_path / "out.n5" / "group").symlink_to("elsewhere")
        anychunk.write(DATA, tmp_path / "out.n5/group/data")
        np.testing.assert_array_equal(anychunk.open(tmp_path / "out.n5/elsewhere/data")[...], DATA)

    def test_n5_inside(self, tmp_path):
        place = tmp_path / "out.n5"
        (place / "blocks").mkdir(parents=True)
        (place / "1").symlink_to("blocks")
        (tmp_path / "link.n5").symlink_to(place)
        anychunk.write(DATA, tmp_path / "link.n5", chunk=(4, 4))
        assert len(list((place / "blocks").iterdir())) == 2
        np.testing.assert_array_equal(anychunk.open(place)[...], DATA)

    @pytest.mark.parametrize("name", ["out.n5", "out"])
    def test_converted_images(self, tmp_path, victim, name):
        with tifffile.TiffWriter(tmp_path / "two.tif") as file:
            for value in (1, 2):
                file.write(np.full((64 * value, 64), value, "uint8"), metadata={"axes": "YX"})
        (tmp_path / name).mkdir()
        (tmp_path / name / "1").symlink_to(victim)
        with pytest.raises(FileExistsError):
            anychunk.convert(tmp_path / "two.tif", tmp_path / name, format="n5")
        assert not list(victim.iterdir())

    def test_jnrrd_tiles(self, tmp_path, victim):
        (tmp_path / "in").mkdir()
        (tmp_path / "in" / "t").symlink_to(victim)
        with pytest.raises(FormatError):
            anychunk.write(
                DATA, tmp_path / "in/v.jnrrd", chunk=(4, 4), external=True, pattern="t/{x}_{y}"
            )
        assert not list(victim.iterdir())

    def test_zarr(self, tmp_path, victim):
        np.save(tmp_path / "a.npy", DATA)
        (tmp_path / ".out.zarr.part").mkdir()
        (tmp_path / ".out.zarr.part" / "0").symlink_to(victim)
        with pytest.raises(FormatError):
            anychunk.convert(tmp_path / "a.npy", tmp_path / "out.zarr")
        assert not list(victim.iterdir())

    def test_zarr_aside(self, tmp_path, victim):
        np.save(tmp_path / "a.npy", DATA)
        (tmp_path / ".out.zarr.part").symlink_to(victim)
        with pytest.raises(FormatError):
            anychunk.convert(tmp_path / "a.npy", tmp_path / "out.zarr")
        assert not list(victim.iterdir())


@pytest.mark.usefixtures("way")
def test_folders(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "secret").write_bytes(SECRET)
    (tmp_path / "in" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "in" / "up").symlink_to(tmp_path)
    folder = Folder(str(tmp_path / "in"))
    assert folder.names() == (["up"], ["link"])
    for refused in (
        lambda: folder.read("link"),
        lambda: folder.source("link"),
        lambda: folder.child("up").read("secret"),
        lambda: folder.child("up").names(),
        lambda: folder.read("up/secret"),
        lambda: folder.read("../secret"),
    ):
        with pytest.raises(FormatError):
            refused()
    assert Folder(str(tmp_path / "in" / "up")).read("secret") == SECRET
    assert folder.read("nothing") is None


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc: Linux only")
def test_handles_of_directories_are_bounded_and_closed(tmp_path):
    def opened():
        """Count the handles below this test's folder: other threads of the process have theirs."""
        found = 0
        for entry in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                found += str(entry.readlink()).startswith(str(tmp_path))
        return found

    count = 3 * inside.MOST_KEPT
    for number in range(count):
        (tmp_path / f"a/{number}").mkdir(parents=True)
        (tmp_path / f"a/{number}/file").write_text(str(number))
    assert opened() == 0
    with inside.Walk([str(tmp_path)]) as walk:
        for number in (*range(count), *range(count)):
            walk.directory(f"{tmp_path}/a/{number}")
            handle = walk.open(f"{tmp_path}/a/{number}/file")
            assert os.read(handle, 10) == str(number).encode()
            os.close(handle)
        assert 0 < opened() <= inside.MOST_KEPT + 1
    assert opened() == 0


def test_allowed_folders_are_compared_with_links_followed(tmp_path):
    for name in ("in", "data"):
        (tmp_path / name).mkdir()
    (tmp_path / "secret").write_bytes(SECRET)
    (tmp_path / "data" / "tile").write_bytes(b"1")
    (tmp_path / "data" / "out").symlink_to(tmp_path / "secret")
    (tmp_path / "in" / "tile").symlink_to(tmp_path / "data" / "tile")
    base, allow = str(tmp_path / "in"), [str(tmp_path / "data")]
    assert resolve(base, "tile", allow=allow) == f"{base}/tile"
    with pytest.raises(FormatError):
        resolve(base, f"{tmp_path}/data/out", allow=allow)

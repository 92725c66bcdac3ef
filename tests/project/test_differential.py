"""The harness that compares two versions: what it finds, accepts and resumes."""

import io
import json
import os
import signal
import sys
import uuid

import numpy as np
import pytest
import tifffile
import zarr

import anychunk
from bench import differential
from bench.differential import Case, Version, normal
from fuzz.pool import Pool

VALUES = np.arange(48 * 40, dtype="u2").reshape(48, 40)


def case(name, data, kind="deep"):
    return Case(seed="\0", format=kind, files={name: data}, entry=name)


def cases():
    tifffile.imwrite(tiff := io.BytesIO(), VALUES, compression="zlib", tile=(16, 16))
    np.save(npy := io.BytesIO(), VALUES)
    return {
        "made/a.tif": case("a.tif", tiff.getvalue()),
        "made/a.npy": case("a.npy", npy.getvalue()),
        "made/cut.tif": case("a.tif", tiff.getvalue()[:300]),
        "zarr/made/a.tif": case("a.tif", tiff.getvalue(), "zarr"),
        "tif/made/a.npy": case("a.npy", npy.getvalue(), "tif"),
    }


class OtherPixel(Version):
    """One pixel of the full resolution of TIFF files differs."""

    def __init__(self):
        super().__init__()
        self.open = self.opened

    def opened(self, node):
        group = zarr.create_group(zarr.storage.MemoryStore())
        for path, array in anychunk.open(node).members(max_depth=None):
            if isinstance(array, zarr.Array):
                values = array[...]
                values.flat[-1:] += values.shape == VALUES.shape
                group.create_array(path, data=values)
        return group


class OtherAttribute(Version):
    def look(self, node):
        about, members = super().look(node)
        return about | {"attributes": about["attributes"] | {"more": 1}}, members


class OtherError(Version):
    def __init__(self):
        super().__init__()
        self.index = self.indexed

    def indexed(self, path):
        try:
            return anychunk.index(path)
        except anychunk.AnychunkError as e:
            raise type(e)(f"{e}; send it to us") from e


class OneRequestMore(Version):
    def __init__(self):
        super().__init__()
        self.open_array = self.opened

    def opened(self, url):
        anychunk.describe(url)
        return anychunk.open_array(url)


class OtherOutput(Version):
    def __init__(self):
        super().__init__()
        main = self.main
        self.main = lambda: (sys.stderr.write("done"), main())


class OtherCodec(Version):
    """Names of codecs are those after the known renamings, and one that is not known."""

    def look(self, node):
        about, members = super().look(node)
        known = json.loads(
            json.dumps(about.get("codecs", [])).replace(differential.URI, "anychunk.")
        )
        return about | ({"codecs": known} if known else {}), members


class InProcess:
    """Stands in for the pool: runs cases here, with the version that a test chooses."""

    def __init__(self, version, folder):
        self.version, self.folder, self.ran, self.most = version, folder, [], sys.maxsize

    def __call__(self, *, module):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def run(self, named):
        for name, one in named:
            if len(self.ran) == self.most:
                raise KeyboardInterrupt
            self.ran.append(name)
            yield name, one, differential.run(self.version, one, str(self.folder))


@pytest.fixture
def harness(tmp_path, monkeypatch, capsys):
    """Return a function that runs a command with a version; it returns code, output and runner."""
    (tmp_path / "work").mkdir()
    known = cases()
    monkeypatch.setattr(differential, "items", lambda level: known)

    def call(command, *options, version=Version, most=sys.maxsize):
        runner = InProcess(version(), tmp_path / "work")
        runner.most = most
        monkeypatch.setattr(differential.pool, "Pool", runner)
        arguments = [command, str(tmp_path / "out.jsonl"), *map(str, options)]
        monkeypatch.setattr(sys, "argv", ["differential", *arguments])
        code = differential.main()
        # the next version has the same code, but other results
        for results in tmp_path.glob("out.*.jsonl"):
            results.unlink()
        return code, capsys.readouterr().out, runner.ran

    return call


def found(output):
    """Return {what: (identifier, verdict)} of the groups that a comparison prints."""
    rows = [line.split(": ", 2) for line in output.splitlines() if " items: " in line]
    return {what: tuple(head.split(maxsplit=1)) for head, _, what in rows}


def test_the_same_version_differs_in_nothing(harness):
    assert harness("record")[0] == 0
    code, output, ran = harness("compare")
    assert (code, found(output)) == (0, {})
    assert ran == list(cases())


@pytest.mark.parametrize(
    ("version", "what"),
    [
        (OtherPixel, "WRONG PIXELS read * whole"),
        (OtherAttribute, "tree * attributes more"),
        (OtherError, "text"),
        (OneRequestMore, "remote open requests"),
        (OtherOutput, "info stderr"),
    ],
)
def test_finds_a_difference(harness, version, what):
    harness("record")
    code, output, _ = harness("compare", version=version)
    assert code == 1
    assert [key for key in found(output) if key.startswith(f"{what}: ")] != []
    wrong = [key for key in found(output) if key.startswith(differential.WRONG)]
    assert bool(wrong) == (version is OtherPixel)


def test_equal_differences_are_one_group(harness):
    harness("record")
    _, output, _ = harness("compare", version=OtherAttribute)
    (line,) = [line for line in output.splitlines() if ": tree * attributes more: " in line]
    assert " 4 items: " in line


def test_accepted_groups_but_never_pixels(harness, tmp_path):
    harness("record")
    for version, expected in ((OtherAttribute, 0), (OtherPixel, 1)):
        _, output, _ = harness("compare", version=version)
        lines = [f"{name} known and meant" for name, _ in found(output).values()]
        (tmp_path / "accepted").write_text("\n".join(lines))
        code, output, _ = harness("compare", "--accept", tmp_path / "accepted", version=version)
        assert code == expected
        verdicts = {name: verdict for name, (_, verdict) in found(output).items()}
        for name, verdict in verdicts.items():
            assert verdict == (
                "DIFFERS" if name.startswith(differential.WRONG) else "known and meant"
            )
    more = [f"{number:08} one too many" for number in range(differential.ACCEPTED + 1)]
    (tmp_path / "accepted").write_text("\n".join(more))
    assert harness("compare", "--accept", tmp_path / "accepted")[0] == 1


def test_resumes_and_refuses_results_of_other_code(harness, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        harness("record", most=2)
    out = tmp_path / "out.jsonl"
    out.write_text(out.read_text() + '["made/cut.tif", {"se')  # and the last line is not whole
    assert harness("compare")[0] == 1  # not all items are recorded
    code, _, ran = harness("record")
    assert (code, ran) == (0, list(cases())[2:])
    assert harness("compare")[0] == 0
    lines = out.read_text().splitlines()
    out.write_text("\n".join(['["code", "0"]', *lines[1:]]) + "\n")
    with pytest.raises(SystemExit, match="other code"):
        harness("record")


def test_known_renamings_are_no_differences(harness):
    harness("record")
    assert harness("compare", version=OtherCodec)[0] == 0
    old = [
        {"name": "bytes"},
        {"name": "anychunk.crc32"},
        {"name": "anychunk.zlib", "configuration": {"level": 1}},
    ]
    new = [{"name": "bytes"}, {"name": "anychunk.stream", "configuration": {"format": "zlib"}}]
    assert normal(old) == normal(new)
    assert normal({"codecs": old[:2]}) != normal({"codecs": old[:1]})
    assert normal("anychunk.n5_cropped: too short") == "anychunk.n5: too short"
    assert normal("anychunk.n5_string: too short") == "anychunk.n5_string: too short"
    assert normal(f"{differential.URI}jpeg2000") == "anychunk.jpeg2000"
    names = ("TZ2XQGKFNRKHH3V7VWS0", "4S685WXKSZDBQKY7FQRG")  # by Icechunk, at random
    assert len({normal(f"<here>/i.icechunk/chunks/{name}") for name in names}) == 1
    assert normal("<ast.Name object at 0x7f0197767090>") == normal("<ast.Name object at 0x7f9b>")
    texts = [f'<OME UUID="urn:uuid:{uuid.uuid4()}">{" " * 2000}' for _ in range(2)]
    assert len({normal(differential.brief(text)) for text in texts}) == 1


def test_growth_of_memory():
    def result(megabytes):
        return {"a": {"seen": {}, "memory": megabytes << 20}}

    assert differential.groups(result(200), result(249)) == {}
    assert differential.groups(result(10), result(41)) == {}
    assert list(differential.groups(result(200), result(251))) == [differential.GROWN]


def test_memory_is_measured_again_before_it_counts(harness, monkeypatch):
    harness("record")
    for peaks, expected in (([900, 20], 0), ([900, 900], 1)):
        left = [megabytes << 20 for megabytes in peaks]
        real = differential.run

        def run(version, one, base, left=left, real=real):
            is_chosen = one == cases()["made/a.npy"]
            return real(version, one, base) | {"memory": left.pop(0) if is_chosen else 0}

        monkeypatch.setattr(differential, "run", run)
        code, output, ran = harness("compare")
        monkeypatch.setattr(differential, "run", real)
        assert (code, [*found(output)], left) == (expected, [differential.GROWN] * expected, [])
        assert ran == [*cases(), "made/a.npy"]


def test_workers(tmp_path):
    """Items run in child processes, and the end of one is a result."""
    with Pool(1, module="bench.differential") as pool:
        stream = iter([("a", case("a.npy", cases()["made/a.npy"].files["a.npy"]))])
        ((_, _, first),) = pool.run(stream)
        assert first["seen"]["read"]["/0/0/image"]["whole"].startswith(differential.PIXELS)
        os.kill(pool.children[0].process.pid, signal.SIGKILL)
        assert pool.one(case("a.npy", b"?"))["outcome"] == "death"


def test_levels_are_nested_and_spread(monkeypatch):
    monkeypatch.setattr(differential, "MUTATIONS", 20)
    monkeypatch.setattr(differential.streams, "seeds", lambda: ())  # which take seconds to write
    levels = {level: differential.items(level) for level in ("quick", "data", "full")}
    assert len(levels["quick"]) == min(differential.QUICK, len(levels["data"]))
    assert levels["quick"].items() <= levels["data"].items()
    assert levels["data"].keys() < levels["full"].keys()
    formats = {name.split("/")[1] for name in levels["data"]}
    assert {name.split("/")[1] for name in levels["quick"]} == formats
    assert sum(name.startswith("mutated/") for name in levels["full"]) == differential.MUTATIONS
    for target in differential.TARGETS:
        names = [name for name in levels["full"] if name.startswith(f"{target}/")]
        assert len(names) == differential.CONVERTED

"""What `verify` says about headers: all defects, and the mistakes that the documents invite."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import anychunk
from anychunk.cli import app
from anychunk.formats import jnrrd

VALUES = np.arange(4 * 6 * 8, dtype="u1").reshape(4, 6, 8)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a.jnrrd"
    anychunk.write(VALUES, path, chunk=(2, 3, 8), chunk_metadata=True)
    return path


def edit(path, **changes):
    """Replace fields of a file, keeping the length of its header."""
    data = path.read_bytes()
    header = jnrrd.read_header(path)
    fields = {**header.fields, **{k.replace("__", ":"): v for k, v in changes.items()}}
    text = "".join(json.dumps({k: v}) + "\n" for k, v in fields.items() if v is not None)
    if header.end == len(data):  # external tiles: nothing follows
        path.write_text(text + "\n")
        return
    assert len(text) < header.end
    path.write_bytes(text[:-1].encode().ljust(header.end - 2) + b"\n\n" + data[header.end :])


def test_read_header_takes_a_path(file):
    header = jnrrd.read_header(file)
    assert header.fields["sizes"] == [8, 6, 4]
    assert jnrrd.read_header(str(file)).lines == header.lines
    anychunk.write(VALUES, file.with_name("b.jnrrd"), header=header, chunked=False)
    assert jnrrd.read_header(file.with_name("b.jnrrd")).fields["sizes"] == [8, 6, 4]
    assert "tile:enabled" not in jnrrd.read_header(file.with_name("b.jnrrd")).fields


def found(path):
    return {(f.severity, f.where.split()[-1]) for f in anychunk.verify(path).findings}


@pytest.mark.filterwarnings("ignore::anychunk.errors.FormatWarning")
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, set()),
        ({"sizes": [4, 6, 8]}, {("error", "tile:offset_table")}),
        ({"tile__offset_table": [0, 48, 96, 144]}, {("error", "tile:offset_table")}),
        ({"tile__metadata": [{"checksum": "e5f6g7h8"}] * 4}, {("warning", "tile:metadata")}),
        ({"tile__format": "chunked"}, set()),
        ({"encoding": None}, {("warning", "encoding")}),
        (
            {"tile__storage": "interal", "tile__overlap": "8"},
            {("error", "tile:storage"), ("error", "tile:overlap")},
        ),
    ],
)
def test_mistakes(file, changes, expected):
    edit(file, **changes)
    assert found(file) >= expected
    assert {severity for severity, _ in found(file)} == {severity for severity, _ in expected}


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ('{"tile:overlap": [8, 8, 0]}  // 8 voxels', "comments"),
        ('{"tile:offset_table": [1024, ...]}', "entry"),
        ('{"tile:files": [', "one line"),
    ],
)
def test_lines_of_the_documents_examples(tmp_path, line, word):
    (tmp_path / "a.jnrrd").write_text(f'{{"jnrrd": "0004"}}\n{{"type": "uint8"}}\n{line}\n\n')
    (finding,) = anychunk.verify(tmp_path / "a.jnrrd").findings
    assert finding.severity == "error"
    assert word in finding.what
    done = CliRunner().invoke(app, ["verify", str(tmp_path / "a.jnrrd")])
    assert done.exit_code == 1
    assert word in done.stdout


@pytest.mark.parametrize(
    ("lines", "fields"),
    [
        ("kinds: domain domain", {"kinds"}),
        ('labels: "a"', {"labels"}),
        (
            "space: RAS\nspace dimension: 3\nmeasurement frame: (1,0,0) (0,1,0) (0,0,1)",
            {"frame", "dimension", "space"},
        ),
        ("key:=value", set()),
    ],
)
def test_rules_of_nrrd(tmp_path, lines, fields):
    path = tmp_path / "a.nrrd"
    start = "NRRD0002\ntype: uchar\ndimension: 2\nsizes: 3 2\nencoding: raw\n"
    path.write_bytes(f"{start}{lines}\n\n".encode() + bytes(6))
    assert {f.where.split()[-1] for f in anychunk.verify(path).findings} == fields

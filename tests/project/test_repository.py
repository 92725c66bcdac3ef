"""What is stated in several files of the repository agrees, and the workflows call what there is."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

import anychunk
from anychunk.zarr import core as zarr_core
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT = PYPROJECT["project"]
PACKAGES = {
    file.parent.name: tomllib.loads(file.read_text("utf-8"))
    for file in sorted(ROOT.glob("packages/*/pyproject.toml"))
}
"""Our other packages, by their folders."""
ADDRESS = "https://github.com/anychunk/anychunk"
SITE = "https://anychunk.github.io/anychunk/"
AUTHORS = "The anychunk developers"
CONDA_NAMES = {"xxhash": "python-xxhash"}
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def load(name: str):
    return yaml.safe_load((ROOT / name).read_text("utf-8"))


def tracked() -> list[str]:
    """Return the files of the repository, without messages recorded by the fuzzer."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is not a clone of the repository: git clone it")
    command = ["git", "ls-files", "-z"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=PATIENCE_S)
    names = done.stdout.decode().split("\0")[:-1]
    return [name for name in names if not name.startswith("tests/fuzz/cases/")]


@pytest.mark.processes
@pytest.mark.parametrize("text", [ADDRESS, SITE, AUTHORS])
def test_the_release_checklist_names_each_file_with(text):
    found = {
        name
        for name in tracked()
        if (ROOT / name).is_file() and text.encode() in (ROOT / name).read_bytes()
    }
    checklist = (ROOT / ".github/RELEASING.md").read_text("utf-8")
    section = checklist.split(f"\n`{text}`:\n\n", 1)[1].split("\n\n")[0]
    assert found == set(re.findall(r"`([^`]+)`", section))


def test_metadata_agree():
    citation, recipe = load("CITATION.cff"), load("recipe/recipe.yaml")
    assert citation["version"] == recipe["context"]["version"] == anychunk.__version__
    assert citation["authors"] == PROJECT["authors"] == [{"name": AUTHORS}]
    assert citation["license"] == recipe["about"]["license"] == PROJECT["license"]
    assert citation["keywords"] == PROJECT["keywords"]
    assert citation["repository-code"] == recipe["about"]["repository"] == ADDRESS
    assert load_lines("mkdocs.yml", r"^repo_url: (.+)$") == [ADDRESS]
    assert (
        load_lines("mkdocs.yml", r"^site_url: (.+)$")
        == [PROJECT["urls"]["Documentation"]]
        == [SITE]
    )
    assert all(url.startswith((ADDRESS, SITE)) for url in PROJECT["urls"].values())
    assert anychunk.errors.REPORT.endswith(f"{ADDRESS}/issues")


@pytest.mark.parametrize("name", PACKAGES)
def test_packages_are_of_one_version_and_licence(name):
    found = PACKAGES[name]["project"]
    assert found["name"] == name
    assert found["version"] == anychunk.__version__
    assert found["dependencies"][0] == f"anychunk=={anychunk.__version__}"
    for key in ("license", "license-files", "authors", "requires-python", "urls"):
        assert found[key] == PROJECT[key]
    added = [c for c in found["classifiers"] if not c.startswith("Framework")]
    assert added == PROJECT["classifiers"]
    assert PACKAGES[name]["build-system"]["requires"] == PYPROJECT["build-system"]["requires"]
    assert (ROOT / "packages" / name / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert PROJECT["optional-dependencies"][name.removeprefix("anychunk-")] == [name]


def test_every_package_is_checked_tested_and_counted():
    modules = {"anychunk", *(name.replace("-", "_") for name in PACKAGES)}
    tools = PYPROJECT["tool"]
    assert set(tools["mypy"]["packages"]) == set(tools["coverage"]["run"]["source_pkgs"]) == modules
    assert set(tools["importlinter"]["root_packages"]) == modules == set(anychunk.errors.OWN)
    for file, line in (
        ("Makefile", r"^(?:PACKAGES|SERVE) :?= (.+)$"),
        (".ci/environment", r"^here=(.+)$"),
    ):
        installed = re.findall(r"packages/([\w-]+)", " ".join(load_lines(file, line)))
        assert {*installed} == {*PACKAGES}, file
    assert all((ROOT / "packages" / name / "tests").is_dir() for name in PACKAGES)


def load_lines(name: str, pattern: str) -> list[str]:
    return re.findall(pattern, (ROOT / name).read_text("utf-8"), re.MULTILINE)


def conda(requirement: str) -> str:
    """Return a requirement of pyproject.toml as conda writes it."""
    name, bound = re.fullmatch(r"([\w-]+)(?:\[.+\])?(.*)", requirement.partition(";")[0]).groups()
    return f"{CONDA_NAMES.get(name, name)} {bound}".strip()


def test_the_recipe_has_the_requirements_of_the_packages():
    outputs = {one["package"]["name"]: one for one in load("recipe/recipe.yaml")["outputs"]}
    assert list(outputs) == ["anychunk", *sorted(PACKAGES)]
    python = f"python {PROJECT['requires-python']}"
    host = [python, "pip", *map(conda, PYPROJECT["build-system"]["requires"])]
    for name, output in outputs.items():
        project = PACKAGES[name]["project"] if name in PACKAGES else PROJECT
        requirements = output["requirements"]
        assert requirements["host"] == host
        needed = [one for one in project["dependencies"] if not is_ours(one)]
        own = ["anychunk ==${{ version }}"] if name in PACKAGES else []
        assert requirements["run"] == [python, *own, *map(conda, needed)]
        optional = [conda(one) for one in optional_of(project)]
        assert requirements.get("run_constraints", []) == optional


def is_ours(requirement: str) -> bool:
    return requirement.startswith("anychunk")


def optional_of(project) -> list[str]:
    """Return the requirements of all extras, without packages of ours."""
    extras = project.get("optional-dependencies", {})
    return [one for name in extras for one in extras[name] if not is_ours(one)]


def test_the_oldest_versions_are_the_lower_bounds():
    projects = [PROJECT, *(found["project"] for found in PACKAGES.values())]
    needed = [one for p in projects for one in (*p["dependencies"], *optional_of(p))]
    bounds = {}
    for one in map(Requirement, [one for one in needed if not is_ours(one)]):
        (bound,) = one.specifier
        assert bound.operator == ">="
        bounds[one.name] = Version(bound.version)
    lines = (ROOT / "constraints-oldest.txt").read_text("utf-8").split()
    assert {name: Version(version) for name, version in (x.split("==") for x in lines)} == bounds
    assert Version(zarr_core.OLDEST) == bounds["zarr"]
    newest = dict(x.split("==") for x in (ROOT / "constraints.txt").read_text("utf-8").split())
    assert all(Version(newest[name]) >= bound for name, bound in bounds.items())
    assert newest["zarr"].startswith(f"{zarr_core.NEWEST}.")


def steps(workflow: Path):
    jobs = yaml.safe_load(workflow.read_text("utf-8"))["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_targets_of_the_makefile(workflow):
    targets = set(load_lines("Makefile", r"^\.PHONY: (.+)$")[0].split())
    matrix = load(".github/workflows/tests.yml")["jobs"]["environments"]["strategy"]["matrix"]
    called = [step["run"] for step in steps(workflow) if "run" in step]
    for command in called:
        if command.startswith("make $"):
            assert set(matrix["target"]) <= targets
        elif command.startswith("make "):
            assert command.split()[1] in targets
        else:
            program = command.split()[0]
            assert program in ("choco", "npm") or (ROOT / program).exists()


def test_one_list_of_python_versions():
    prefix = "Programming Language :: Python :: "
    versions = [c.removeprefix(prefix) for c in PROJECT["classifiers"] if c.startswith(prefix)]
    matrix = load(".github/workflows/tests.yml")["jobs"]["systems"]["strategy"]["matrix"]
    assert matrix["python"] == versions
    assert load_lines(".ci/find-python", r'^versions="(.+)"$') == [" ".join(versions)]
    assert PROJECT["requires-python"] == f">={versions[0]}"


def test_systems_of_the_workflow_are_those_of_the_classifiers():
    matrix = load(".github/workflows/tests.yml")["jobs"]["systems"]["strategy"]["matrix"]
    named = {"ubuntu-latest": "POSIX :: Linux", "macos-latest": "MacOS"}
    named["windows-latest"] = "Microsoft :: Windows"
    expected = {f"Operating System :: {named[system]}" for system in matrix["system"]}
    assert {c for c in PROJECT["classifiers"] if c.startswith("Operating System")} == expected


@pytest.mark.processes
@pytest.mark.parametrize(
    ("tag", "date", "told"),
    [
        (f"v{anychunk.__version__}", "2027-01-31", ""),
        (f"v{anychunk.__version__}", "unreleased", "no date"),
        ("v99.0.0", "2027-01-31", "another version"),
        (anychunk.__version__, "2027-01-31", "another version"),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="make there sees no symbolic links")
def test_a_release_has_a_tag_of_its_version_and_a_date(tmp_path, tag, date, told):
    for path in ROOT.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (changes := tmp_path / "CHANGELOG.md").unlink()
    changes.write_text(f"# Changelog\n\n## {anychunk.__version__} ({date})\n", "utf-8")
    command = ["make", "--old-file=setup", "release-check", f"TAG={tag}"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert (done.returncode == 0) == (not told), done.stdout + done.stderr
    assert told in done.stdout


BESIDE = {"support", "project", "fuzz"}
"""Folders of tests that are not those of a folder of the library."""


def test_tests_mirror_the_library():
    """A newcomer finds the tests of a function by its path."""
    source, tests = ROOT / "src/anychunk", ROOT / "tests"
    folders = {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")}
    others = {folder for folder in folders if folder.parts and folder.parts[0] not in BESIDE}
    assert [folder for folder in others if not (source / folder).is_dir()] == []
    single = {path.stem.removeprefix("test_") for path in tests.glob("test_*.py")}
    modules = {path.stem for path in source.glob("*.py")}
    assert {name for name in single if not any(name.startswith(m) for m in modules)} == set()

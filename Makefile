# `make demo` and `make test` do all their own set-up on a fresh machine.
VENV := .venv
SCRIPTS := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
BIN := $(VENV)/$(SCRIPTS)
# Three workers on two cores, because many tests wait for servers and child processes. Tests of one file stay together,
# because they share servers and generated files; tests/conftest.py starts with the files that take longest.
WORKERS := 3
PYTEST_FLAGS := --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
# the tests start hundreds of interpreters, each of which would compile everything it imports
unexport PYTHONDONTWRITEBYTECODE
# an absolute path, because child processes run elsewhere
export COVERAGE_FILE := $(CURDIR)/.coverage

.PHONY: setup setup-others tools peers try-wheel viewer viewer-test viewer-packages client-packages demo test test-others test-minimal test-oldest test-next coverage schemas wheel release-check test-peers test-integrations test-neighbours bare guard fuzz fuzz-summary fuzz-check fuzz-guided fuzz-native lint types layers docs check check-rest bench format clean
.DEFAULT_GOAL := test

setup: $(VENV)/ready

$(VENV)/ready: pyproject.toml constraints.txt .ci/find-python .ci/install-packages setup.py $(wildcard src/anychunk/native/*.[ch])
	@python="$$(.ci/find-python)" && echo "setting up $(VENV) with $$python" && "$$python" -m venv $(VENV)
	@.ci/install-packages $(BIN)/python --editable ".[all]" --group dev
	@touch $@

demo: setup
	@$(BIN)/python examples/demo.py

# TESTS: files, folders or names of tests, options of pytest; all by default
# SLOW=1: all tests and all their examples, see tests/thorough.py
# COVER=1: record which lines run, child processes included, for `make coverage`
test: setup
	@$(if $(SLOW),ANYCHUNK_SLOW=1 )$(BIN)/python -m $(if $(COVER),coverage run -m )pytest $(PYTEST_FLAGS) $(TESTS)

# Fails if fewer lines ran than recorded in pyproject.toml, in all tests with COVER=1 since `coverage erase`.
# `coverage report` then lists them by file, `coverage html` by line.
coverage: setup
	@$(BIN)/coverage combine --quiet
	@total=$$($(BIN)/coverage report --format=total); code=$$?; echo "coverage: $$total % of lines"; exit $$code

# Both commands of the README, in an environment with only Python and make.
bare:
	@.ci/bare

# Fails if a read is slower, relative to its peer, than recorded. Runs alone: other work would distort the measurement.
guard: setup
	@$(BIN)/python -m pytest bench/test_guard.py

# Damaged files of every format, indexes and codecs; findings and counts are kept in ~/.cache/anychunk-fuzz.
# MINUTES: how long; SEED: of the random numbers; FORMATS: separated by commas; REAL: a folder of real files that are
# damaged, too. A run continues where the last one with the same seed ended.
fuzz: setup
	@$(BIN)/python -m fuzz --minutes $(or $(MINUTES),1) --seed $(or $(SEED),0) $(if $(FORMATS),--formats $(FORMATS)) $(if $(REAL),--real $(REAL))

fuzz-summary: setup
	@$(BIN)/python -m fuzz --summary

# The same 1,000 inputs every time, 2,000 with SLOW=1, for three minutes at most; fails on any finding.
fuzz-check: setup
	@state=$$(mktemp -d) && $(BIN)/python -m fuzz --minutes 3 --inputs $(if $(SLOW),2000,1000) --seed 1 --start 0 --state $$state; code=$$?; rm -rf $$state; exit $$code

# The compiled module under AddressSanitizer, with a C compiler.
fuzz-native: setup
	@$(BIN)/python -m fuzz.native --minutes $(or $(MINUTES),1) --seed $(or $(SEED),0)

# Parsers, guided by coverage, with atheris in an environment of its own. TARGET: tiff, nitf, jpeg2000, jnrrd or npy.
CORPUS = $${XDG_CACHE_HOME:-$$HOME/.cache}/anychunk-fuzz/corpus
fuzz-guided: setup .venv-atheris/ready
	@$(BIN)/python -m fuzz --corpus "$(CORPUS)"
	@.venv-atheris/bin/python -m fuzz.guided $(or $(TARGET),jpeg2000) "$(CORPUS)/$(or $(TARGET),jpeg2000)" \
	  -max_total_time=$$(( 60 * $(or $(MINUTES),1) )) -artifact_prefix="$(CORPUS)/"

.venv-atheris/ready: pyproject.toml .ci/find-python
	@"$$(.ci/find-python)" -m venv .venv-atheris
	@.ci/install-packages .venv-atheris/bin/python --editable . "atheris>=3"
	@touch $@

# The tests on every other supported interpreter found here: OTHERS_TESTS, or all. Left out (ONCE) is what does not
# depend on the interpreter: parts that run in separate processes (browser, servers, clusters), long comparisons of
# compiled code (OpenJPEG, z5py, tensorstore, numpy), and the documentation.
ONCE := readers page test_page.py test_examples.py test_archive.py references/test_matrix.py references/test_osml_layout.py \
  server conversion formats/test_jpeg2000.py formats/test_htj2k.py formats/test_n5_peers.py codecs/test_cast_plan.py codecs/test_zarr_suite.py \
  fuzz formats/test_tiff_edits.py formats/test_jpeg2000_edits.py codecs/test_hostile_chunks.py test_docs.py
VERSIONS := 3.12 3.13 3.14
OTHERS = for version in $(VERSIONS); do \
  $(BIN)/python -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] == '$$version')" || continue; \
  venv="$(VENV)-$$version";

setup-others: setup
	@$(OTHERS) \
	  python="$$(.ci/find-python $$version 2>/dev/null)" || { echo "Python $$version not found: skipping its tests"; continue; }; \
	  if [ ! -e "$$venv/ready" ] || [ pyproject.toml -nt "$$venv/ready" ] || [ constraints.txt -nt "$$venv/ready" ]; then \
	    echo "setting up $$venv"; "$$python" -m venv "$$venv" && \
	    .ci/install-packages "$$venv/$(SCRIPTS)/python" --editable ".[all]" --group test && touch "$$venv/ready" || exit 1; \
	  fi; \
	done

test-others: setup-others
	@$(OTHERS) \
	  [ -e "$$venv/ready" ] || continue; \
	  echo "testing on Python $$version"; "$$venv/$(SCRIPTS)/python" -m pytest $(PYTEST_FLAGS) $(ONCE:%=--ignore=tests/%) $(OTHERS_TESTS) || exit 1; \
	done

# The same tests in other environments: without extras, where tests that need one are skipped; with the oldest versions
# of the dependencies; with pre-releases of zarr and the newest releases of all others.
test-minimal: INSTALL = --constraint constraints.txt --editable . --group test-core
# the oldest xarray cannot write the strings of pandas 3
test-oldest: INSTALL = $(addprefix --constraint ,$(wildcard constraints-oldest.txt)) --editable ".[all]" --group test "pandas<3"
test-next: INSTALL = --upgrade --upgrade-strategy eager "zarr>=3.4.dev0" --editable ".[all]" --group test
test-minimal: FLAGS = -p tests.without_extras -rs
test-minimal: ONCE := $(filter-out conversion,$(ONCE))
test-minimal test-oldest test-next:
	@venv=".venv-$(@:test-%=%)" && "$$(.ci/find-python)" -m venv --clear "$$venv" && \
	  "$$venv/$(SCRIPTS)/python" -m pip install -qq --disable-pip-version-check --upgrade pip && \
	  "$$venv/$(SCRIPTS)/python" -m pip install -qq --disable-pip-version-check $(INSTALL) && \
	  "$$venv/$(SCRIPTS)/python" -m pytest $(PYTEST_FLAGS) $(FLAGS) $(ONCE:%=--ignore=tests/%) $(TESTS)

# Exchange indexes with osml-imagery-io, which has a separate environment.
test-peers: setup .venv-osml/ready
	@$(BIN)/python -m pytest tests/references/test_osml_layout.py

# The plug-ins of napari and bioio in the real ones, which are large: an environment of their own. Where Qt and Xvfb are
# installed, a window of napari is opened once.
test-integrations: .venv-integrations/ready
	@.venv-integrations/$(SCRIPTS)/python -m pytest tests/integrations \
	  "tests/test_examples.py::test_blocks[docs/howto/napari.md]" "tests/test_examples.py::test_blocks[docs/howto/bioio.md]" $(TESTS)

.venv-integrations/ready: pyproject.toml constraints.txt .ci/find-python .ci/install-packages
	@echo "setting up .venv-integrations"
	@"$$(.ci/find-python)" -m venv .venv-integrations
	@.ci/install-packages .venv-integrations/$(SCRIPTS)/python --editable ".[all,napari,bioio]" "napari[pyqt6]" ipython --group test
	@touch $@

# The tests of zarr and VirtualiZarr without anychunk, with it installed and with it enabled. SUITE: one of them.
test-neighbours:
	@"$$(.ci/find-python)" .ci/test-neighbours $(SUITE) $(TESTS)

lint: setup schemas
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

# The schemas are part of the package: no network.
SCHEMA = $(BIN)/check-jsonschema --quiet --builtin-schema vendor
schemas: setup
	@$(SCHEMA).github-workflows .github/workflows/*.yml
	@$(SCHEMA).github-issue-forms .github/ISSUE_TEMPLATE/[0-9]*.yml
	@$(SCHEMA).github-issue-config .github/ISSUE_TEMPLATE/config.yml
	@$(SCHEMA).dependabot .github/dependabot.yml
	@$(SCHEMA).citation-file-format CITATION.cff

types: setup
	@$(BIN)/mypy
	@$(BIN)/python .ci/check-readme

layers: setup
	@$(BIN)/lint-imports

# not --quiet: with it, --strict does not fail on warnings
docs: setup
	@$(BIN)/python .ci/generate-docs
	@out=$$(NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict 2>&1) || { echo "$$out"; exit 1; }

# Two jobs at a time where each leaves a core idle.
check: setup
	@$(MAKE) --no-print-directory --jobs 2 setup-others lint types layers
	@$(BIN)/coverage erase
	@$(MAKE) --no-print-directory test COVER=1 SLOW=1
	@$(MAKE) --no-print-directory check-rest SLOW=1 TESTS=

# What follows the tests, without fuzz-check if FUZZED=1. Coverage adds to that of earlier runs. Documentation after the
# tests, one of which checks that it is up to date.
check-rest: setup
	@$(MAKE) --no-print-directory guard
	@$(MAKE) --no-print-directory --jobs 2 coverage docs test-others $(if $(FUZZED),,fuzz-check)

bench: setup peers guard
	@$(BIN)/python -m bench $(if $(QUICK),--quick) $(NAMES)

# System packages that some tests compare with; those tests are skipped without them.
tools:
	@.ci/install-tools

# Write the wheel and the source distribution to dist.
wheel: setup
	@rm -rf dist && $(BIN)/python -m build --quiet .

# Fails if the tag, the version and the changelog disagree.
release-check: setup
	@$(BIN)/python .ci/check-release "$(TAG)"

# Run every page of docs/howto with the built wheel, in empty folders, without development tools.
try-wheel: setup
	@$(BIN)/python .ci/try-wheel

# Build the page of `anychunk serve` from viewer/ into the package. It is committed, so that users need no Node.
viewer: viewer-test
	@cd viewer && npm run --silent build

viewer-test: viewer-packages
	@cd viewer && npm run --silent lint && npm run --silent test

# not `npm ci`: it requires the packages of all other platforms in the lock file, which npm leaves out
viewer-packages:
	@cd viewer && npm install --silent --no-save

# Viv's loaders, which tests/server/test_web_clients.py reads served files with.
client-packages:
	@cd tests/clients && npm install --silent --no-save

# Readers that need a separate environment: osml-imagery-io needs an older zarr, the others register codecs
# under the same names as ours. Used by `make bench` and tests/references/test_osml_layout.py.
peers: .venv-osml/ready .venv-peers/ready

.venv-osml/ready: .ci/find-python
	@"$$(.ci/find-python)" -m venv .venv-osml
	@.venv-osml/bin/python -m pip install -qq "osml-imagery-io[zarr,virtualizarr]==0.2.2"
	@touch $@

.venv-peers/ready: .ci/find-python
	@"$$(.ci/find-python)" -m venv .venv-peers
	@.venv-peers/bin/python -m pip install -qq virtual-tiff==0.5.0 zarr-n5==0.3.1 async-geotiff==0.5.1
	@touch $@

format: setup
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

clean:
	rm -rf $(VENV) $(VENV)-* site demo build dist .coverage*

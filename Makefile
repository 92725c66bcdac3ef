# `make demo` and `make test` do all their own set-up on a fresh machine.
VENV := .venv
BIN := $(VENV)/bin
# two workers; tests of one file stay together, because they share servers and generated files
PYTEST_FLAGS := --numprocesses 2 --dist loadfile
PIP_FLAGS := -qq --disable-pip-version-check --no-compile --constraint constraints.txt
# the tests start hundreds of interpreters, each of which would compile everything it imports
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup setup-others tools peers try-wheel viewer viewer-test viewer-packages demo test test-others test-peers bare guard lint types layers docs check bench format clean
.DEFAULT_GOAL := test

setup: $(VENV)/ready

$(VENV)/ready: pyproject.toml constraints.txt .ci/find-python
	@python="$$(.ci/find-python)" && echo "setting up $(VENV) with $$python" && "$$python" -m venv $(VENV)
	@$(BIN)/python -m pip install $(PIP_FLAGS) --upgrade pip
	@$(BIN)/python -m pip install $(PIP_FLAGS) --editable ".[all]" --group dev
	@$(BIN)/python -m compileall -qq -j 2 src $(VENV)/lib || true  # two processes; pip uses one
	@touch $@

demo: setup
	@$(BIN)/python examples/demo.py

# TESTS: files, folders or names of tests, or @FILE with one per line; all by default
test: setup
	@$(BIN)/python -m pytest $(PYTEST_FLAGS) $(TESTS)

# Both commands of the README, in an environment with only Python and make.
bare:
	@.ci/bare

# Fails if a read is slower, relative to its peer, than recorded. Runs alone: other work would distort the measurement.
guard: setup
	@$(BIN)/python -m pytest bench/test_guard.py

# The same tests on every other supported interpreter found here. Left out (ONCE) is what does not depend on the
# interpreter: parts that run in separate processes (browser, servers, clusters), and long comparisons of compiled
# code (OpenJPEG, z5py, tensorstore, numpy).
ONCE := test_viewer.py test_page.py test_examples.py test_archive.py references/test_matrix.py test_osml.py \
  server_face conversion formats/test_jpeg2000.py formats/test_htj2k.py formats/test_n5_peers.py codecs/test_casting.py codecs/test_zarr_suite.py
OTHERS = for version in 3.12 3.13; do \
  $(BIN)/python -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] == '$$version')" || continue; \
  venv="$(VENV)-$$version";

# No ahead-of-time compilation here: most modules are never imported.
setup-others: setup
	@$(OTHERS) \
	  python="$$(.ci/find-python $$version 2>/dev/null)" || { echo "Python $$version not found: skipping its tests"; continue; }; \
	  if [ ! -e "$$venv/ready" ] || [ pyproject.toml -nt "$$venv/ready" ] || [ constraints.txt -nt "$$venv/ready" ]; then \
	    echo "setting up $$venv"; "$$python" -m venv "$$venv" && \
	    "$$venv/bin/python" -m pip install $(PIP_FLAGS) --upgrade pip && \
	    "$$venv/bin/python" -m pip install $(PIP_FLAGS) --editable ".[all]" --group test && touch "$$venv/ready" || exit 1; \
	  fi; \
	done

test-others: setup-others
	@$(OTHERS) \
	  [ -e "$$venv/ready" ] || continue; \
	  echo "testing on Python $$version"; "$$venv/bin/python" -m pytest $(PYTEST_FLAGS) $(ONCE:%=--ignore=tests/%) || exit 1; \
	done

# Exchange indexes with osml-imagery-io, which has a separate environment.
test-peers: setup .venv-osml/ready
	@$(BIN)/python -m pytest tests/test_osml.py

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: setup
	@$(BIN)/mypy

layers: setup
	@$(BIN)/lint-imports

# not --quiet: with it, --strict does not fail on warnings
docs: setup
	@$(BIN)/python .ci/generate-docs
	@out=$$(NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict 2>&1) || { echo "$$out"; exit 1; }

# Two jobs at a time, except the tests, which use both cores. Documentation last: a test checks that it is up to date.
check: setup
	@$(MAKE) --no-print-directory --jobs 2 setup-others lint types layers
	@$(MAKE) --no-print-directory test test-others guard docs

bench: setup peers guard
	@$(BIN)/python -m bench $(if $(QUICK),--quick) $(NAMES)

# System packages that some tests compare with; those tests are skipped without them.
tools:
	@.ci/install-tools

# Run every page of docs/howto with the built wheel, in empty folders, without development tools.
try-wheel: setup
	@$(BIN)/python .ci/try-wheel

# Build the page of `anychunk serve` from viewer/ into the package. It is committed, so that users need no Node.
viewer: viewer-test
	@cd viewer && npm run --silent build

viewer-test: viewer-packages
	@cd viewer && npm run --silent test

# not `npm ci`: it requires the packages of all other platforms in the lock file, which npm leaves out
viewer-packages:
	@cd viewer && npm install --silent --no-save

# Readers that need a separate environment: osml-imagery-io needs an older zarr, the others register codecs
# under the same names as ours. Used by `make bench` and tests/test_osml.py.
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
	rm -rf $(VENV) $(VENV)-3.* site demo build dist

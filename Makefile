# `make demo` and `make test` each do all the set-up on a fresh machine.
VENV := .venv
BIN := $(VENV)/bin
# two at a time, a file's tests together: they share servers and made files
PYTEST_FLAGS := --numprocesses 2 --dist loadfile
PIP_FLAGS := -qq --disable-pip-version-check --no-compile --constraint constraints.txt
# the tests start hundreds of interpreters, each of which would compile all that it imports
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup setup-others tools peers try-wheel viewer viewer-test viewer-packages demo test test-others test-peers bare guard lint types layers docs check bench format clean
.DEFAULT_GOAL := test

setup: $(VENV)/ready

$(VENV)/ready: pyproject.toml constraints.txt .ci/find-python
	@python="$$(.ci/find-python)" && echo "setting up $(VENV) with $$python" && "$$python" -m venv $(VENV)
	@$(BIN)/python -m pip install $(PIP_FLAGS) --upgrade pip
	@$(BIN)/python -m pip install $(PIP_FLAGS) --editable ".[all]" --group dev
	@$(BIN)/python -m compileall -qq -j 2 src $(VENV)/lib || true  # two at a time; pip does one
	@touch $@

demo: setup
	@$(BIN)/python examples/demo.py

# TESTS: files, folders or names of tests, or @FILE with one a line; all by default
test: setup
	@$(BIN)/python -m pytest $(PYTEST_FLAGS) $(TESTS)

# Both commands of the README where there is nothing but Python and make.
bare:
	@.ci/bare

# No read slower against its peer than was recorded. Alone: other work on the machine spoils what it measures.
guard: setup
	@$(BIN)/python -m pytest bench/test_guard.py

# The same tests on every other supported interpreter that this machine has, but for those of parts
# that run in processes of their own (a browser, servers, clusters), and long comparisons
# of what compiled code computes (OpenJPEG's, z5py's, tensorstore's, numpy's), whatever interpreter calls it.
ONCE := test_viewer.py test_page.py test_examples.py test_archive.py references/test_matrix.py test_osml.py \
  server_face conversion formats/test_jpeg2000.py formats/test_htj2k.py formats/test_n5_peers.py codecs/test_casting.py codecs/test_zarr_suite.py
OTHERS = for version in 3.12 3.13; do \
  $(BIN)/python -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] == '$$version')" || continue; \
  venv="$(VENV)-$$version";

# Nothing is compiled there ahead of its first import: most of it never is.
setup-others: setup
	@$(OTHERS) \
	  python="$$(.ci/find-python $$version 2>/dev/null)" || { echo "no Python $$version here: not tested on it"; continue; }; \
	  if [ ! -e "$$venv/ready" ] || [ pyproject.toml -nt "$$venv/ready" ] || [ constraints.txt -nt "$$venv/ready" ]; then \
	    echo "setting up $$venv"; "$$python" -m venv "$$venv" && \
	    "$$venv/bin/python" -m pip install $(PIP_FLAGS) --upgrade pip && \
	    "$$venv/bin/python" -m pip install $(PIP_FLAGS) --editable ".[all]" --group test && touch "$$venv/ready" || exit 1; \
	  fi; \
	done

test-others: setup-others
	@$(OTHERS) \
	  [ -e "$$venv/ready" ] || continue; \
	  echo "tests on Python $$version"; "$$venv/bin/python" -m pytest $(PYTEST_FLAGS) $(ONCE:%=--ignore=tests/%) || exit 1; \
	done

# Indexes exchanged with osml-imagery-io, in an environment of its own.
test-peers: setup .venv-osml/ready
	@$(BIN)/python -m pytest tests/test_osml.py

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: setup
	@$(BIN)/mypy

layers: setup
	@$(BIN)/lint-imports

docs: setup
	@$(BIN)/python .ci/generate-docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Two at a time, until the tests, which take both. The documentation last: a test asks whether it is up to date.
check: setup
	@$(MAKE) --no-print-directory --jobs 2 setup-others lint types layers
	@$(MAKE) --no-print-directory test test-others guard docs

bench: setup peers guard
	@$(BIN)/python -m bench $(if $(QUICK),--quick) $(NAMES)

# What some tests compare with, from the system's packages; without them those tests skip.
tools:
	@.ci/install-tools

# The built wheel, in empty folders and without any tool of ours, on every page of docs/howto.
try-wheel: setup
	@$(BIN)/python .ci/try-wheel

# The page of `anychunk serve`, from viewer/ into the package: committed, so that users need no Node.
viewer: viewer-test
	@cd viewer && npm run --silent build

viewer-test: viewer-packages
	@cd viewer && npm run --silent test

# not `npm ci`: it wants the packages of every other platform in the lock file, and npm leaves them out
viewer-packages:
	@cd viewer && npm install --silent --no-save

# Readers that cannot live beside us: osml-imagery-io wants an older zarr, the others register codecs
# under names of ours. For `make bench`, and for tests/test_osml.py.
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

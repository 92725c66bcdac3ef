# `make demo` and `make test` do all their own set-up on a fresh machine.
VENV := .venv
SCRIPTS := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
BIN := $(VENV)/$(SCRIPTS)
# Three workers on two cores, because many tests wait for servers and child processes. Tests of one file stay together,
# because they share servers and generated files.
WORKERS := 3
PYTEST := -m pytest --numprocesses $(WORKERS) --dist loadfile
# the tests start hundreds of interpreters, each of which would compile everything it imports
unexport PYTHONDONTWRITEBYTECODE
# an absolute path, because child processes run elsewhere
export COVERAGE_FILE := $(CURDIR)/.coverage
SERVE := packages/anychunk-serve
# all of them in one call, because extras of the first name the others, which no index has
PACKAGES = --editable ".[all]" --editable $(SERVE) --editable packages/anychunk-plugins

.PHONY: setup demo test test-all test-in check coverage lint types layers docs format guard bench fuzz fuzz-check fuzz-native tools viewer viewer-test wheel release-check
.DEFAULT_GOAL := test

setup: $(VENV)/ready

$(VENV)/ready: pyproject.toml $(wildcard packages/*/pyproject.toml) constraints.txt .ci/find-python .ci/install-packages setup.py $(wildcard src/anychunk/native/*.[ch])
	@python="$$(.ci/find-python)" && echo "setting up $(VENV) with $$python" && "$$python" -m venv $(VENV)
	@.ci/install-packages $(BIN)/python $(PACKAGES) --group dev
	@touch $@

demo: setup
	@$(BIN)/python examples/demo.py

# All tests but those that take longer than 20 s. TESTS: files, folders or names of tests, options of pytest.
test: setup
	@$(BIN)/python $(PYTEST) -m "not slow" $(TESTS)

# COVER=1: record which lines run, child processes included, for `make coverage`
test-all: setup
	@$(BIN)/python $(if $(COVER),-m coverage run )$(PYTEST) $(TESTS)

# The tests in another environment, see .ci/environment: minimal, oldest, next, integrations, osml, neighbours, or an
# interpreter (3.13). TESTS: some of them.
test-in:
	@.ci/environment test "$(ENV)" $(TESTS)

check: lint types layers
	@$(BIN)/coverage erase && $(MAKE) test-all COVER=1 && $(MAKE) coverage guard docs fuzz-check

# Fails if fewer lines ran than pyproject.toml says. `coverage report` then lists them by file, `coverage html` by line.
coverage: setup
	@$(BIN)/coverage combine --quiet
	@total=$$($(BIN)/coverage report --format=total); code=$$?; echo "coverage: $$total % of lines"; exit $$code

# The schemas are part of the package: no network.
SCHEMA = $(BIN)/check-jsonschema --quiet --builtin-schema vendor
lint: setup
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@$(SCHEMA).github-workflows .github/workflows/*.yml
	@$(SCHEMA).github-issue-forms .github/ISSUE_TEMPLATE/[0-9]*.yml
	@$(SCHEMA).github-issue-config .github/ISSUE_TEMPLATE/config.yml
	@$(SCHEMA).dependabot .github/dependabot.yml
	@$(SCHEMA).citation-file-format CITATION.cff

types: setup
	@$(BIN)/mypy && $(BIN)/python .ci/check-readme

layers: setup
	@$(BIN)/lint-imports

# not --quiet: with it, --strict does not fail on warnings
docs: setup
	@$(BIN)/python .ci/generate-docs
	@out=$$(NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict 2>&1) || { echo "$$out"; exit 1; }

format: setup
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

# Fails if a read is slower, relative to its peer, than recorded. Runs alone: other work would distort the measurement.
guard: setup
	@$(BIN)/python -m pytest bench/test_guard.py

bench: setup guard
	@.ci/environment make osml && .ci/environment make peers
	@$(BIN)/python -m bench $(if $(QUICK),--quick) $(NAMES)

# Damaged files of every format, indexes and codecs; findings and counts are kept in ~/.cache/anychunk-fuzz.
# MINUTES: how long; SEED: of the random numbers; FORMATS: separated by commas; REAL: a folder of real files that are
# damaged, too. A run continues where the last one with the same seed ended. SUMMARY=1 adds up all runs.
fuzz: setup
	@$(BIN)/python -m fuzz $(if $(SUMMARY),--summary,--minutes $(or $(MINUTES),1) --seed $(or $(SEED),0) $(if $(FORMATS),--formats $(FORMATS)) $(if $(REAL),--real $(REAL)))

# The same 1,000 inputs every time, for three minutes at most; fails on any finding.
fuzz-check: setup
	@state=$$(mktemp -d) && $(BIN)/python -m fuzz --minutes 3 --inputs 1000 --seed 1 --start 0 --state $$state; code=$$?; rm -rf $$state; exit $$code

# The compiled module under AddressSanitizer, with a C compiler. GUIDED: a parser (tiff, nitf, jpeg2000, jnrrd, npy),
# guided by coverage with atheris instead.
fuzz-native: setup
	@$(if $(GUIDED),.ci/environment guided $(GUIDED) $(or $(MINUTES),1),$(BIN)/python -m fuzz.native --minutes $(or $(MINUTES),1) --seed $(or $(SEED),0))

# What some tests compare with and pip does not install; those tests are skipped without it.
tools:
	@.ci/install-tools

# Build the page of `anychunk serve` from viewer/ into anychunk-serve. It is committed, so that users need no Node.
viewer: viewer-test
	@cd $(SERVE)/viewer && npm run --silent build

viewer-test: tools
	@cd $(SERVE)/viewer && npm run --silent lint && npm run --silent test

# Write the wheels and the source distributions of all packages to dist. TRY=1: run every page of docs/howto with them,
# in empty folders, without development tools.
wheel: setup
	@rm -rf dist && for package in . packages/*; do $(BIN)/python -m build --quiet --outdir dist $$package || exit 1; done
	@$(if $(TRY),$(BIN)/python .ci/try-wheel)

# Fails if the tag (TAG=vX.Y.Z), the versions and the changelog disagree, or the release has no date.
release-check: setup
	@test "$(TAG)" = "v$$($(BIN)/python -c 'import anychunk; print(anychunk.__version__)')" || { echo "$(TAG): another version"; exit 1; }
	@grep -qE '^## $(TAG:v%=%) \([-0-9]{10}\)$$' CHANGELOG.md || { echo "CHANGELOG.md: no date of $(TAG)"; exit 1; }
	@$(BIN)/python -m pytest tests/project/test_repository.py -k "agree or one_version"

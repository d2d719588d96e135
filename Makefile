# The targets are what CI runs. Each makes .venv with the pinned versions on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# The real Milvus server, in an environment of its own: it needs other versions than the client.
MILVUS := .venv-milvus
MILVUS_INSTALLED := $(MILVUS)/.installed
LOCK := .venv-lock

# A small environment for the demonstration: the core and what draws its pictures.
DEMO := .venv-demo
DEMO_INSTALLED := $(DEMO)/.installed

# The core's tests need no server, browser, torch or reference data, and run on every Python.
CORE := .venv-core
CORE_FOLDERS := classifier decisions displays embedding_files forms gallery heads index metrics unknowns
CORE_FILES := audit bursts calibration calibration_logistic comparison demo drift hits labels logistic loo \
	minimization model_file neighbors posterior posterior_temperature probes public_names query_differences \
	rules shift table temperature theory wrong_labels
CORE_TESTS := $(CORE_FOLDERS:%=tests/%) $(CORE_FILES:%=tests/test_%.py) \
	tests/engines/test_embedded_engine.py tests/engines/test_sqlite_engine.py tests/cli/test_cli_fit.py
UV := uv==0.13.8

.PHONY: demo reproduce reproduce-robust ablation test test-core test-oldest lint format docs wheel bench bench-quality \
	size lock milvus-server clean

demo: $(DEMO_INSTALLED)
	$(DEMO)/bin/nearsure demo

reproduce: $(INSTALLED)
	$(BIN)/nearsure reproduce glyphs --output reproduced/glyphs

reproduce-robust: $(INSTALLED)
	$(BIN)/nearsure reproduce glyphs --robust --output reproduced/glyphs-robust

ablation: $(INSTALLED)
	$(BIN)/nearsure ablation --output reproduced/ablation

test: lint milvus-server
	# One thread a worker: more of them than cores mostly wait for each other, busily.
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist loadfile --doctest-modules tests src README.md docs

# On another Python: make test-core PYTHON=python3.13
RESOLUTION := highest
test-core:
	$(PYTHON) -m venv --clear $(CORE)
	$(CORE)/bin/pip install --quiet $(UV)
	$(CORE)/bin/uv pip install --quiet --python $(CORE) --resolution $(RESOLUTION) --group test --editable '.[plot,parquet]'
	OMP_NUM_THREADS=1 $(CORE)/bin/pytest -n auto --dist loadfile $(CORE_WARNINGS) $(CORE_TESTS)

# The oldest versions that pyproject.toml allows. They deprecate what newer ones have removed, and use it.
test-oldest: RESOLUTION := lowest-direct
test-oldest: CORE_WARNINGS := -W ignore::DeprecationWarning -W ignore::FutureWarning
test-oldest: test-core

lint: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

wheel: $(INSTALLED)
	$(BIN)/hatchling build

bench: $(INSTALLED) milvus-server
	$(BIN)/python -m benchmarks

bench-quality: $(INSTALLED)
	$(BIN)/python -m benchmarks --quality

size:
	@$(PYTHON) tools/size.py src

# Every package is verified by its hash but torch, whose wheels differ by index and bring libraries
# of their own; it comes with the second command, which finds all others there. The lock names a pip
# that knows dependency groups.
$(INSTALLED): pyproject.toml constraints.txt requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-deps --require-hashes --requirement requirements.lock
	$(BIN)/pip install --quiet --constraint constraints.txt --build-constraint constraints.txt --group dev --editable '.[all]'
	touch $@

$(DEMO_INSTALLED): pyproject.toml
	$(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/pip install --quiet --no-compile --editable '.[plot]'
	touch $@

# Where it cannot be installed, its tests are skipped and say so.
milvus-server:
	@test -e $(MILVUS_INSTALLED) || $(MAKE) $(MILVUS_INSTALLED) || rm -rf $(MILVUS)

$(MILVUS_INSTALLED):
	$(PYTHON) -m venv $(MILVUS)
	$(MILVUS)/bin/pip install --quiet --no-deps --require-hashes --requirement milvus.lock
	touch $@

# After a change of constraints.txt: the hashes of all files of these versions on the index.
LOCKED := $(LOCK)/bin/uv pip compile --quiet --no-deps --generate-hashes --no-header --no-annotate
lock:
	$(PYTHON) -m venv $(LOCK)
	$(LOCK)/bin/pip install --quiet $(UV)
	grep -v '^torch==' constraints.txt | $(LOCKED) --output-file requirements.lock -
	echo milvus==2.3.5 | $(LOCKED) --output-file milvus.lock -
	rm -rf $(LOCK)

clean:
	rm -rf $(VENV) $(MILVUS) $(DEMO) $(CORE) .mypy_cache .ruff_cache .pytest_cache demo-output reproduced runs

# The targets are what CI runs. Each makes .venv with the pinned versions on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# The real Milvus server, in an environment of its own: it needs other versions than the client.
MILVUS := .venv-milvus
MILVUS_INSTALLED := $(MILVUS)/.installed

.PHONY: demo reproduce reproduce-robust ablation test lint format docs bench milvus-server clean

demo: $(INSTALLED)
	$(BIN)/python -m nearsure.demo

reproduce: $(INSTALLED)
	$(BIN)/nearsure reproduce glyphs --output reproduced/glyphs

reproduce-robust: $(INSTALLED)
	$(BIN)/nearsure reproduce glyphs --robust --output reproduced/glyphs-robust

ablation: $(INSTALLED)
	$(BIN)/nearsure ablation --output reproduced/ablation

test: lint milvus-server
	# One thread a worker: more of them than cores mostly wait for each other, busily.
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist loadfile --doctest-modules tests src README.md docs

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

bench: $(INSTALLED) milvus-server
	$(BIN)/python -m benchmarks

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --editable '.[plot,cli,parquet,report,serve,text,train,robust,postgres,milvus,batch,docs,dev]'
	touch $@

# Where it cannot be installed, its tests are skipped and say so.
milvus-server:
	@test -e $(MILVUS_INSTALLED) || $(MAKE) $(MILVUS_INSTALLED) || rm -rf $(MILVUS)

$(MILVUS_INSTALLED):
	$(PYTHON) -m venv $(MILVUS)
	$(MILVUS)/bin/pip install --quiet milvus==2.3.5
	touch $@

clean:
	rm -rf $(VENV) $(MILVUS) .mypy_cache .ruff_cache .pytest_cache demo-output reproduced runs

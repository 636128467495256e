# `make run`: set up, then the main job. `make test`: set up, then the tests. `make check`: what CI runs.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# How many processes run the tests, a file at a time; 3 GB each with what they start.
WORKERS ?= 2
# What mypy knows of files that have not changed, for all clones as compiled kernels are: a minute of lint.
export MYPY_CACHE_DIR ?= $(HOME)/.cache/graphmill/mypy

.PHONY: run test slow containers gpu check lint docs setup developer format clean

run: setup
	$(BIN)/graphmill run quickstart

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt scripts/install.sh
	PYTHON=$(PYTHON) bash scripts/install.sh
	touch $(STAMP)

# What tests are skipped without: programs of Debian (as root, or by sudo), Triton (1 GB), packages for tests alone.
developer:
	$(if $(filter-out 0,$(shell id -u)),sudo) bash scripts/debian.sh --developer
	PYTHON=$(PYTHON) bash scripts/install.sh --developer
	touch $(STAMP)

test: setup
	$(BIN)/python -m pytest --numprocesses $(WORKERS)

# About an hour and a half, one after another: they measure memory and kill what others would wait for.
slow: setup
	$(BIN)/python -m pytest -m slow --ignore tests/docker

# Images are built and run by podman, as root: about an hour, and 10 GB that stay for the next time (`podman rmi --all`).
containers: setup
	bash scripts/debian.sh --containers
	$(BIN)/python -m pytest -m slow tests/docker

# What only a GPU can show; skipped without one.
gpu: setup
	$(BIN)/python -m tests.gpu

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/vulture

# Pages of docs/ into build/docs; a dead link or any other warning is an error.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --config-file docs/mkdocs.yml

# Both at once: tests wait for servers and ranks, and lint has the cores meanwhile.
check: setup
	$(MAKE) --jobs 2 lint test

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv build *.egg-info .mypy_cache .ruff_cache .pytest_cache
	find benchmarks examples models tasks tests -name __pycache__ -prune -exec rm -r {} +

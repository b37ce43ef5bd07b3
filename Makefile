# Everything works on a fresh machine with Python 3.11 or later, git and make.
# The virtual environment is made on first use and again when pyproject.toml changes.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python3.14; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo $$python; break; }; done)

.PHONY: help venv demo test pytest gpu lint types layers format bench clean

help:
	@echo "make demo    set up, then train a network on handwritten digits with 2 workers"
	@echo "make test    set up, then format and lint, types, import layers and all tests"
	@echo "make gpu     run the tests that need a GPU"
	@echo "make format  rewrite the sources in the project's format"
	@echo "make bench   measure against PyTorch, and JAX and TensorFlow where installed"
	@echo "make venv    only set up .venv"
	@echo "make clean   remove .venv and caches"

venv: $(STAMP)

# One pip command, so that every package agrees on the same torch.
$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { echo "magmath needs Python 3.11 or later; none found on the PATH." \
		"Install one, or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "$(PYTHON) cannot make a virtual environment." \
		"On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --editable ".[dev,data]"
	@touch $@

demo: $(STAMP)
	$(BIN)/magmath train mlp --data digits --workers 2 --width 512 --batch 32 \
		--learning-rate 3e-3 --output runs/digits

# Types take one processor: they are checked while the tests run.
test: lint layers
	@$(MAKE) --no-print-directory --jobs=2 types pytest

pytest: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadgroup $(PYTEST_OPTIONS)

gpu: $(STAMP)
	$(BIN)/python -m pytest tests/gpu

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP)
	$(BIN)/mypy

layers: $(STAMP)
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)
	$(BIN)/magmath bench layers

clean:
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

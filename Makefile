# Everything here needs only Python 3.11+, make and the package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
COMPARED := $(VENV)/.installed-compared

.PHONY: demo test test-slow test-wheel check format wheel docs bench record-counts reproduce clean help

help:
	@echo "make demo        test an image of noise and one with a signal, draw both to demo/demo.png"
	@echo "make test        run the tests"
	@echo "make test-slow   run the long statistical tests, best on a GPU"
	@echo "make test-wheel  build the wheel, install it into a new environment and run it there"
	@echo "make check       lint, formatting, types"
	@echo "make format      apply the lint fixes and the formatting"
	@echo "make wheel       build the wheel into dist/"
	@echo "make docs        build the documentation, with its notebooks run: build/docs/index.html"
	@echo "make bench       measure costs as ratios, compare with the last run: bench/history.jsonl and bench/history.png"
	@echo "make record-counts record how many evaluations the search takes, which make test compares with"
	@echo "make reproduce   the paper's experiments with few images each: reproduction/report/index.html"
	@echo "make clean       remove the environment and everything made here"

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "attentest needs Python 3.11 or newer, but $(PYTHON) is " + sys.version.split()[0] + ": set PYTHON=/path/to/python3.11")'
	@echo "installing into $(VENV), which takes a few minutes"
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

# What the tests compare with. timm lies beside the environment, not in it: tests/timm_models/conftest.py says why.
$(COMPARED): tests/timm_models/requirements.txt tests/independent_requirements.txt $(INSTALLED)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(VENV)/timm -r tests/timm_models/requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -r tests/independent_requirements.txt
	@touch $@

demo: $(INSTALLED)
	$(BIN)/attentest demo --out demo/demo.png

test: $(INSTALLED) $(COMPARED)
	$(BIN)/pytest -n auto --dist worksteal

test-slow: $(INSTALLED) $(COMPARED)
	$(BIN)/pytest -m slow -s

test-wheel: $(INSTALLED)
	@mkdir -p build
	$(BIN)/pytest -m wheel --basetemp build/test-wheel tests/package/test_wheel.py

wheel: $(INSTALLED)
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

docs: $(INSTALLED)
	$(BIN)/python docs/build.py

bench: $(INSTALLED)
	$(BIN)/attentest bench --history bench/history.jsonl --figure bench/history.png

record-counts: $(INSTALLED)
	$(BIN)/attentest bench counts --record src/attentest/studies/benchmark/recorded_counts.json

reproduce: $(INSTALLED)
	$(BIN)/attentest reproduce --out reproduction

check: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(INSTALLED)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf $(VENV) demo bench reproduction brain build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

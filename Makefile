# Everything here needs only Python 3.11+, make and the package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= auto
# Each target installs what it needs, and no more, into the one environment; these files say what is there.
PLOTS := $(VENV)/.installed-plots
CHECK := $(VENV)/.installed-check
TEST := $(VENV)/.installed-test
DOCS := $(VENV)/.installed-docs
COMPARED := $(VENV)/.installed-compared
# Compiling all of torch and Ray would take most of the time; what is imported is compiled then.
INSTALL := PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check --no-compile

.NOTPARALLEL:  # two installations into one environment
unexport PYTHONDONTWRITEBYTECODE  # or every process that a test starts compiles the package again

.PHONY: demo test test-slow test-wheel check format wheel docs bench record-counts reproduce clean help

help:
	@echo "make demo        test an image of noise and one with a signal, draw both to demo/demo.png"
	@echo "make test        run the tests"
	@echo "make test-slow   run the long tests, with fewer images than on a GPU (WORKERS=1 there)"
	@echo "make test-wheel  build the wheel, install it into a new environment and run it there"
	@echo "make check       lint, formatting, types"
	@echo "make format      apply the lint fixes and the formatting"
	@echo "make wheel       build the wheel into dist/"
	@echo "make docs        build the documentation, with its notebooks run: build/docs/index.html"
	@echo "make bench       measure costs as ratios, compare with the last run: bench/history.jsonl and bench/history.png"
	@echo "make record-counts record how many evaluations the search takes, which make test compares with"
	@echo "make reproduce   the paper's experiments with few images each: reproduction/report/index.html"
	@echo "make clean       remove the environment and everything made here"

$(PLOTS): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "attentest needs Python 3.11 or newer, but $(PYTHON) is " + sys.version.split()[0] + ": set PYTHON=/path/to/python3.11")'
	@echo "installing into $(VENV), which takes a minute or two"
	$(PYTHON) -m venv $(VENV)
	@# The pip that comes with Python 3.11 takes twice as long to resolve what to install.
	$(INSTALL) --upgrade pip
	$(INSTALL) -e '.[plots]'
	@touch $@

$(CHECK) $(TEST) $(DOCS): $(VENV)/.installed-%: $(PLOTS)
	@echo "installing what make $* needs"
	$(INSTALL) -e '.[$*]'
	@touch $@

# What the tests compare with. timm lies beside the environment, not in it: tests/timm_models/conftest.py says why.
$(COMPARED): tests/timm_models/requirements.txt tests/independent_requirements.txt $(TEST)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile --no-deps --upgrade --target $(VENV)/timm -r tests/timm_models/requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile --no-deps -r tests/independent_requirements.txt
	@touch $@

demo: $(PLOTS)
	$(BIN)/attentest demo --out demo/demo.png

test: $(COMPARED)
	$(BIN)/pytest -n auto --dist worksteal

test-slow: $(COMPARED)
	$(BIN)/pytest -m slow -n $(WORKERS) --dist worksteal -rP

test-wheel: $(CHECK)
	@mkdir -p build
	$(BIN)/pytest -m wheel --basetemp build/test-wheel tests/package/test_wheel.py

wheel: $(PLOTS)
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

docs: $(DOCS)
	$(BIN)/python docs/build.py

bench: $(PLOTS)
	$(BIN)/attentest bench --history bench/history.jsonl --figure bench/history.png

record-counts: $(PLOTS)
	$(BIN)/attentest bench counts --record src/attentest/studies/benchmark/recorded_counts.json

reproduce: $(PLOTS)
	$(BIN)/attentest reproduce --out reproduction

check: $(CHECK)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(CHECK)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf $(VENV) demo bench reproduction brain build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

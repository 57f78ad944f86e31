# `make demo` and `make test` work on a bare machine with Python 3.11+ and make.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet install

.PHONY: setup demo test lint clean

setup: .venv/ready-dev

demo: .venv/ready
	$(BIN)/python examples/harry_potter.py
	$(BIN)/softdlm compare --dtype native --max-new-tokens 64 --tokens-per-step 4 \
		'Jane owns 7 yellow pears and 24 black pears. She makes it three times as many. How many pears does she still need to reach 139?'
	@echo 'That problem was picked because the methods differ. Now 100 held-out ones, not picked:'
	$(BIN)/softdlm eval --dtype native --task mini-math --limit 100 --tokens-per-step 4 --out demo/results --plot demo/accuracy.png
	@echo 'Accuracy against passes: demo/accuracy.png'

test: lint
	$(BIN)/pytest -n 2

lint: .venv/ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

clean:
	rm -rf .venv dist build

# torch first and pinned: a newer one drags in gigabytes of CUDA libraries on a laptop.
.venv/ready: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) torch==2.13.0
	$(PIP) -e ".[plots]"
	touch $@

.venv/ready-dev: .venv/ready
	$(PIP) -e ".[dev]"
	touch $@

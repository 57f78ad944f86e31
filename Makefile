# `make demo` and `make test` work on a bare machine with Python 3.11+ and make.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet install
TORCH := torch==2.13.0
CPU_WHEELS := https://download.pytorch.org/whl/cpu

.PHONY: setup demo test lint clean

setup: .venv/ready-dev

demo: .venv/ready
	$(BIN)/python examples/harry_potter.py
	$(BIN)/softdlm compare --dtype native --max-new-tokens 64 --tokens-per-step 4 \
		'Noah has 32 buttons. Then Noah gives away 15. Next, Noah wins 39 buttons. Ivy has 51 buttons. By how many does he lead?'
	@echo 'This problem was picked: vanilla is wrong (the answer is 5), the other two are right. Now the first 100 test problems, not picked:'
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

# The public index brings gigabytes of CUDA libraries with torch, so a machine without an NVIDIA GPU tries the CPU build first.
.venv/ready: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	command -v nvidia-smi >/dev/null || $(PIP) --retries 0 --timeout 10 --index-url $(CPU_WHEELS) $(TORCH) 2>/dev/null || \
		echo 'The CPU build of PyTorch cannot be reached; taking the build of the default index (larger on Linux).'
	$(PIP) $(TORCH)
	$(PIP) -e ".[plots]"
	touch $@

.venv/ready-dev: .venv/ready
	$(PIP) -e ".[dev]"
	touch $@

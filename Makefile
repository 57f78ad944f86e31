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
	@echo 'This problem was picked: vanilla is wrong (the answer is 5), the other two are right. Now the first 80 test problems, not picked, and the model itself recommends the last row:'
	$(BIN)/softdlm eval --dtype native --task mini-math --limit 80 --tokens-per-step 4 --own --out demo/results --plot demo/accuracy.png
	@echo "Right and consistent answers against passes: demo/accuracy.png"
	@echo "Next: docs/tutorial.md, ten minutes to a rule of your own. $(BIN)/softdlm chat, a conversation with the canvas live."
	@echo "In a browser: $(PIP) '.[serve]' and then $(BIN)/softdlm serve"

test: lint
	$(BIN)/pytest -n 2

lint: .venv/ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/codespell
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/ci.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/*.yml
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf .venv dist build

# torch first and pinned. On Linux the package index's own build brings 2.7 GB of CUDA libraries: without a GPU,
# PyTorch's CPU build is tried first, once and shortly.
.venv/ready: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@if [ "$$(uname)" != Linux ] || command -v nvidia-smi > /dev/null; then \
		echo "torch: from the configured package index"; $(PIP) $(TORCH); \
	elif $(PIP) --retries 0 --timeout 5 --index-url $(CPU_WHEELS) $(TORCH) 2> /dev/null; then \
		echo "torch: no GPU found, PyTorch's CPU build"; \
	else \
		echo "torch: PyTorch's CPU builds are out of reach, from the configured package index"; $(PIP) $(TORCH); \
	fi
	$(PIP) -e ".[plots]"
	touch $@

.venv/ready-dev: .venv/ready
	$(PIP) -e ".[dev]"
	touch $@

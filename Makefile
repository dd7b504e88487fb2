# Works from nothing: Python (3.10 to 3.13), make and g++ are enough; all else goes into .venv.
#   make PYTHON=python3.12 test    uses another Python

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.installed-docs
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# make test-gpu INSTALL=no: with PYTHON and the PyTorch that it has; nothing is installed
INSTALL ?= yes
# Of pure Python: what a machine with PyTorch and pytest, but no registry, may lack of what the tests import
GPU_PACKAGES := annotated-doc click hypothesis lark markdown-it-py mdurl pygments pytest-timeout rich shellingham sortedcontainers typer
HEADERS := $(shell find templates tests/emulator tests/gpu benchmarks -name '*.h' -o -name '*.cu' -o -name '*.cpp')

# Files of one part of the tests, or other options for pytest: make test TESTS=tests/plan
TESTS ?=
# Processes that run tests side by side, two more than cores, up to 8, since tests wait; 0 for none but pytest itself: make test WORKERS=0
WORKERS ?= $(shell n=$$(nproc); echo $$((n < 6 ? n + 2 : 8)))
# Each takes whole files, so that what the tests of a file share is made once; LONGEST of tests/conftest.py come first.
BESIDE := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# Of make demo: hosts, and the rate of their links, as tc takes it: make demo RANKS=8 RATE=1gbit
RANKS ?= 4
RATE ?= 100mbit
# Points of the suite to measure, instead of all: make bench POINTS='rows-8 rows-16'
POINTS ?=
# What the lab measures: make bench-lab LAB='--ranks 4 --density 0.1 --json lab.json'
LAB ?=
# Of make soak
SECONDS ?= 3600
# Of make faults, not empty to go on from the seeds that its report has: make faults RESUME=yes
RESUME ?=
# Of make fuzz, for each property: make fuzz INPUTS=500 for a tenth
INPUTS ?= 5000
# What generated-diff compares with: make generated-diff REVISION=main
REVISION ?= HEAD

# What Python has compiled is kept, whatever the environment says: interpreters then start in half the time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-gpu gpu-packages gpu-half-hour fuzz faults soak mutation lint format tables bench bench-choice bench-convergence bench-dense bench-strategies bench-parts bench-lab reproduce strategies generated-diff wheel-check docs clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(STAMP)  ## train a language model under DDP and with zenc, on loopback and on a slow network: 2 to 4 minutes
	$(BIN)/python -m benchmarks.lab.demo --ranks $(RANKS) --rate $(RATE)

test: lint  ## lint, then the tests that take seconds each
	$(BIN)/python -m pytest $(BESIDE) -m "not slow" $(TESTS)

test-all: lint wheel-check  ## lint, all tests, and the wheel in an empty environment
	$(BIN)/python -m pytest $(BESIDE) $(TESTS)

test-gpu: $(if $(filter no,$(INSTALL)),,$(STAMP))  ## what needs a GPU: kernels, ranks that share it, DDP; INSTALL=no uses the PyTorch of PYTHON
	$(if $(filter no,$(INSTALL)),$(PYTHON),$(BIN)/python) tests/gpu/run.py $(TESTS)

gpu-packages: $(STAMP)  ## what test-gpu INSTALL=no needs beside PyTorch, into .gpu/packages: for machines without a registry
	$(PIP) --upgrade --no-deps --target .gpu/packages $(GPU_PACKAGES)

gpu-half-hour: $(if $(filter no,$(INSTALL)),,$(STAMP))  ## on a machine with a GPU: check and measure what matters most, into build/gpu
	tests/gpu/half_hour.sh $(if $(filter no,$(INSTALL)),$(PYTHON),$(BIN)/python)

fuzz: $(STAMP)  ## each property of any input on 5,000 inputs, which takes an hour or two; INPUTS=500 for less
	ZENC_FUZZ_INPUTS=$(INPUTS) $(BIN)/python -m pytest -m fuzz -n auto --hypothesis-profile=long --timeout=0 -o faulthandler_timeout=0 $(TESTS)

faults: $(STAMP)  ## play 100,000 seeds of ranks that die, freeze or do other things over a simulated network: 10 minutes of a processor
	$(BIN)/python -m tests.faults --seeds 100000 --json tests/golden/faults/seeds.json $(if $(RESUME),--resume)

soak: $(STAMP)  ## processes that sum for an hour while some are stopped, killed or cut off; SECONDS=600 for less
	$(BIN)/python -m tests.soak --seconds $(SECONDS) --json tests/golden/faults/soak.json

mutation: $(STAMP)  ## break 140 lines, some of every room, one at a time, and report which quick tests notice: hours
	$(BIN)/python -m tests.mutation.run --seed 1 --count 140 --json tests/golden/mutation.json --resume

lint: $(STAMP)  ## ruff, mypy --strict and clang-format, without changing a file
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	MYPY_NUM_WORKERS=2 $(BIN)/mypy --strict
	$(if $(HEADERS),$(BIN)/clang-format --dry-run -Werror $(HEADERS),@echo "no headers to check")

format: $(STAMP)  ## rewrite Python and headers as lint wants them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(if $(HEADERS),$(BIN)/clang-format -i $(HEADERS))

tables: $(STAMP)  ## what is made of grammar/zen.lark: the tables and colours of the language
	$(BIN)/python -m zenc.language.generate_tables
	$(BIN)/python -m zenc.editor.tokens

bench: $(STAMP)  ## the suite of the lab, on an idle machine: 25 minutes, then benchmarks/reports/benchmarks.md anew
	$(BIN)/python -m benchmarks.lab.suite $(if $(POINTS),--only $(POINTS))

bench-choice: $(STAMP)  ## auto beside its candidates at all points of the lab, on an idle machine: 20 minutes, then docs/guides/choice.md anew
	$(BIN)/python -m benchmarks.lab.choice $(if $(POINTS),--only $(POINTS))

bench-convergence: $(STAMP)  ## training with lossy schemes, on an idle machine: less than 20 minutes, then benchmarks/reports/convergence.md anew
	$(BIN)/python -m benchmarks.convergence $(if $(RUNS),--only $(RUNS))

bench-dense: $(STAMP)  ## dense gradients on a slow network, on an idle machine: 10 minutes, then docs/guides/compression.md anew
	$(BIN)/python -m benchmarks.lab.dense.suite $(if $(POINTS),--only $(POINTS))

bench-strategies: $(STAMP)  ## training steps by strategies, tuned and by hand, on an idle machine: 7 minutes, then docs/guides/strategies.md anew
	$(BIN)/python -m benchmarks.lab.steps.suite $(if $(POINTS),--only $(POINTS))

bench-parts: $(STAMP)  ## the benchmarks of single parts, benchmarks/*.py, one after the other
	@for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python "$$script" || exit 1; done

bench-lab: $(STAMP)  ## the lab: all-reduces on a slow network that this machine plays, without root
	$(BIN)/python -m benchmarks.lab $(LAB)

reproduce: $(STAMP)  ## benchmarks/reports/reproduction.md anew: Zen's evaluation, by the cost model; less than a minute
	$(BIN)/python -m benchmarks.reproduce --write

strategies: $(STAMP)  ## benchmarks/reports/strategies.md anew: Espresso, MergeComp and others, from public traces; a minute
	$(BIN)/python -m benchmarks.strategies --write

generated-diff: $(STAMP)  ## what the working tree changes of the code that REVISION generates, all targets and schemes
	$(BIN)/python tests/codegen/generated_diff.py $(REVISION)

# Architectures of `make kernels`
ARCHS ?=
.PHONY: kernels wheel
kernels: $(STAMP)  ## kernels for GPUs of data centres, compiled, into kernels/, for the wheel: ten minutes of a processor
	$(BIN)/python -m tests.packaging.kernels $(ARCHS)

wheel: kernels  ## the wheel with these kernels, into dist/
	$(BIN)/python -m build --wheel

wheel-check: $(STAMP)  ## build the wheel, twice with equal bytes, install it outside the checkout, compile a shipped scheme there
	PYTHON=$(BIN)/python tests/packaging/wheel_check.sh

.PHONY: lock sbom
lock: $(STAMP)  ## constraints.lock anew: the hashes of the wheels that constraints.txt pins, from PyPI
	$(BIN)/python -m tests.packaging.lock

sbom: $(STAMP)  ## what an installed zenc is made of, as CycloneDX, into build/zenc.cdx.json
	$(BIN)/python -m tests.packaging.sbom

docs: $(DOCS_STAMP)  ## the documentation, into site/; the pages of diagnostics and of the command line are made here
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:  ## remove what make made, .venv included
	rm -rf $(VENV) build dist kernels site .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt
	@command -v g++ >/dev/null || { echo "g++ is missing; zenc compiles its kernels with it (Debian: apt install g++)"; exit 1; }
	@echo "setting up $(VENV) with $$($(PYTHON) --version); PyTorch is large, so the first time takes minutes"
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[dev,guides]'
	@touch $@

$(DOCS_STAMP): $(STAMP)
	$(PIP) -e '.[docs]'
	@touch $@

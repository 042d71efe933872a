# Everything from a clean clone: `make demo` shows the dashboard over a simulated GPU, `make test` proves the project.
# ARGS goes to the command: make demo ARGS="--scenario fragmentation --ranks 4".

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest --no-header -q
# Skips are for unit tests that read files beside the checkout; a group below that cannot run has failed.
NO_SKIPS := --no-skips

.PHONY: help setup demo run test lint test-unit test-integration test-browser test-pretend-gpu bench-allocator \
	pretend-gpu test-releases bench requirements

help:
	@echo "make demo | run | test | lint | bench | bench-allocator | test-releases | setup | requirements"

setup: .venv/.serve .venv/.demo .venv/.dev

demo: .venv/.serve .venv/.demo
	$(BIN)/vramscope demo $(ARGS)

run: .venv/.serve
	$(BIN)/python app.py $(ARGS)

test: lint test-unit test-integration test-browser test-pretend-gpu
	@echo "make test: lint, unit, integration, browser and pretend-GPU tests have all run and passed"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test-unit: setup
	$(PYTEST) tests/unit

test-integration: setup
	sh tests/system_packages.sh chromium
	$(PYTEST) $(NO_SKIPS) tests/integration

test-browser: setup
	sh tests/system_packages.sh chromium
	$(PYTEST) $(NO_SKIPS) tests/browser

test-pretend-gpu: pretend-gpu
	$(PYTEST) $(NO_SKIPS) tests/pretend_gpu

pretend-gpu: setup
	sh tests/system_packages.sh gcc libc6-dev binutils
	PYTHON=$(BIN)/python sh tests/pretend_gpu/setup.sh

# The allocator against the real one for ten minutes or more; `make test` has a short run.
bench-allocator: pretend-gpu
	$(BIN)/python -m tests.pretend_gpu.differential --traces 1000 --operations 1500 $(ARGS)

# Downloads six releases of PyTorch, one after the other; not part of `make test`.
test-releases: setup
	sh tests/system_packages.sh gcc libc6-dev binutils
	$(BIN)/python tests/releases/run.py $(ARGS)

# All of them, also after one that missed its limit; the exit status says whether one did.
BENCHMARKS := $(sort $(wildcard benchmarks/*.py))
bench: pretend-gpu
	sh tests/system_packages.sh chromium
	@status=0; $(foreach script,$(BENCHMARKS),echo "== $(script)"; $(BIN)/python $(script) || status=1;) exit $$status

# Pins for Python 3.11 on Linux, from the ranges in pyproject.toml; a test holds the two together.
PIP_COMPILE := CUSTOM_COMPILE_COMMAND="make requirements" $(BIN)/pip-compile --quiet --strip-extras --no-annotate \
	--no-emit-index-url --no-emit-trusted-host --no-emit-find-links
requirements: setup
	$(PIP_COMPILE) --allow-unsafe --extra serve -o requirements.txt pyproject.toml
	$(PIP_COMPILE) --extra dev -c requirements.txt -o requirements-dev.txt pyproject.toml

# Each stamp is newer than what it was installed from, so that a repeat costs nothing and a failed step is tried again.
.venv/.created:
	@$(PYTHON) -c 'import sys; sys.exit("vramscope is developed on Python 3.11 or newer; make PYTHON=python3.11 chooses one" if sys.version_info < (3, 11) else 0)'
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	@touch $@

.venv/.serve: requirements.txt pyproject.toml .venv/.created
	$(PIP) -r requirements.txt
	$(PIP) --no-deps -e .
	@touch $@

.venv/.demo: requirements-demo.txt .venv/.created
	$(PIP) -r requirements-demo.txt
	@touch $@

.venv/.dev: requirements-dev.txt .venv/.serve
	$(PIP) -r requirements-dev.txt
	@touch $@

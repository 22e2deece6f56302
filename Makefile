# Everything happens in .venv, which every target prepares by itself.
# Needs Python 3.11 or newer, make and a package index.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
COMPILED := $(VENV)/.compiled

# The tests start hundreds of processes. Without bytecode each of them compiles every module again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo docs test fast lint full torture bench clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 18

install: $(READY) ## prepare .venv with all extras and the development tools

$(READY): pyproject.toml Makefile
	@test -n "$(PYTHON)" || { echo "install Python 3.11 or newer"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "install Python 3.11 or newer: $(PYTHON) is too old"; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV) || { echo "install the venv module (Debian: apt-get install python3-venv)"; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[all,testing]' --group dev
	@touch $@

# Otherwise every worker of the first test run compiles every module for itself.
$(COMPILED): $(READY)
	@$(BIN)/pytest --quiet --collect-only -m 'not slow' > $@.log || { cat $@.log; exit 1; }
	@mv $@.log $@

demo: $(READY) ## an agent is killed in mid-run and resumes; a fork, a diff, the tree (20 s)
	@$(BIN)/limpet demo

docs: $(READY) ## write docs/cli.md, the pictures, docs/openapi.json and the requests of clients/js from the code
	$(BIN)/python -m docs._make.pictures
	$(BIN)/python -m docs._make.cli
	$(BIN)/python -m docs._make.openapi
	$(BIN)/python -m docs._make.screens

lint: $(READY) ## style, types and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# mypy keeps one core busy for a minute, so the tests begin meanwhile.
test: $(READY) ## lint and all fast tests: what CI runs
	@$(MAKE) --no-print-directory -j 2 lint fast

fast: $(COMPILED)
	$(BIN)/python -m tests.again -n 4 --dist worksteal -m 'not slow'

full: $(READY) ## everything, also what is slow, and the fast tests on every other Python from 3.11 up
	@$(BIN)/python -m tests.full

torture: $(READY) ## 200,000 interleavings, every bit of a SQLite file, long random programs (hours)
	$(BIN)/pytest -n 2 --dist worksteal -m 'torture or long'
	$(BIN)/python -m simulation --runs 100000 --jobs 2
	$(BIN)/python -m simulation --engine scopes --runs 100000 --jobs 2

bench: $(READY) ## measure against peers, write docs/benchmarks/ (QUICK=1: some minutes, nothing written)
	$(BIN)/python -m benchmarks.foundation $(if $(QUICK),--quick,--write)
	$(BIN)/python -m benchmarks.deltas $(if $(QUICK),--quick,--write)
	$(BIN)/python -m benchmarks.objects $(if $(QUICK),--quick,--write)
	$(BIN)/python -m benchmarks.postgres $(if $(QUICK),--quick,--write)
	$(BIN)/python -m benchmarks.watching $(if $(QUICK),--quick,--write)
	$(BIN)/python -m benchmarks.compat $(if $(QUICK),--quick,--write)
	$(BIN)/python -m benchmarks.terminal $(if $(QUICK),--quick,--write)
	$(BIN)/python -m benchmarks.langgraph $(if $(QUICK),--quick,--write)
	$(BIN)/python -m benchmarks.frameworks $(if $(QUICK),--quick,--write)
	$(BIN)/python -m benchmarks.encryption $(if $(QUICK),--quick,--write)
	$(BIN)/python -m benchmarks.http $(if $(QUICK),--quick,--write)
	$(BIN)/python -m benchmarks.backups $(if $(QUICK),--quick,--write)
	$(BIN)/python -m benchmarks.retention $(if $(QUICK),--quick,--write)
	$(BIN)/python -m benchmarks.inspector $(if $(QUICK),--quick,--write)

clean: ## remove what the targets made
	rm -rf $(VENV) $(VENV)-3.* .bench .mypy_cache .ruff_cache .import_linter_cache .hypothesis

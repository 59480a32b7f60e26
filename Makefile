# Every target sets up what it needs; `make help` lists them.
# The program for new environments; without it the first suitable one of python3, python3.13, python3.12, python3.11.
PYTHON ?=
# Two environments: what tests and tools need, and what users run. VENV=DIR puts the one that is asked for elsewhere.
VENV ?= .venv
ELSEWHERE := $(if $(filter file,$(origin VENV)),,$(VENV))
RUN_VENV := $(or $(ELSEWHERE),.venv-run)
BIN := $(VENV)/bin
LOCK := requirements/dev.lock
# ENVIRONMENT KIND GOAL LOCK DIR: checks the machine first, makes the environment whole or not at all.
ENVIRONMENT := PYTHON="$(PYTHON)" sh deploy/setup/environment.sh
# For every Python from 3.11 on and every platform; the hashes are those of all files of a version.
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest --generate-hashes \
	--annotation-style line --custom-compile-command "make lock" $(UPGRADE)
UPGRADE ?=
ENGINE ?= podman
IMAGE ?= yes
THIRD_SEEDS ?= 0-3
# Of the cases of property tests; a run prints it.
SEED := $(or $(SEED),$(shell od -An -N4 -tu4 /dev/urandom | tr -d " "))
# A worker without work takes it from the other: a test of minutes holds up nothing behind it.
PARALLEL := -n 2 --dist worksteal
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' __init__.py)
.DEFAULT_GOAL := help
.PHONY: help setup runtime sbom-tool install demo test integration properties words lint types contracts check bench evaluate model move-model power-model golden picture mails build lock format clean standalone image image-archive standalone-in-container packages sbom release

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

setup: ## make the environment of tests and tools with the locked versions, hashes checked
	@$(ENVIRONMENT) dev test $(LOCK) "$(VENV)" "$(ELSEWHERE)"

runtime: # always checked: it is remade where the lock changed, and takes skuwise anew where the checkout did
	@$(ENVIRONMENT) run $(or $(GOAL),demo) requirements/run.lock "$(RUN_VENV)" "$(ELSEWHERE)"

install: GOAL = install
install: runtime ## install skuwise from this checkout into .venv-run, or VENV=DIR
	@echo "Installed: $(abspath $(RUN_VENV))/bin/skuwise"
	@echo "To call it as skuwise in this shell: export PATH=\"$(abspath $(RUN_VENV))/bin:\$$PATH\""

demo: runtime ## the main job: simulate a small fleet, advise, explain the founding case
	@"$(RUN_VENV)/bin/skuwise" demo

test: setup ## the unit tests: no process, no server, no network
	$(BIN)/python -m pytest $(PARALLEL) tests/unit

integration: setup ## the tests with servers, processes and packages; they skip what is not installed
	$(BIN)/python -m pytest $(PARALLEL) tests/integration tests/system

properties: setup ## the property tests of the unit tests on new cases; SEED=N repeats a run
	$(BIN)/python -m pytest $(PARALLEL) tests/unit -m property --run-seed $(SEED)

words: setup ## words and names that a technical writer would not use
	$(BIN)/python docs/tools/words.py

lint: setup ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## pyright
	$(BIN)/pyright

contracts: setup ## import-linter: imports go down only
	$(BIN)/lint-imports

check: lint types contracts test integration ## all that must hold before a commit

bench: setup ## what the agent, advice on 64 nodes, reading Prometheus and the terminal cost, printed
	$(BIN)/python -m skuwise.benchmarks.performance.agent.tick
	$(BIN)/python -m skuwise.benchmarks.performance.agent.impact --rounds 6 --work "$(BIN)/python -m timeit -n 100000000 -r 5 pass"
	$(BIN)/python -m skuwise.benchmarks.performance.advisor.scale out/scale
	$(BIN)/python -m skuwise.benchmarks.performance.advisor.prometheus_fleet
	$(BIN)/python -m skuwise.benchmarks.performance.advisor.screens

evaluate: setup ## verdicts on real series by leave one owner out and on the third generator, moves on published pairs, power caps (about half an hour); THIRD_SEEDS
	$(BIN)/python -m skuwise.benchmarks.evaluation.evaluate --third-seeds $(THIRD_SEEDS)

model: setup ## fit the weights of kinds anew on real series: rules/kind_model.yaml; SIMULATE=1 simulates anew (ten minutes)
	$(BIN)/python -m skuwise.benchmarks.fit.train_kinds $(if $(SIMULATE),--simulate)

move-model: setup ## calibrate intervals of moves anew on the tables in benchmarks/fit: rules/move_model.yaml
	$(BIN)/python -m skuwise.benchmarks.fit.move_model

power-model: setup ## fit power caps and clocks anew on benchmarks/fit/power_caps.csv: rules/power_model.yaml
	$(BIN)/python -m skuwise.benchmarks.fit.power_model

golden: setup ## write the golden files of the tests anew: look at the difference before committing
	RENEW_GOLDEN=1 $(BIN)/python -m pytest -k "as_it_did or as_it_was or of_the_code" tests/unit/advisor \
		tests/integration/project/test_docs.py tests/integration/tui/test_tui_screens.py

picture: setup ## draw the pictures of the docs again: rooms, README, screens
	$(BIN)/python docs/tools/rooms.py
	$(BIN)/python docs/tools/picture.py
	$(BIN)/python docs/tools/screens.py

mails: setup ## draw the pictures of docs/report.md again (needs chromium)
	$(BIN)/python docs/tools/mails.py

build: setup ## sdist, and the wheel from it
	$(BIN)/python -m build --no-isolation

standalone: setup ## the agent as one folder for nodes with an old Python, in dist/
	$(BIN)/python deploy/standalone/build.py

packages: setup ## .deb and .rpm of the archive that `make standalone` left in dist/
	$(BIN)/python deploy/packages/build.py dist/skuwise-agent-$(VERSION)-linux-*.tar.gz

image: ## the images of agent and advisor (ENGINE=docker or podman)
	@sh deploy/setup/engine.sh $(ENGINE)
	$(ENGINE) build -f deploy/container/Containerfile -t skuwise-agent:$(VERSION) .
	$(ENGINE) build -f deploy/container/advisor.Containerfile -t skuwise-advisor:$(VERSION) .

sbom-tool: setup
	@$(ENVIRONMENT) tool sbom requirements/sbom.lock "$(VENV)/sbom"

BILL = $(VENV)/sbom/bin/python deploy/sbom.py --python $(BIN)/python
sbom: sbom-tool ## bills of materials (CycloneDX JSON) of all, of the agent and of the images, in dist/
	$(BILL) --name skuwise --lock requirements/all.lock --out dist/skuwise-$(VERSION).cdx.json
	$(BILL) --name skuwise-agent --lock requirements/agent.lock --out dist/skuwise-agent-$(VERSION).cdx.json
	$(BILL) --name skuwise-agent --lock requirements/agent.lock --base "$$(sed -n 's/^ARG BASE=//p' deploy/container/Containerfile)" \
		--out dist/skuwise-agent-image-$(VERSION).cdx.json
	$(BILL) --name skuwise-advisor --lock requirements/run.lock --base "$$(sed -n 's/^ARG BASE=//p' deploy/container/advisor.Containerfile)" \
		--out dist/skuwise-advisor-image-$(VERSION).cdx.json

image-archive: image
	mkdir -p dist
	for name in skuwise-agent skuwise-advisor; do \
		$(ENGINE) save --output dist/$$name-$(VERSION)-image.tar $$name:$(VERSION) || exit 1; done
	gzip --no-name --force dist/*-image.tar

# Where glibc is old, so that it runs on old nodes too.
standalone-in-container:
	$(ENGINE) build -f deploy/standalone/Containerfile --output dist .

release: setup ## sdist, wheel, self-contained agent and its packages, images, bills of materials and checksums, in dist/; IMAGE=no needs no container engine
	@test -z "$$(git status --porcelain)" || { echo "skuwise: The checkout has uncommitted changes. Commit or remove them first." >&2; exit 1; }
	@test "$(IMAGE)" = no || sh deploy/setup/engine.sh $(ENGINE)
	rm -rf dist
	$(MAKE) build $(if $(filter no,$(IMAGE)),standalone,standalone-in-container image-archive) packages sbom
	cd dist && sha256sum -- * > .SHA256SUMS && mv .SHA256SUMS SHA256SUMS
	@cat dist/SHA256SUMS
	@test "$(IMAGE)" != no || echo "Not included: the images. The self-contained agent runs on this machine's glibc and newer." >&2

lock: setup ## resolve the locks anew and keep versions that still fit; UPGRADE=--upgrade takes the newest
	$(COMPILE) --extra dev pyproject.toml -o $(LOCK)
	$(COMPILE) -c $(LOCK) --extra kubernetes pyproject.toml -o requirements/agent.lock
	$(COMPILE) -c $(LOCK) --extra all --extra kubernetes pyproject.toml -o requirements/all.lock
	$(COMPILE) -c $(LOCK) --extra all pyproject.toml -o requirements/run.lock
	$(COMPILE) -c $(LOCK) requirements/build.in -o requirements/build.lock
	$(COMPILE) -c $(LOCK) --extra kubernetes pyproject.toml requirements/build.in requirements/standalone.in \
		-o requirements/standalone.lock
	$(COMPILE) -c $(LOCK) requirements/sbom.in -o requirements/sbom.lock
	$(COMPILE) -c $(LOCK) requirements/schemas.in -o requirements/schemas.lock

format: setup ## let ruff write
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove what was built
	rm -rf .venv .venv-run build dist *.egg-info out

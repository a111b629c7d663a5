# `make demo` and `make test` need no other target; both install what they need, the first only what running needs.
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
RUN_STAMP := $(VENV)/.installed-to-run

# uv installs in seconds what takes pip more than a minute. Where there is none, pip gets the one of the lock file.
PIP := $(VENV)/bin/pip --quiet --quiet --disable-pip-version-check install --no-compile --no-deps
ifneq ($(shell command -v uv 2>/dev/null),)
UV := uv
else
UV := $(VENV)/bin/uv
GET_UV = sed -n '/^uv==/,/[^\\]$$/p' requirements-dev.lock >$(VENV)/uv.lock && $(PIP) --require-hashes -r $(VENV)/uv.lock
endif
INSTALL := $(UV) pip install --quiet --python $(PY) --no-deps

# Pure modules without I/O: every branch of them is tested.
PURE := */search/ranking.py,*/resilience/dependency.py,*/domain/documents.py,*/ingest/chunking/chunker.py

# Tests wait for servers much of their time: three workers for two cores. With four, some that have deadlines were late.
WORKERS := $(shell echo $$(((3 * $$(getconf _NPROCESSORS_ONLN) + 1) / 2)))

# What runs apart from the other tests, without coverage.
NOT_IN_MAIN := --ignore tests/faults --ignore tests/outcomes/timed --ignore tests/clients

# Timed tests that wait, or ask two servers in turn: one beside another does not disturb them.
WAITING := $(addprefix tests/outcomes/timed/test_,lost_vectors.py swapped_model.py large_documents.py)

# Hundreds of processes are started by the tests; none shall compile what another has compiled.
export PYTHONDONTWRITEBYTECODE =

.DEFAULT_GOAL := help
.PHONY: help collect setup promtool demo serve test test-clients browser pictures versions torture soak faults csharp check lint types format bench docs model lock clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

$(STAMP): pyproject.toml requirements-dev.lock
	@echo "Setting up $(VENV) from the lock file; this happens once and takes about a minute."
	@python3 -m venv $(VENV)
	@$(GET_UV)
	@$(INSTALL) --require-hashes -r requirements-dev.lock
	@$(INSTALL) --no-build-isolation -e .
	@touch $(RUN_STAMP) $@

$(RUN_STAMP): pyproject.toml deploy/demo.lock
	@echo "Setting up $(VENV) with what running needs; this happens once and takes about half a minute."
	@python3 -m venv $(VENV)
	@$(GET_UV)
	@$(INSTALL) --require-hashes -r deploy/demo.lock
	@$(INSTALL) --no-build-isolation -e .
	@touch $@

# promtool checks what Prometheus reads. Debian's package would also start a server: only the one program is taken of it.
PROMTOOL := $(VENV)/bin/promtool
APT := apt-get -qq -o Acquire::Retries=3 -o APT::Sandbox::User=root
$(PROMTOOL): | $(STAMP)
	@if command -v promtool >/dev/null; then ln -sf "$$(command -v promtool)" $@; else \
		echo "Getting promtool from Debian's package prometheus; this happens once."; \
		set -e; folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; cd "$$folder"; \
		$(APT) download prometheus 2>/dev/null || { $(APT) update && $(APT) download prometheus; } || { \
			echo "promtool cannot be had from here: install it, and let it be found in PATH" >&2; exit 1; }; \
		dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool; mv usr/bin/promtool "$(CURDIR)/$@"; fi

promtool: $(PROMTOOL) ## Get the program that checks alert rules and metrics

setup: $(STAMP) ## Create the virtual environment

demo: $(RUN_STAMP) ## Serve, index a sample corpus, run five searches, stop
	@$(PY) scripts/demo.py

serve: $(RUN_STAMP) ## Serve on port 3000
	$(VENV)/bin/rag-context serve

# A browser is no package of Python. Where it cannot be installed, the tests of the page fail and say so.
browser: ## Install the Chromium that tests of the page need, where there is none (Debian and Ubuntu, as root)
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || test -n "$$RAG_TEST_CHROMIUM" \
		|| sh scripts/install_chromium.sh

pictures: $(STAMP) browser ## Take the pictures of the page for docs/
	$(PY) -m tests.page

test: $(STAMP) $(PROMTOOL) browser ## Run the tests and check their coverage
	$(VENV)/bin/coverage erase
	@# no new worker for one that ended: pytest would wait for the tests of that one without an end
	$(VENV)/bin/coverage run -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder \
		--max-worker-restart 0 $(NOT_IN_MAIN)
	@# LangChain's own suites for retrievers and vector stores
	$(VENV)/bin/coverage run -m pytest -c tests/langchain_standard/pytest.ini tests/langchain_standard/suites.py
	@# without coverage, because they assert on time: two at once where they mostly wait for servers, the rest alone
	$(VENV)/bin/pytest -n 2 --dist worksteal tests/faults
	$(VENV)/bin/pytest -n 2 --dist loadfile $(WAITING)
	RAG_TEST_FORK=0 $(VENV)/bin/pytest tests/outcomes/timed $(addprefix --ignore ,$(WAITING))
	@# the first run had the newest PostgreSQL; this one has the oldest that is supported
	RAG_TEST_POSTGRES_VERSION=16 $(VENV)/bin/pytest tests/stores -k postgres -n $(WORKERS) --dist loadfile
	$(VENV)/bin/coverage combine --quiet
	$(VENV)/bin/coverage report --fail-under=90
	$(VENV)/bin/coverage report --include='$(PURE)' --fail-under=100

test-clients: $(STAMP) ## Drive real agent clients, installed from npm, against a model on loopback (CLIENTS=claude-code,codex)
	$(PY) -m tests.clients $(CLIENTS)

VERSIONS := 3.11:lowest 3.12:newest 3.13:newest
versions: $(STAMP) ## Run a part of the tests on other Pythons, with the lowest and newest dependencies (some minutes)
	for each in $(VERSIONS); do \
		$(PY) scripts/check_versions.py $${each#*:} --python $${each%:*} --workers $(WORKERS) || exit; done

torture: $(STAMP) ## Kill a server under load a hundred times and look for what it acknowledged (ARGS="--rounds 10")
	$(PY) -m tests.torture $(ARGS)

soak: $(STAMP) ## Use and disturb two memories for half an hour, upgrade them in the middle, and check everything (ARGS="--minutes 60")
	$(PY) -m tests.soak $(ARGS)

faults: $(STAMP) ## Measure every fault of every backend, and write the table of docs/design/faults.md (some minutes; ARGS="--outages 40")
	$(PY) -m tests.faults $(ARGS)

csharp: $(STAMP) ## Compile the C# client and run it against a server (needs mcs and mono, see clients/csharp)
	$(PY) -m tests.csharp

release: $(STAMP) ## Build wheel, source and list of components into dist/, and try the wheel (ARGS="--python 3.11 --python 3.13")
	$(PY) scripts/release.py $(ARGS)

check: lint types ## Everything that needs no running code: format, lint, layers, types, generated docs
	$(PY) scripts/generate_docs.py --check

# One process compiles what several would compile at once, while mypy leaves a core free.
collect: $(STAMP) ## Import all tests, so that processes of tests find them compiled
	$(VENV)/bin/pytest --collect-only -qq $(NOT_IN_MAIN) >$(VENV)/collected || { cat $(VENV)/collected; exit 1; }

lint: $(STAMP)
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/lint-imports --no-cache
	$(PY) scripts/words.py

types: $(STAMP)
	$(VENV)/bin/mypy

format: $(STAMP) ## Format the code and fix lint errors automatically
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

bench: $(STAMP) ## Measure speed and memory against a bare baseline in the same run (some ten minutes)
	@$(PY) -m benchmarks

docs: $(STAMP) ## Write the generated pages of docs/
	$(PY) scripts/generate_docs.py

model: $(STAMP) ## Build the bundled model again and compare its hash (downloads about 80 MB)
	$(PY) scripts/build_model.py

COMPILE := $(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-annotate --custom-compile-command "make lock"

lock: $(STAMP) ## Resolve the dependencies again: for development, the image, building the wheel, the demo, a release
	$(COMPILE) --group dev pyproject.toml -o requirements-dev.lock
	$(COMPILE) --extra postgres --extra qdrant --extra mongodb --extra redis --extra otel \
		--constraint requirements-dev.lock pyproject.toml -o requirements.lock
	echo hatchling | $(COMPILE) --constraint requirements-dev.lock - -o deploy/build.lock
	$(COMPILE) --group editable --constraint requirements-dev.lock pyproject.toml -o deploy/demo.lock
	echo cyclonedx-bom | $(COMPILE) - -o deploy/release.lock

clean: ## Remove the files that the targets created
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.* .demo .versions .clients

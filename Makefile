# `make setup` needs Python >= 3.11 and nothing else; PYTHON names another one than python3.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
PROTOS := $(shell find proto -name '*.proto' 2>/dev/null | sort)
GENERATE = $(PY) -m grpc_tools.protoc -Iproto --python_out=$(1) --pyi_out=$(1) $(PROTOS)

.DEFAULT_GOAL := check
.PHONY: setup fmt check test deep bench backends engines run demo proto drift lock

setup: $(STAMP)
fmt: setup ; $(PY) -m ruff check --fix-only && $(PY) -m ruff format
check: setup drift ; $(PY) -m ruff check && $(PY) -m ruff format --check && $(PY) -m mypy && $(PY) -m whymiss docs --check
test: setup ; $(PY) -m pytest --hypothesis-profile=fast $(ARGS)
deep: setup ; $(PY) -m pytest --hypothesis-profile=deep -m "deep or not deep"
	$(PY) tests/mutations/run.py
bench: setup ; @set -e; for script in tests/bench/bench_*.py; do echo "== $$script"; PYTHONPATH=. $(PY) $$script; done
backends: setup ; bash tests/backends/build.sh && $(PY) -m pytest tests/backends
# Fresh seeds of the engines' own code; ENGINES="--vllm 2000 --modes busy" and the like make it shorter.
engines: setup ; bash tests/engines/build.sh && PYTHONPATH=. $(PY) -m tests.engines.run $(ENGINES)
run: setup ; $(PY) -m whymiss run $(ARGS)
demo: setup ; $(PY) -m whymiss demo $(ARGS)
proto: setup ; $(if $(PROTOS),$(call GENERATE,processor),@echo "no schema in proto/")

# The generated code is what `make proto` would write now.
drift: setup
	@out=$$(mktemp -d) && trap 'rm -rf "$$out"' EXIT && $(if $(PROTOS),$(call GENERATE,"$$out"),true) && \
	cd "$$out" && find . -type f | while read -r file; do cmp "$$file" "$(CURDIR)/processor/$$file" || exit 1; done \
	|| { echo "generated code is stale: run 'make proto' and commit the result" >&2; exit 1; }

$(STAMP): .ci/requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	echo "whymiss needs Python >= 3.11; name one with: make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	echo "$(PYTHON) cannot make a virtual environment: install its venv package (on Debian: python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check --requirement .ci/requirements.lock
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# Choose the newest versions that pyproject.toml allows, and write them down.
lock:
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && $(PYTHON) -m venv "$$tmp" && \
	"$$tmp/bin/pip" install --quiet --upgrade 'pip>=25.1' && \
	"$$tmp/bin/pip" install --quiet --group dev editables 'hatchling>=1.27,<2' . && \
	{ echo "# Exact versions, written by 'make lock'; 'make setup' installs them."; \
	"$$tmp/bin/pip" freeze --exclude whymiss; } > .ci/requirements.lock

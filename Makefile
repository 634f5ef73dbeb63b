# `make reproduce` and `make test` set up .venv by themselves; `make help` lists the rest.
PYTHON ?= python3
CORES ?= $(shell $(PYTHON) -c "import os; print(len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count())")
TRACK ?= quick
BIN := .venv/bin
SNAKEMAKE := $(BIN)/snakemake --cores $(CORES)
# Extra `key=value` pairs for the workflow, such as CONFIG="data_root=/data seeds=0,1,2".
CONFIG ?=

export PYTHONUNBUFFERED := 1
export MPLBACKEND := Agg
# Snakemake asks for both, and the user of a container may have neither.
export USER ?= $(shell id -u)
export HOME := $(shell test -w "$$HOME" && echo "$$HOME" || echo "$(CURDIR)/.snakemake/home")

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets of make and, where it is set up, of the workflow
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 20
	@test ! -e .venv/.ready || { echo; $(BIN)/python -m analysis.help; }

# --- set-up -------------------------------------------------------------------------------------------------------
.PHONY: setup
setup: .venv/.ready ## create .venv with the tested versions (done by every other target that needs it)

.venv/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c "import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f'error: Python 3.11 or newer is needed, {v.major}.{v.minor} found; name another with make PYTHON=...')"
	@test -x $(BIN)/python || { echo "Creating .venv ..."; $(PYTHON) -m venv .venv; }
	@echo "Installing packages into .venv (about 2 GB with torch) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@# torch first: its own line keeps a CPU build that a machine offers from being passed over for a newer one.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep '^torch==' constraints.txt)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[test]"
	@# opencv-python links against a desktop's OpenGL; where that is absent the headless build takes its place.
	@$(BIN)/python -c "import cv2" 2>/dev/null || { echo "No OpenGL on this machine: using the headless OpenCV."; \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall \
	        "opencv-python-headless==$$($(BIN)/python -c 'from importlib.metadata import version; print(version("opencv-python"))')"; \
	    $(BIN)/python -c "import cv2"; }
	@$(BIN)/python -m pip check
	@touch $@

# --- the main job -------------------------------------------------------------------------------------------------
.PHONY: reproduce
reproduce: .venv/.ready ## train every run of the quick track and build every table and figure
	@$(SNAKEMAKE) tables figures published claims --config track=quick $(CONFIG)

.PHONY: report
report: .venv/.ready ## one HTML file with all tables, figures and the runs behind every cell (after `make reproduce`)
	@$(SNAKEMAKE) report_pages --config track=$(TRACK) $(CONFIG)
	@$(BIN)/snakemake --report results/$(TRACK)/report.html report_pages --config track=$(TRACK) $(CONFIG)
	@echo "results/$(TRACK)/report.html"

# --- tests --------------------------------------------------------------------------------------------------------
.PHONY: test
test: .venv/.ready ## run the test suite
	@$(BIN)/python -m pytest --numprocesses $(CORES) --dist worksteal $(ARGS)

.PHONY: test-cluster
test-cluster: .venv/.ready ## the SLURM profile on a real SLURM of this machine (root on Debian; installs its packages)
	@$(BIN)/python -m pytest -m slow tests/workflow/test_slurm.py $(ARGS)

.PHONY: test-wheel
test-wheel: .venv/.ready ## the plug-in installed from a wheel in a clean environment, used as the README says
	@$(BIN)/python -m pytest -m slow tests/test_wheel.py $(ARGS)

.PHONY: rehearse-fixtures
rehearse-fixtures: .venv/.ready ## two iterations of every run of the paper track on small real images, on the CPU
	@$(BIN)/python -m pytest -s -m slow tests/pne/test_rehearse.py $(ARGS)

.PHONY: bench
bench: .venv/.ready ## what the losses and the analysis cost, on this machine's CPU when it is idle
	@$(BIN)/python benchmarks/loss.py --device cpu --threads 2
	@$(BIN)/python benchmarks/analysis_time.py

.PHONY: gpu-check
gpu-check: .venv/.ready ## what to run first on a GPU: costs, resume, memory and more against their targets; minutes
	@$(BIN)/python benchmarks/gpu_check $(ARGS)

.PHONY: simulate
simulate: .venv/.ready ## how often intervals and verdicts are wrong, simulated; rewrites the table in docs/statistics.md
	@$(BIN)/python benchmarks/error_rates.py --write docs/statistics.md

.PHONY: lint
lint: .venv/.ready ## check style, as pre-commit does
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/snakefmt --check Snakefile workflows

.PHONY: format
format: .venv/.ready ## format Python and Snakemake files
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format . && $(BIN)/snakefmt Snakefile workflows

# --- reading: safe while a workflow runs ----------------------------------------------------------------------------
.PHONY: check-results
check-results: .venv/.ready ## verify the results of a track in seconds and say what mends each finding (TRACK, ARGS)
	@$(BIN)/python -m analysis.check --track $(TRACK) $(ARGS)

.PHONY: plan status runs
plan status runs: .venv/.ready ## what would run; what is running; ids with table and row (TRACK=paper for another track)
	@$(BIN)/python -m analysis.$@ --track $(TRACK) $(ARGS)

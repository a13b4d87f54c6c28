# A line `target: ## text` is the help of that target.
.DEFAULT_GOAL := help
SHELL := /bin/bash

# In the conda environment of environment.yml the workbook uses that; anywhere else it makes its own.
ifeq ($(CONDA_DEFAULT_ENV),workbook)
  PYTHON ?= python
  BIN := $(CONDA_PREFIX)/bin
  SET_UP := $(PYTHON) lib/set_up.py --into-this-python
else
  # 3.13 comes last: the server's numpy has to be compiled for it, which takes some minutes more
  PYTHON ?= $(firstword $(foreach v,3.11 3.12 3.10 3.13,$(shell python$(v) -c '' 2>/dev/null && echo python$(v))) python3)
  BIN := .venv/bin
  SET_UP := $(PYTHON) lib/set_up.py
endif

# Values reach the recipe through its environment, so that spaces, quotes and lists in them arrive as they were given.
export PROFILE NOTEBOOKS CORPUS SET RESUME RUN_A RUN_B
# A misspelt name would otherwise measure the default, twenty minutes long.
TYPED := $(foreach v,$(.VARIABLES),$(if $(filter line,$(origin $v)),$v))
UNKNOWN := $(strip $(filter-out PROFILE NOTEBOOKS CORPUS SET RESUME RUN_A RUN_B PYTHON BIN SET_UP SHELL,$(TYPED)))
ifneq ($(UNKNOWN),)
  $(error make takes no $(UNKNOWN)=...; it takes PROFILE, NOTEBOOKS, CORPUS, SET, RESUME, RUN_A, RUN_B and PYTHON: make run SET="rows=2048 threads=1")
endif

.PHONY: help setup run test lab compare clean

help: ## show this help
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' Makefile
	@echo
	@echo "  make compare takes RUN_A=, RUN_B=: names of runs or their beginnings, latest, previous (the default is previous and latest)"
	@echo "  make run takes PROFILE=smoke|cpu|gpu|full, NOTEBOOKS=\"01 05\", CORPUS=path or hub:ORG/NAME, SET=\"rows=2048 threads=1\""
	@echo "  make run RESUME=latest goes on with a run that was stopped"

setup: ## make the two environments (the workbook's and the Triton server's), once
	@$(SET_UP)
	@$(BIN)/python -m workbook.serving.server_environment

run: setup ## execute the notebooks, print the headline table and the path of the HTML report
	@$(BIN)/python -m workbook run $(if $(PROFILE),--profile "$$PROFILE") $(if $(NOTEBOOKS),--notebooks "$$NOTEBOOKS") \
		$(if $(CORPUS),--corpus "$$CORPUS") $(if $(SET),--set "$$SET") $(if $(RESUME),--resume "$$RESUME")

test: setup ## run all tests: style, types, units, the real server, every notebook
	@$(PYTHON) lib/set_up.py --browser
	@$(BIN)/ruff check && $(BIN)/ruff format --check && $(BIN)/mypy && $(BIN)/python -m pytest -n 2 --dist loadfile \
		--reruns 1 --max-suite-reruns 5 --rerun-show-tracebacks -raR

lab: setup ## open the notebooks in JupyterLab
	@$(BIN)/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) notebooks

compare: setup ## put two runs side by side: headline numbers, their ratio, what changed (RUN_A=previous RUN_B=latest)
	@$(BIN)/python -m workbook compare "$${RUN_A:-previous}" "$${RUN_B:-latest}"

clean: ## remove what was built (exports, samples, environments), but not the runs
	rm -rf artifacts .venv .venv-server

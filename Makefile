# Each verb makes what it needs (.venv, packages) by itself, on a machine that has Python 3.11+, make and g++.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test test-slow lint bench docs clean
.DELETE_ON_ERROR:

$(READY): constraints.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt --editable '.[dev]'
	touch $@

demo: $(READY)          ## raw text to report on the embedded corpus, in minutes
	$(BIN)/python -m pipeline run configs/demo.yaml

lint: $(READY)          ## ruff, mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint              ## everything but the slow tests, in under ten minutes
	$(BIN)/pytest -m "not slow"

test-slow: $(READY)     ## real kills, real workers, longer trainings
	$(BIN)/pytest -m slow --timeout=1500

bench: $(READY)         ## compare with peers in one run
	$(BIN)/python benchmarks/training_speed.py --json build/training_speed.json

docs: $(READY)          ## write the generated pages anew
	$(BIN)/python -m pipeline.config_docs

clean:                  ## what is built; the store stays
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache

# Each verb makes what it needs (.venv, packages) by itself, on a machine that has Python 3.11+, make and g++.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
PACKAGES := .venv/.packages
READY = .venv/.ready$(LEVELS)
DEV := .venv/.dev
SITE := .venv/.site
# Instruction-set levels to compile: `native`, the best of this machine, or `all`, as in a wheel. After `make LEVELS=all`, all.
LEVELS ?= $(if $(wildcard .venv/.readyall),all,native)
EDITABLE := --no-build-isolation --config-settings=cmake.define.FEWSTEP_LEVELS=$(LEVELS) --no-deps --editable .
NATIVE := kernels/CMakeLists.txt $(shell find kernels -name '*.cc' -o -name '*.h')
CPP := $(shell find kernels tests -name '*.cc' -o -name '*.h')
PYTEST := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BIN)/pytest -n auto --maxprocesses 8 --dist worksteal
# Slow tests mostly wait for clusters: three processes for two cores. Each takes whole files, whose runs and clusters are made once.
WAITING := $(shell echo $$(($(shell getconf _NPROCESSORS_ONLN) * 3 / 2)))
ASAN := build/asan
CONFIG ?= configs/benchmarks/demo.yaml
PROOF ?= configs/proof/multi30k.yaml
# Packages that a machine with torch and CUDA, but without a network, may lack; of CTranslate2 only its rows need it.
WHEELS ?= pydantic pydantic-core annotated-types typing-inspection sentencex ctranslate2
GPU_PYTHON ?= 3.12

.PHONY: build demo test fast-tests test-slow test-exhaustive test-asan lint bench bench-gpu proof proof-pack results docs site pin-images clean
.DELETE_ON_ERROR:

build: $(READY)         ## the environment .venv with the compiled package; the target of `make` alone

$(PACKAGES): constraints.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(PIP) --upgrade pip
	$(PIP) torch
	$(PIP) --group build --group pipeline
	touch $@

$(READY): $(PACKAGES) $(NATIVE)      # the extension, compiled where its sources changed
	$(PIP) $(EDITABLE)
	$(BIN)/python -m pipeline.config.docs schema
	rm -f .venv/.ready*
	touch $@

$(DEV): $(READY)
	$(PIP) --group dev
	touch $@

demo: $(READY)          ## raw text to report on the embedded corpus, in minutes
	$(BIN)/python -m pipeline run configs/demo.yaml

lint: $(DEV)            ## ruff, mypy, clang-format, prose, links
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run -Werror $(CPP)
	$(BIN)/pytest tests/test_prose.py

test: $(DEV)            ## lint, types and all fast tests, in minutes
	$(MAKE) --no-print-directory -j2 lint fast-tests  # of which the former occupies one core

fast-tests: $(DEV)
	$(PYTEST) -m "not slow and not exhaustive" --ignore=tests/test_prose.py

test-slow: $(DEV)       ## one kill, lost node, power cut, job, storage and recipe of each kind, in twenty minutes
	$(PYTEST) -n $(WAITING) --dist loadfile -m "slow and not exhaustive" --timeout=1500

test-exhaustive:        ## before a release: all tests with many drawn examples, all recipes and histories, campaigns, all levels
	$(MAKE) LEVELS=all $(DEV)
	$(PYTEST) --hypothesis-profile=many --timeout=3600

test-asan: $(DEV)       ## the kernels' tests, and systems and calls with changed numbers, with the address and undefined-behaviour sanitizers
	$(BIN)/cmake -S kernels -B $(ASAN) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) \
		-DPython_EXECUTABLE=$(abspath $(BIN)/python) -DFEWSTEP_LEVELS=native -DFEWSTEP_SANITIZE=ON -DCMAKE_BUILD_TYPE=Sanitized
	$(BIN)/cmake --build $(ASAN)
	LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libubsan.so)" ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
		PYTHONPATH=$(ASAN):$$($(BIN)/python -c 'import sys; print(":".join(sys.path))') \
		$(BIN)/python -S -m pytest tests/fewstep tests/kernels tests/fuzzing -m "not slow and not exhaustive" -p no:cacheprovider --timeout=1500 \
		--ignore=tests/fewstep/serve/test_page.py  # a browser does not start with the sanitizers before it

bench: $(DEV)           ## a config's systems and CTranslate2 (CONFIG=...), then all families; SIZE=base: the latter alone (QUICK=1, ONLY=..., BERGAMOT=PYTHON)
ifeq ($(SIZE),)
	$(BIN)/python -m benchmarks.decoding.systems $(CONFIG) --json build/systems.json
endif
	$(BIN)/python -m benchmarks.rivals.ctranslate2_settings --size $(or $(SIZE),base) --json build/ctranslate2_settings.json
	$(BIN)/python -m benchmarks.rivals.like_for_like --size $(or $(SIZE),base) --settings build/ctranslate2_settings.json \
		$(if $(BERGAMOT),--bergamot $(BERGAMOT)) --json build/like_for_like.json
	$(BIN)/python -m benchmarks.decoding.base_size --size $(or $(SIZE),base) --settings build/ctranslate2_settings.json \
		$(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY)) --json build/base_size.json --roofline build/base_size_roofline.json

bench-gpu:              ## kernels, engines, decoding and training on a GPU; needs torch, numpy, cmake and nanobind, and no network
	cmake -S kernels -B build/gpu -DFEWSTEP_LEVELS=native -DPython_EXECUTABLE="$$(command -v $(PYTHON))"
	cmake --build build/gpu --parallel
	PYTHONPATH=build/gpu:. $(PYTHON) -m benchmarks.gpu --json build/gpu.json

proof-pack: $(READY)    ## what `make proof` needs, in build/proof: text, vocabulary, alignments and tables (PROOF=...), and wheels
	mkdir -p build/proof/wheels
	rm -f build/proof/wheels/*
	$(BIN)/pip download --quiet --disable-pip-version-check -c constraints.txt --no-deps --only-binary=:all: --implementation cp \
		--python-version $(GPU_PYTHON) $(foreach level,28 27 17,--platform manylinux_2_$(level)_x86_64) --platform manylinux2014_x86_64 \
		-d build/proof/wheels $(WHEELS)
	$(BIN)/python -m benchmarks.proof prepare $(PROOF)

proof:                  ## a comparison on real text on a GPU, in nine minutes from where the last one ended; OUT=... for its files
	began=$$(date +%s); set -e; \
	cmake -S kernels -B build/gpu -DFEWSTEP_LEVELS=native -DPython_EXECUTABLE="$$(command -v $(PYTHON))"; \
	cmake --build build/gpu --parallel; \
	mkdir -p build/proof-site build/proof-lib; \
	for wheel in build/proof/wheels/*.whl; do [ ! -e $$wheel ] || \
		$(PYTHON) -m pip install --quiet --no-index --no-deps --no-compile --upgrade --target build/proof-site $$wheel; done; \
	blas=$$($(PYTHON) -c 'import torch, glob; print(*glob.glob(torch.__path__[0] + "/../nvidia/**/libcublas.so.1[23]", recursive=True)[:1])'); \
	test -z "$$blas" || ln -sf $$blas build/proof-lib/libcublas.so.12; \
	LD_LIBRARY_PATH=$(CURDIR)/build/proof-lib:$$LD_LIBRARY_PATH PYTHONPATH=build/gpu:build/proof-site:. \
		$(PYTHON) -m benchmarks.proof run --seconds $$((540 + began - $$(date +%s))) $(if $(OUT),--out $(OUT))

results: $(READY)       ## docs/results.md from benchmarks/results/*.json
	$(BIN)/python -m benchmarks.page

docs: $(DEV)            ## write the generated pages again
	$(BIN)/python -m pipeline.config.docs
	$(BIN)/python -m pipeline.commands.reference
	$(BIN)/python -m tests.docs.examples
	$(BIN)/python -m tests.recipes.page
	$(BIN)/python -m tests.recipes.settings

$(SITE): $(DEV)
	$(PIP) --group docs
	touch $@

site: $(SITE)           ## the documentation as a web site, in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

pin-images:             ## write the digests of the base images into the files of docker/; needs docker and a network
	docker/pin.sh

clean:                  ## what is built; the store stays
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache

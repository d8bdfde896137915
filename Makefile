PYTHON  ?=
PROFILE ?= embedded
PORT    ?= 8000
WARM    ?= yes
LIBS    ?= $(if $(filter gpu,$(PROFILE)),gpu,cpu)
QWEN    ?= .venv/qwen
BATCH   ?= .venv/batch
CLIENTS ?= .venv/conformance
SCHEMATHESIS ?= .venv/campaign
PLAYWRIGHT ?= .venv/browser
PEERS := infinity kokoro litellm llama router serve-llm
TESTERS ?= 3

BIN := .venv/bin
RUN := $(BIN)/python -m
# Processes of a run read what the first of them has compiled, even where the environment keeps Python from writing it.
test test-units test-cluster: export PYTHONDONTWRITEBYTECODE =
# The log of each run ends with the eighty slowest tests.
TIMED := --durations=80 --durations-min=0.05
TOGETHER := $(RUN) pytest $(TIMED) --junitxml=var/tests.xml --numprocesses=$(TESTERS) --dist=loadfile --no-loadscope-reorder
ALONE := $(RUN) pytest $(TIMED) --junitxml=var/tests-cluster.xml tests/cluster
# What depends on the processor, once more as on one with AVX2 and nothing newer.
ON_AVX2 := tests/models/test_short_encoder.py tests/models/llm/test_quantization.py tests/models/llm/test_heads.py
LONG := slow or browser or engines or forks or attacks or crashes or timeouts
# uv compiles nothing. What a start may import is compiled once here, rather than by each process that first starts: half of
# the modules, without the large parts that no start imports.
UNUSED := tests?|testing|models|examples|rllib|autoscaler|tune|train|data|llm|beta|admin|realtime|live|physics|distutils
UNUSED := $(UNUSED)|anthropic|botocore|numba|onnx|onnxruntime|pip|setuptools|virtualenv
# By xargs, as `compileall -j` does not end when it is interrupted.
COMPILE = cd .venv/lib/python3*/site-packages && ls -d ./* | \
	xargs -n 8 -P $$(getconf _NPROCESSORS_ONLN) ../../../bin/python -m compileall -q -x '/($(UNUSED))/'
# What is installed is named by its hash, and comes as a wheel: what has to be built runs tools that no hash names.
INSTALL := $(BIN)/python requirements/install.py
HASHED := --no-deps --require-hashes --only-binary :all:

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev setup-qwen setup-batch setup-browser serve weights test test-all test-units test-cluster check bench evaluate attack campaign rehearse conformance check-gpu audit docs lock

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

setup: .venv/$(LIBS).done ## install what the graph needs into .venv (LIBS=gpu for CUDA, LIBS=ingress for no model)

setup-dev: .venv/dev.done

setup-qwen: $(QWEN)/done ## make an environment for Qwen3-TTS beside .venv (QWEN=folder)

setup-batch: $(BATCH)/done ## make one for Ray Data, which puts data sets through models without the graph (BATCH=folder)

setup-browser: $(PLAYWRIGHT)/done tests/console/node_modules/done ## what drives Chromium in the tests of the console (PLAYWRIGHT=folder)

serve: setup ## run the graph on http://127.0.0.1:8000 (PROFILE, PORT, METRICS_PORT, WARM=no, SMALL=yes)
	@exec $(RUN) launch configs/$(PROFILE).yaml --port $(PORT) $(if $(METRICS_PORT),--metrics-port $(METRICS_PORT)) $(if $(filter no,$(WARM)),,--warm) $(if $(filter yes,$(SMALL)),--small)

weights: setup ## fetch and verify the weights of PROFILE, so that `make serve` needs no network
	@$(RUN) launch configs/$(PROFILE).yaml --weights-only $(if $(filter yes,$(SMALL)),--small)

test: setup-dev weights ## what to run before a push: 6 minutes on two cores, more on slow ones
	@$(TOGETHER) -m "not ($(LONG) or cluster)"
	@$(ALONE) -m smoke

test-all: test-units test-cluster ## all tests that need no GPU

test-units: setup-dev weights ## those that need no Ray cluster
	@$(TOGETHER) -m "not (slow or cluster)"
	@$(RUN) pytest -p tests.avx2 -m "not slow" $(ON_AVX2)

test-cluster: setup-dev weights ## those on a Ray cluster (TIER=smoke for a few minutes of them)
	@$(ALONE) -m "$(or $(TIER),not slow)"

check: setup-dev ## format, lint, types, import rules, size and wording
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@PYTHONPATH=. $(BIN)/lint-imports
	@$(BIN)/python requirements/house.py

bench: setup-dev weights $(if $(QUICK),,$(PEERS:%=.venv/peers/%/done)) ## benchmarks beside the peers, tables in var/benchmarks.md (QUICK=1: what slid, in six minutes)
	@$(RUN) benchmarks.speed$(if $(QUICK),.quick)

evaluate: setup-dev ## how often the decision models are right; writes the tables, and what the plot is drawn from
	@$(RUN) benchmarks.quality decisions

attack: setup-dev ## attack a graph of its own, or the one at URL; some minutes
	@$(RUN) benchmarks.attacks $(if $(URL),--base-url $(URL))

campaign: setup-dev weights $(SCHEMATHESIS)/done ## break a graph of its own in every way and count what is lost: 90 minutes (SHORT=1 for 17 minutes, SEED=)
	@$(RUN) tests.campaign $(if $(SEED),--seed $(SEED)) $(if $(SHORT),--short) $(if $(PUBLISH),--publish)

rehearse: setup-dev weights ## build the images and run the pods of cluster/kubernetes on this machine: half an hour, root (BUILT=1, PUBLISH=1)
	@$(RUN) tests.rehearsal $(if $(BUILT),--built) $(if $(PUBLISH),--publish)

conformance: setup-dev weights $(CLIENTS)/done benchmarks/clients/node/node_modules/done ## try the clients that people use on a graph of its own, or on the one at URL
	@$(RUN) benchmarks.clients --python $(CLIENTS)/bin/python $(if $(URL),--base-url $(URL))

check-gpu: .venv/bin/python ## install the lock for CUDA aside, import what needs no GPU, take it away again; 9 GB for some minutes
	@sh requirements/gpu.sh $(BIN)/python

audit: .venv/audit/done ## known vulnerabilities in what the locks pin; a bill of materials of each lock in var/sbom
	@.venv/audit/bin/python requirements/audit.py

docs: setup-dev ## write the pages that are made of the code, draw the pictures, and build the site that the graph shows at /docs/
	@$(RUN) docs.made
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "the site is in var/site; a graph that runs shows it at http://127.0.0.1:$(PORT)/docs/"

# --- how it is done -------------------------------------------------------------------------------------------------

.venv/bin/python:
	@PYTHON="$(PYTHON)" sh requirements/venv.sh

# A .venv holds one set of libraries: torch's +cpu build satisfies the pin of the other one, which would never be installed.
ALONE_IN_VENV = for other in $(filter-out $(1),cpu gpu ingress); do if [ -e .venv/$$other.done ]; then \
	rm -rf .venv/$$other.done .venv/lib/python3*/site-packages/torch .venv/lib/python3*/site-packages/torch-*; fi; done

# The +cpu build of torch is in PyTorch's own index. An index that pip knows already is asked first; the hash is the same.
.venv/cpu.done: requirements/cpu.lock requirements/torch-cpu.txt | .venv/bin/python
	@$(call ALONE_IN_VENV,cpu)
	@echo "installing torch (CPU) and the packages of $<"
	@$(INSTALL) requirements/torch-cpu.txt $(HASHED) 2>/dev/null || \
		$(INSTALL) requirements/torch-cpu.txt $(HASHED) --index-url https://download.pytorch.org/whl/cpu
	@$(INSTALL) $< $(HASHED)
	@$(COMPILE)
	@touch $@

.venv/gpu.done: requirements/gpu.lock | .venv/bin/python
	@$(call ALONE_IN_VENV,gpu)
	@echo "installing the packages of $< with CUDA: several GB"
	@$(INSTALL) $< $(HASHED)
	@touch $@

# Heads and ingress replicas of a cluster load no model, but the network of 1 MB that finds speech in live sound: it is in
# a wheel whose other needs they do not have.
.venv/ingress.done: requirements/ingress.lock requirements/listening.lock | .venv/bin/python
	@$(call ALONE_IN_VENV,ingress)
	@$(INSTALL) $< $(HASHED)
	@$(INSTALL) requirements/listening.lock $(HASHED)
	@touch $@

# One of them has no wheel: setuptools, which builds it, is there already.
.venv/dev.done: requirements/dev.lock .venv/$(LIBS).done
	@$(INSTALL) $< --no-deps --require-hashes --no-build-isolation
	@touch $@

# An environment in folder $(1) that holds what $(2) pins, and takes all else from .venv.
define beside
@echo "setting up $(1)"
@$(BIN)/python -m venv --without-pip --clear $(1)
@$(BIN)/pip --python $(1)/bin/python install --quiet $(HASHED) -r $(2)
@$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
	>$$(echo $(1)/lib/python3.*/site-packages)/parlance.pth
endef

# Qwen3-TTS pins another transformers.
$(QWEN)/done: requirements/qwen.lock $(wildcard requirements/qwen-25hz/*.py) | .venv/$(LIBS).done
	$(call beside,$(QWEN),$<)
	@cp -r requirements/qwen-25hz/. $(QWEN)/lib/python3.*/site-packages
	@touch $@

# Ray Data wants pandas and pyarrow, which nothing that answers requests does.
$(BATCH)/done: requirements/batch.lock | .venv/$(LIBS).done
	$(call beside,$(BATCH),$<)
	@touch $@

# Servers of others that benchmarks set beside ours, as they come. infinity's lock leaves torch to the main environment.
.venv/peers/%/done: requirements/peer-%.lock | .venv/$(LIBS).done
	$(call beside,.venv/peers/$*,$<)
	@touch $@

# What clients need is not what we need, so they have an environment of their own.
$(CLIENTS)/done: requirements/conformance.lock | .venv/$(LIBS).done
	@echo "setting up $(CLIENTS): $$(grep -c == $<) pinned packages"
	@$(BIN)/python -m venv --without-pip --clear $(CLIENTS)
	@$(BIN)/pip --python $(CLIENTS)/bin/python install --quiet $(HASHED) -r $<
	@touch $@

benchmarks/clients/node/node_modules/done: benchmarks/clients/node/package-lock.json
	@if command -v npm >/dev/null; then \
		cd benchmarks/clients/node && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error && touch node_modules/done; \
	else echo "no npm here: the clients of Node are not run"; fi

# A folder of packages that the tests of the console see beside their own.
$(PLAYWRIGHT)/done: requirements/browser.lock | .venv/bin/python
	@echo "setting up $(PLAYWRIGHT)"
	@rm -rf $(PLAYWRIGHT)
	@$(BIN)/pip install --quiet $(HASHED) --target $(PLAYWRIGHT) -r $<
	@touch $@

# What judges accessibility runs in the page; npm checks it by its hash.
tests/console/node_modules/done: tests/console/package-lock.json
	@if command -v npm >/dev/null; then \
		cd tests/console && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error && touch node_modules/done; \
	else echo "no npm here: the accessibility of the console is not judged"; fi

$(SCHEMATHESIS)/done: requirements/campaign.lock | .venv/bin/python
	@$(BIN)/python -m venv --without-pip --clear $(SCHEMATHESIS)
	@$(BIN)/pip --python $(SCHEMATHESIS)/bin/python install --quiet $(HASHED) -r $<
	@touch $@

.venv/audit/done: requirements/audit.lock | .venv/bin/python
	@$(BIN)/python -m venv --without-pip --clear .venv/audit
	@$(BIN)/pip --python .venv/audit/bin/python install --quiet $(HASHED) -r $<
	@touch $@

lock: .venv/bin/python ## resolve the locks in requirements/ anew
	@sh requirements/lock.sh $(abspath $(BIN)/uv)

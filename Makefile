# Everything runs in a virtual environment made here; only make and Python >= 3.11 are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RESULTS := results/reproduce

# pip reads PIP_CONSTRAINT itself; an absolute path works from wherever it builds.
ifneq ($(PIP_CONSTRAINT),)
export PIP_CONSTRAINT := $(abspath $(PIP_CONSTRAINT))
endif

.PHONY: help reproduce test lint bench clean
.DEFAULT_GOAL := help

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

reproduce: $(VENV)/.cli ## Analyse the simulated run, and the real one where KAESTAT_DATA has it
	$(BIN)/kaestat analyze --simulated --out $(RESULTS)/simulated
	@if [ -f "$$KAESTAT_DATA/acc_step_500_dev.json" ]; then \
		echo; $(BIN)/kaestat analyze "$$KAESTAT_DATA/acc_step_500_dev.json" --out $(RESULTS)/acc_step_500_dev; \
	fi
	@echo
	@for report in $(RESULTS)/*/report.html; do echo "Report: $(CURDIR)/$$report"; done

test: $(VENV)/.test ## Run the tests
	$(BIN)/pytest -q -n 2

lint: $(VENV)/.test ## Check style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

bench: $(VENV)/.bench ## Run the benchmarks
	$(BIN)/python -m benchmarks

clean: ## Remove the environment and the results of make reproduce
	rm -rf $(VENV) $(RESULTS)

# Stamps: an environment is brought up to date only when pyproject.toml changes.
$(VENV)/.created:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kaestat needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.cli: EXTRAS := cli,plots,parquet
$(VENV)/.test: EXTRAS := test
$(VENV)/.bench: EXTRAS := bench
$(VENV)/.cli $(VENV)/.test $(VENV)/.bench: pyproject.toml $(VENV)/.created
	$(BIN)/python -m pip install --quiet --editable '.[$(EXTRAS)]'
	@touch $@

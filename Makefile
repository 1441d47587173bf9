# Front doors of the course: `make` alone lists them. Works with GNU make 3.81 (macOS).
# Windows has no make: see README. Variables, with their defaults (TORCH: the build
# that .venv has, else `default`):
PROFILE = quick
DEVICE = auto
TORCH =
PYTHON = python3
NB =
OUT =
WHEELS_PYTHON = 3.12
# For JupyterLab, such as ARGS=--allow-root in a container.
ARGS =

VENV = .venv
PY = $(VENV)/bin/python
AUTHORING = PYTHONPATH=notebooks $(PY) -m authoring
CHROMIUM = $(shell command -v chromium || command -v chromium-browser)
# Strict on the pinned CPU set; CI's other lanes compare the verdict cells only.
NBVAL = --nbval --nbval-sanitize-with tests/nbval.cfg --nbval-cell-timeout 120

# Quick and silent when $(VENV) is up to date. $(1) = notebooks or dev.
install = @command -v $(PYTHON) >/dev/null || { \
  echo "wanted: Python 3.11 or newer; found: no $(PYTHON);" \
  "try: install it, or name it as in make run PYTHON=python3.12" >&2; exit 2; }; \
  $(PYTHON) requirements/install.py $(if $(TORCH),--variant $(TORCH)) --extras $(1) --venv $(VENV)

# With MPLBACKEND=agg from outside, notebooks would have no figures and still pass.
unexport MPLBACKEND

.PHONY: help run test lab check notebooks reference bench gpu-wheels gpu-check clean env-notebooks env-dev
.PHONY: test-unit test-exercises test-notebooks test-browser
# One thing at a time: two cores, and timings that must not disturb each other.
.NOTPARALLEL:

help: ## this list
	@echo "Course: PyTorch on your GPU. Both of the first two work on a fresh machine."
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile
	@echo "PROFILE=quick|class|full DEVICE=auto|cpu|cuda|... TORCH=default|cpu|cu126|cu130|rocm|xpu"
	@echo "PYTHON=python3 OUT=folder (run)  NB=05 (test)  FULL=1 ONLY=C1,C5 (bench)"

run: env-notebooks ## install, measure this machine, run every notebook, write runs/
	$(VENV)/bin/gpu-lab run --profile $(PROFILE) --device $(DEVICE) $(if $(OUT),--out "$(OUT)")

ifeq ($(NB),)
test: check test-unit test-notebooks test-browser ## install, then everything CI checks (NB=05: one notebook)
else
test: test-exercises test-notebooks
endif

# Configuration path "here": JupyterLab reads labconfig/default_setting_overrides.json.
# Full paths, because each kernel starts in the folder of its notebook.
lab: env-notebooks ## JupyterLab on the course
	JUPYTER_CONFIG_PATH="$(CURDIR)" GPU_LAB_RUNS="$(CURDIR)/runs" $(VENV)/bin/jupyter lab $(ARGS) notebooks

check: env-dev ## fast checks: lint, types, architecture, workflows, size
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(AUTHORING) lint
	$(PY) -m pytest tests/test_architecture.py
	$(PY) -m check_jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(AUTHORING) size

notebooks: env-dev ## rebuild notebooks from notebooks/src, with outputs
	$(AUTHORING) build

reference: env-dev ## keep a run of this machine, to ship: RUN=runs/… NAME=machine
	$(AUTHORING) reference "$(RUN)" "data/reference/$(NAME)"

# The peers are test code; what they measure is gpu_lab.
bench: env-dev ## our clock beside its peers, 15 minutes (FULL=1: the long list)
	PYTHONPATH=tests $(PY) -m peers $(if $(FULL),--full) $(if $(ONLY),--only $(ONLY))

# On a machine with a network; WHEELS_PYTHON is that of the GPU machine.
gpu-wheels: ## fetch the small wheels that gpu-check carries along
	rm -rf wheels
	$(PYTHON) -m pip download --quiet --no-deps --only-binary=:all: --python-version $(WHEELS_PYTHON) \
	  --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 --platform any \
	  -d wheels -r requirements/gpu-check.txt -c requirements/constraints.txt

gpu-check: ## the prepared run on a GPU machine that has torch and no network
	$(PYTHON) requirements/gpu_check.py --device $(if $(filter auto,$(DEVICE)),cuda,$(DEVICE)) $(if $(OUT),--out "$(OUT)")

clean: ## remove build/, dist/ and caches; keeps .venv and runs/
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache
	find gpu_lab tests notebooks requirements -name __pycache__ -prune -exec rm -rf {} +

# The parts of `make test`, each usable alone (CI cuts the network for one of them).
env-notebooks:
	$(call install,notebooks)

env-dev:
	$(call install,dev)

test-unit: env-dev
	$(PY) -m pytest tests --ignore=tests/test_browser.py

test-exercises: env-dev
	$(AUTHORING) lint
	$(PY) -m pytest tests/test_exercises.py

# Fresh folders each time, so that nothing old can pass for new. PYTHONWARNINGS: also
# what libraries say of their own use ends on stderr, where the tests allow nothing.
test-notebooks: env-dev
	rm -rf build/run/cpu build/check
	PYTHONWARNINGS=default $(VENV)/bin/gpu-lab run $(NB) --edition solutions --device cpu --profile quick --out build/run/cpu
	GPU_LAB_RUN=build/run/cpu $(PY) -m pytest tests -m notebooks
	$(AUTHORING) prepare $(NB) --device cpu --profile quick --out build/check/cpu
	GPU_LAB_OUT="$(CURDIR)/build/check/out" GPU_LAB_PROGRESS=0 $(PY) -m pytest $(NBVAL) --nbval-current-env -p no:cacheprovider build/check/cpu

test-browser: env-dev
	@if [ -n "$(CHROMIUM)" ]; then $(PY) -m pytest tests/test_browser.py; \
	else echo "browser layer NOT RUN: no chromium"; [ -z "$$GPU_LAB_REQUIRE_BROWSER" ]; fi

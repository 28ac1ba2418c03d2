# The commands of this project; "make" alone lists them. The first use of any of them makes the environment.

FAMILY ?= onedl
ifeq ($(filter onedl openmmlab,$(FAMILY)),)
$(error FAMILY is '$(FAMILY)'; it can be onedl or openmmlab)
endif
OPERATORS ?= pytorch
ifeq ($(filter pytorch compiled,$(OPERATORS)),)
$(error OPERATORS is '$(OPERATORS)'; it can be pytorch or compiled)
endif
BASE := .venv$(if $(filter onedl,$(FAMILY)),,-$(FAMILY))
VENV := $(BASE)$(if $(filter compiled,$(OPERATORS)),-compiled)
# An environment remembers another TORCH than the pinned one, and the PYTHON it came with.
-include $(BASE)/choice.mk
PINNED_TORCH := torch==2.13.0
TORCH ?= $(PINNED_TORCH)
PYTHON ?= python3.11

RUN := $(VENV)/bin/python
# Threads that wait without spinning (on a busy machine ten times faster), and large tensors in large
# pages (with glibc on Linux; no page faults for every 4 KiB).
export OMP_WAIT_POLICY ?= passive
export GLIBC_TUNABLES ?= glibc.malloc.hugetlb=1
ENVIRONMENT := $(BASE)/.made-with-$(subst =,-,$(TORCH))
COMPILED := $(BASE)-compiled/.made
PACKAGE := $(VENV)/.package-installed

.PHONY: help setup demo test lint docs dist clean distclean
.DEFAULT_GOAL := help

help:  ## list the commands and their variables
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo 'FAMILY=openmmlab     the upstream packages, in an environment of their own (default: onedl)'
	@echo 'OPERATORS=compiled   operators of mmcv compiled on this machine, in an environment on top (default: pytorch)'
	@echo 'PYTHON=python3.12    the Python to build the environment from (default: python3.11)'
	@echo 'TORCH=torch==2.9.1   another torch, or TORCH=installed: the one that PYTHON already has'
	@echo 'PIP_ARGS=...         more options for the pip command that installs torch, such as an index'
	@echo 'FORCE_CUDA=0 or 1    compiled operators for CPU or CUDA (default: CUDA if torch has it and nvcc is there)'
	@echo 'SLOW=1               slow tests too (make test); build/tests.xml has the time of each test'
	@echo 'PYTEST_ARGS=...      options or files for make test'

setup: $(PACKAGE)  ## make the environment: pinned packages and this package

demo: $(PACKAGE)  ## train a small detector on generated pictures, evaluate it and draw its boxes
	$(RUN) -m rope_dense_command demo

# One process a core, each with its part of the tests in their order (a file's tests share models and data); who is
# done first takes half of what is left to another.
test: $(PACKAGE) $(if $(SLOW),$(BASE)/.openvino-installed)  ## run the tests but the slow ones; SLOW=1 runs those too
	$(RUN) -m pytest -n logical --dist worksteal $(if $(SLOW),,-m 'not slow') \
		--junitxml=build/tests.xml --durations=50 $(PYTEST_ARGS)

lint: $(PACKAGE)  ## check style, types and imports between the parts of the package
	$(RUN) -m ruff check .
	$(RUN) -m mypy
	$(VENV)/bin/lint-imports --no-cache

# Commands are left out: their docstrings are the text of --help.
docs: $(PACKAGE) $(BASE)/.docs-installed  ## write the guides and pages of the API to build/site/html
	rm -rf build/site
	mkdir -p build/site/source
	cp -r docs build/site/source/guides
	cp docs/api/index.rst build/site/source
	SPHINX_APIDOC_OPTIONS=members,show-inheritance $(RUN) -m sphinx.ext.apidoc -q \
		--separate --module-first --tocfile index -o build/site/source/api rope_dense \
		$(filter-out %/__init__.py,$(wildcard rope_dense/commands/*.py)) $(wildcard rope_dense/commands/predict*)
	$(RUN) -m sphinx -q -W --keep-going -c docs/api build/site/source build/site/html

dist: $(PACKAGE) $(BASE)/.dist-installed  ## build source distribution and wheel in dist/; try the wheel in an environment of its own
	rm -rf dist *.egg-info
	$(RUN) -m build --no-isolation
	.ci/try_wheel.sh $(RUN)

clean:  ## remove the environments and what they left behind
	rm -rf .venv .venv-* build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean  ## remove the compiled operators and the results too
	rm -rf .wheels work_dirs

$(ENVIRONMENT): requirements/common.txt requirements/build.txt requirements/torch.txt requirements/triton.txt requirements/$(FAMILY).txt
	requirements/install.sh '$(PYTHON)' '$(BASE)' '$(FAMILY)' '$(TORCH)'
	$(if $(filter-out $(PINNED_TORCH),$(TORCH)),printf '%s\n' 'TORCH ?= $(TORCH)' 'PYTHON ?= $(PYTHON)' > $(BASE)/choice.mk)
	touch $@

$(COMPILED): $(ENVIRONMENT)
	requirements/install_compiled.sh '$(BASE)' '$(BASE)-compiled' '$(FAMILY)'
	touch $@

$(BASE)/.docs-installed: $(ENVIRONMENT) requirements/docs.txt
	$(BASE)/bin/python -m pip install --quiet --no-deps -r requirements/docs.txt
	touch $@

$(BASE)/.openvino-installed: $(ENVIRONMENT) requirements/openvino.txt
	$(BASE)/bin/python -m pip install --quiet --no-deps -r requirements/openvino.txt
	touch $@

$(BASE)/.dist-installed: $(ENVIRONMENT) requirements/dist.txt
	$(BASE)/bin/python -m pip install --quiet --no-deps -r requirements/dist.txt
	touch $@

$(PACKAGE): $(ENVIRONMENT) $(if $(filter compiled,$(OPERATORS)),$(COMPILED)) setup.py pyproject.toml rope_dense/version.py
	$(RUN) -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

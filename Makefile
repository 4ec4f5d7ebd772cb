# make demo       train a GAT with PyG's conv and the fused one, print a table, write quickstart.png
# make test       run the tests that take seconds
# make test-slow  run the others
# make docs       build the documentation as a site, build/docs/index.html
# make test-oldest
#                 run the quick tests with the oldest versions that pyproject.toml allows, in $(VENV)-oldest (gigabytes;
#                 needs a Python that these were made for: 3.10 to 3.12)
# make dist       build the wheel and the sdist, and install and try each in an environment of its own
# make ptx        compile and assemble all CUDA kernels, without a GPU; 198 MB of compilers are installed for it
# make resolve    ask pip, which installs nothing, whether the extras for GPUs go together with $(CONSTRAINTS)
# make lint       check style, format (make format mends them) and that imports go down
#
# Everything is installed into $(VENV); the first call takes minutes, later ones start at once.

PYTHON ?= python3
VENV ?= .venv
# A folder with built wheels of torch_scatter and torch_sparse, which PyPI has as source only: one named wheels, here or
# near.
WHEELS ?= $(firstword $(wildcard wheels ../wheels ../*/wheels))
# torch_scatter and torch_sparse: taken from WHEELS if they are there; SPARSE=build compiles them otherwise (as CI does),
# SPARSE=0 leaves them out. Without them the tests that need them are skipped.
SPARSE ?= 1
# Options of `make ptx`, see benchmarks/ptx.py.
PTX_OPTIONS ?=
# How many processes run tests at a time, each with one thread.
JOBS ?= auto
# The versions that are installed.
CONSTRAINTS ?= constraints.txt
# More options for pip, for example another index.
PIP_OPTIONS ?=

RUN := $(VENV)/bin/python
# neighbouring tests share compiled kernels: each process takes a run of them, and from the others once it is done
PYTEST := OMP_NUM_THREADS=1 $(RUN) -m pytest --numprocesses $(JOBS) --dist worksteal
INSTALL := $(RUN) -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) $(PIP_OPTIONS)
# those of the extra `docs`; ruff formats signatures
DOCS := latex2mathml mkdocs-material 'mkdocstrings[python]' ruff
HAS_SPARSE := $(RUN) -c 'import torch_scatter, torch_sparse' 2>/dev/null
# Their sources are compiled side by side, which ninja would not do: it is started once for each two of them.
COMPILE_SPARSE := DIST_EXTRA_CONFIG='$(CURDIR)/build/compile-sparse.cfg' FORCE_ONLY_CPU=1 \
	CFLAGS='-DNDEBUG -g0' CXXFLAGS='-DNDEBUG -g0' $(INSTALL)

.PHONY: demo test test-slow test-oldest docs dist ptx resolve lint format clean

demo: $(VENV)/.demo
	$(RUN) examples/quickstart.py

test: $(VENV)/.test $(VENV)/.sparse
	$(PYTEST) -m "not slow"

test-slow: $(VENV)/.test $(VENV)/.sparse
	$(PYTEST) -m slow

test-oldest:
	@mkdir -p build
	sed -n 's/^    "\([a-z_]*\)>=\([0-9.]*\)",$$/\1==\2/p' pyproject.toml > build/oldest.txt
	$(MAKE) VENV=$(VENV)-oldest CONSTRAINTS=build/oldest.txt SPARSE=0 test

ptx: $(VENV)/.ptx
	$(RUN) benchmarks/ptx.py $(PTX_OPTIONS)

resolve: $(VENV)/.created
	@for extra in cuda12 cuda13 ptx; do \
		echo "pygfuse[$$extra]"; $(INSTALL) --dry-run --ignore-installed ".[$$extra]" || exit 1; done

# Sources are read and not imported, so nothing of PyTorch is installed for it.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet
	@echo "The documentation is in build/docs/index.html; its search works with $(RUN) -m http.server --directory build/docs"

dist: $(VENV)/.dist
	$(RUN) -m tests.distribution

lint: $(VENV)/.lint
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	PYTHONPATH=. $(VENV)/bin/lint-imports
	$(RUN) benchmarks/render.py --check

format: $(VENV)/.lint
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .
	$(RUN) benchmarks/render.py

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache quickstart.png dgcnn.png hag.png explanation.png monet_*.png model.pt2 gpu-benchmark.*

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 14))' || { \
		echo "pygfuse needs Python 3.10 to 3.14. Name one, for example: make PYTHON=python3.11 demo" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
		echo "$(PYTHON) cannot make a virtual environment here." >&2; \
		echo "On Debian and Ubuntu its venv module is a package of its own: apt install python3-venv" >&2; exit 1; }
	@touch $@

$(VENV)/.demo: $(VENV)/.created pyproject.toml constraints.txt
	@echo "Installing pygfuse and what the demo needs into $(VENV) ..."
	@$(INSTALL) -e '.[demo]'
	@touch $@

$(VENV)/.test: $(VENV)/.created pyproject.toml constraints.txt
	@echo "Installing pygfuse and what its tests need into $(VENV) ..."
	@$(INSTALL) -e '.[demo,test]'
	@touch $@

$(VENV)/.ptx: $(VENV)/.created pyproject.toml constraints.txt
	@echo "Installing pygfuse and compilers for CUDA into $(VENV) ..."
	@$(INSTALL) -e '.[ptx]'
	@touch $@

$(VENV)/.docs: $(VENV)/.created constraints.txt
	@$(INSTALL) $(DOCS)
	@touch $@

$(VENV)/.dist: $(VENV)/.test
	@$(INSTALL) build
	@touch $@

$(VENV)/.lint: $(VENV)/.created constraints.txt
	@$(INSTALL) import-linter ruff
	@touch $@

# Never fails: without the two libraries the tests that need them are skipped (and fail where CI is set).
$(VENV)/.sparse: $(VENV)/.test
	@if [ "$(SPARSE)" = 0 ] || $(HAS_SPARSE); then exit 0; fi; \
	if [ -d "$(WHEELS)" ]; then \
		$(INSTALL) --no-deps --no-index --find-links "$(WHEELS)" torch_scatter torch_sparse || true; fi; \
	if ! $(HAS_SPARSE) && [ -n "$(CI)" -o "$(SPARSE)" = build ]; then \
		echo "Building torch_scatter and torch_sparse from source, some 15 minutes shared by all cores ..."; \
		mkdir -p build; \
		printf '[build_ext]\nparallel = %s\nuse_ninja =\n' "$$(getconf _NPROCESSORS_ONLN)" > build/compile-sparse.cfg; \
		$(INSTALL) setuptools wheel && \
		$(COMPILE_SPARSE) --no-deps --no-build-isolation --force-reinstall torch_scatter torch_sparse || true; fi; \
	$(HAS_SPARSE) || echo "Tests of torch_sparse.SparseTensor are skipped: make test SPARSE=build compiles what they need" \
		"(some 15 minutes shared by all cores, a C++ compiler), WHEELS=folder takes built wheels." >&2
	@[ "$(SPARSE)" = 0 ] || ! $(HAS_SPARSE) || touch $@

# quick: before a commit: ruff of the files that changed, lit, and tests for 165 seconds of CPU: those that have not run here yet,
#   then the shortest (each run notes what its tests took).
# demo: a digit that a net recognises, by the package alone in .venv.  test: everything CI checks.  lint, lit, pytest, portability: parts of it.
# pytest: in an order drawn anew each time, by a seed that is printed; SEED=N repeats one.
# portability: the tests of numbers as five other machines would run them; with FULL=1, under every setting that is known;
#   with CPU=cascadelake (or alderlake, x86-64-v3, x86-64-v4), all tests as that one.
# first-screen: what the README's first screen says, in a clone of this commit in which nothing was made.
# first-hour: that, a second result, and the README's other commands, with their times; PYTHONS="python3.11 python3.13" of several versions.
# view: the package as it is installed, in .venv/view, for tools that read files: its parts inside of populus.
# wheel: dist/ has the wheel, with the kernels of the nets of benchmarks, and the source distribution.
# packages: both installed from dist/ into an empty environment, and tried there.
# blocks: every code block of every page and every notebook, by an installed wheel; with EXTRAS=mpi,examples,images,torch those of PyTorch too.
# bench: times.  levels: every level of the nets of the onnx wheel and of torch's exports against the one above; MODELS=vgg19 of some.
# fuzz: all fuzzers or FUZZERS, on fresh seeds or from SEED on, COUNT of each, for SECONDS if given.
# triples: each triple of producer, layout op and consumer of a table, or CASE, or every STEP-th, or CI's SAMPLE; TURN has other pairs and values.
# check-ops: `check-op` on every built-in op, or on OPS.
# docs: the documentation site, build/site/index.html, every link checked, ten searches tried.
# prove: small nets and layers, and every 40th of ONNX's node tests, proved from their first pass to their tiles (docs/proof.md).
# mutants: faults planted in tile programs, in the fusion and in patterns, and mistakes planted in a copy of the sources (or those of FILES), chosen and
#   drawn, one at a time, and what catches each.
# validate: every pass of the nine nets, a transformer layer and training steps, with results before and after it.
# screens: pictures of the views of the page of `populus profile`, in build/screens, and axe-core on them; needs Chromium.
# soak: 10,000 programs in one process, whose memory and open files stay level.
# Each makes .venv from the pinned requirements when it is missing or older than they are; PYTHON chooses the interpreter (3.11 or newer).

PYTHON ?= python3
BIN    := .venv/bin
READY  := .venv/.ready
PACKAGE := .venv/.package

.PHONY: quick view demo docs first-screen first-hour test lint lit pytest portability bench wheel packages blocks levels fuzz triples check-ops validate prove mutants soak screens

demo: $(PACKAGE)
	@$(BIN)/populus demo

test: lint lit pytest portability

lint: $(READY) view
	@echo "== ruff, basedpyright, import-linter"
	@$(BIN)/ruff check --quiet .
	@$(BIN)/basedpyright --level error
	@cd .venv/view && ../bin/lint-imports --no-cache --config ../../pyproject.toml > ../lint-imports.log 2>&1 || { cat ../lint-imports.log; exit 1; }

view:
	@rm -rf .venv/view && mkdir -p .venv/view/populus
	@ln -s $(addprefix $(CURDIR)/,$(wildcard populus/*) dialects lowering runtime tools) .venv/view/populus

lit: $(READY)
	@echo "== lit"
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/lit --quiet -j2 test/filecheck

# Two processes of tests share two CPUs: threads of NumPy's and torch's products would turn while they wait, for twice the CPU time.
ALONE = OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1

pytest: SEED ?= $(shell date +%s)
pytest: SEED := $(SEED)
pytest: $(READY)
	@echo "== pytest, in the order of SEED=$(SEED)"
	@$(ALONE) $(BIN)/pytest -q -n 2 --dist worksteal --randomly-seed=$(SEED)

quick: $(READY)
	@echo "== ruff of what changed, lit, quick tests"
	@git diff --name-only --diff-filter=d -z HEAD -- '*.py' | xargs -0 -r $(BIN)/ruff check --quiet
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/lit --quiet -j2 test/filecheck
	@$(ALONE) $(BIN)/pytest -q -n 2 --dist worksteal --within 165

portability: $(READY)
	@echo "== portability"
	@$(BIN)/python -m benchmarks.portability $(if $(FULL),--full) $(if $(CPU),--only $(CPU) -- -n 2 --dist worksteal)

bench: $(READY)
	@$(BIN)/python -m benchmarks.speed
	@$(BIN)/python -m benchmarks.packed_weights
	@$(BIN)/python -m benchmarks.start
	@$(BIN)/python -m benchmarks.built

wheel: $(READY)
	@rm -rf dist/populus_tiles-* build/lib build/kernels build/wheel-venv
	@$(BIN)/python -m benchmarks.shipped_kernels build/kernels
	@$(PYTHON) -m venv build/wheel-venv
	@build/wheel-venv/bin/python -m pip install --quiet --disable-pip-version-check "$$(grep ^setuptools== requirements.txt)"
	@build/wheel-venv/bin/python -c "from setuptools import build_meta as b; b.build_sdist('dist'); b.build_wheel('dist')" > /dev/null
	@ls dist

EXTRAS ?= mpi,examples,images,prove
NEW = build/packages-venv/bin

packages: wheel first-screen
	@rm -rf build/packages-venv && $(PYTHON) -m venv build/packages-venv
	@$(NEW)/pip install --quiet --disable-pip-version-check dist/populus_tiles-*.whl
	@cd build/packages-venv && bin/pip check && bin/populus --version && bin/populus run --example squeezenet
	@$(NEW)/python -P -c "from populus.runtime.engine.native.codegen.store import *; assert all(objects(FOLDER, level) for level in LEVELS)"
	@POPULUS_CACHE= $(NEW)/python -P -c "import sys, populus; from populus.write.nets import net; \
	  populus.compile(net('squeezenet'), threads=1, cache=False).session; \
	  from populus.runtime.engine.native.codegen.cpu import machine; from populus.runtime.engine.native.codegen.store import LEVELS, runs; hit = any(runs(machine(), level) for level in LEVELS); \
	  assert not hit or 'populus.runtime.engine.native.codegen.to_llvm' not in sys.modules, 'a kernel is not in the store'"
	@$(NEW)/pip uninstall --quiet --yes populus-tiles
	@$(NEW)/pip install --quiet --disable-pip-version-check dist/populus_tiles-*.tar.gz
	@cd build/packages-venv && bin/populus --version && bin/populus-opt squeezenet --pipeline inference --target llvm > codelets.ll
	@test -s build/packages-venv/codelets.ll

PYTHONS ?= $(PYTHON)

first-hour:
	@for p in $(PYTHONS); do rm -rf build/first-hour && git clone --quiet . build/first-hour || exit 1; \
	  PYTHONPATH=test $(PYTHON) test/helpers/first_screen.py build/first-hour --hour --python "$$(command -v $$p)" || exit 1; done

first-screen:
	@rm -rf build/first-screen && git clone --quiet . build/first-screen
	@PYTHONPATH=test $(PYTHON) test/helpers/first_screen.py build/first-screen

blocks: packages
	@$(NEW)/pip install --quiet --disable-pip-version-check "$$(ls $(CURDIR)/dist/populus_tiles-*.whl)[$(EXTRAS)]"
	@PYTHONPATH=test $(NEW)/python -m blocks --whole
	@cd build/packages-venv && for n in $(CURDIR)/examples/notebooks/*.ipynb; do \
	  bin/python $(CURDIR)/docs/site/notebooks.py $$n > /dev/null || exit 1; done

levels: $(READY)
	@$(BIN)/python -m benchmarks.levels $(MODELS)

fuzz: $(READY)
	@$(BIN)/python test/fuzz $(FUZZERS) $(if $(SEED),--start $(SEED)) $(if $(COUNT),--count $(COUNT)) $(if $(SECONDS),--seconds $(SECONDS))

triples: $(READY)
	@$(BIN)/python test/triples $(CASE) $(if $(TURN),--turn $(TURN)) $(if $(FORM),--form $(FORM)) $(if $(STEP),--step $(STEP)) \
	  $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SAMPLE),--sample)

check-ops: $(READY)
	@$(BIN)/python test/helpers/built_in_checks.py $(OPS)

docs: $(READY) build/docs-venv/.ready
	@$(BIN)/python docs/site/stage.py build/pages
	@NO_MKDOCS_2_WARNING=1 build/docs-venv/bin/mkdocs build --quiet --strict --config-file docs/site/mkdocs.yml
	@build/docs-venv/bin/python docs/site/queries.py build/site
	@echo "build/site/index.html; a browser searches it by http: python3 -m http.server --directory build/site"

build/docs-venv/.ready: docs/site/requirements.txt
	@$(PYTHON) -m venv build/docs-venv
	@build/docs-venv/bin/python -m pip install --quiet --disable-pip-version-check --requirement docs/site/requirements.txt
	@touch $@

mutants: $(READY)
	@$(BIN)/python -m benchmarks.tile_mutants $(if $(SEED),--seed $(SEED)) $(if $(COUNT),--count $(COUNT))
	@$(BIN)/python -m benchmarks.fusion_mistakes
	@$(BIN)/pytest -q test/pytest/test_validation.py
	@$(BIN)/python -m benchmarks.mutants $(FILES)
	@$(BIN)/python -m benchmarks.drawn_mutants

prove: $(READY)
	@$(BIN)/python -m benchmarks.proofs --quick
	@$(BIN)/python -m benchmarks.proofs --nodes 40

validate: $(READY)
	@$(BIN)/python -m benchmarks.validation

screens: $(READY)
	@$(BIN)/python -m benchmarks.screens

soak: $(READY)
	@$(BIN)/python -m benchmarks.long_lives

NEW_ENOUGH = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "populus needs Python 3.11 or newer; make PYTHON=python3.11 chooses one")'

$(PACKAGE): requirements.txt pyproject.toml
	@$(NEW_ENOUGH)
	@echo "== .venv gets populus and what it needs, 400 MB; that takes about a minute"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --disable-pip-version-check --constraint requirements.txt --editable . | sed -u -n 's/^Collecting/  &/p'
	@touch $@

$(READY): requirements.txt pyproject.toml
	@$(NEW_ENOUGH)
	@echo "== .venv gets all of requirements.txt, 1.2 GB; that takes some minutes"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.txt
	@$(BIN)/python -m pip uninstall --quiet --disable-pip-version-check --yes populus 2> /dev/null # another project's, which would shadow ours
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@$(MAKE) --no-print-directory view
	@touch $(PACKAGE) $@

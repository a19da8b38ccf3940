"""The table of pages: what each takes for granted, and the blocks that are not run, with their reasons."""

from __future__ import annotations

from importlib.util import find_spec

from blocks import givens
from blocks.frames import CALLER, COUNT, GATHERED, KERNEL, NORM, WEIGHED
from blocks.running import Frame, Page

CLONE = "needs a clone of the repository; CI runs `make test`, `make docs` and `make packages` there"
INDEX = "installs from the package index; `make packages` installs the wheel with its dependencies"
DRAWING = "a drawing"

PAGES: dict[str, Page] = {
    "README.md": Page(
        not_run={"python3 -m venv": CLONE, "make ": CLONE, " model.onnx\n": DRAWING, "An image of": CLONE},
        long=("populus check-op twice.py", "populus run squeezenet --target gc200 --check-levels", "populus profile resnet50"),
    ),
    "dialects/README.md": Page(not_run={"  onnx ": DRAWING}),
    "CONTRIBUTING.md": Page(not_run={"make ": CLONE, ".venv/bin": CLONE}),
    "docs/add-an-op.md": Page(
        given=givens.add_an_op,
        framed={
            "class LeakyReluOp": Frame("own.py", "from populus.custom import *\n\n\nBLOCK\n", ("populus check-op own.py --seconds 5",)),
            "def infer(self):": Frame("weighed.py", WEIGHED, ("populus check-op weighed.py --seconds 5",)),
            "EXAMPLES": Frame("gathered.py", GATHERED, ("populus check-op gathered.py --seconds 5",)),
        },
    ),
    "docs/compile-apart.md": Page(given=givens.one_model),
    "docs/build.md": Page(
        given=givens.build,
        needs=("cc", "make"),
        before={"load_program": givens.build_with_state},
        framed={"populus_model *model": Frame("block.c", CALLER, ("cc -Wall -Werror -fsyntax-only -I built block.c",))},
    ),
    "docs/command-line.md": Page(given=givens.command_line),
    "docs/run.md": Page(given=givens.command_line),
    "docs/populus-opt.md": Page(
        given=givens.command_line,
        before={"populus-opt model.onnx -p": givens.counting_by_size},
        not_run={"vim.lsp": "a setting of an editor; test_language_server.py has a client"},
    ),
    "docs/debugging.md": Page(
        given=givens.debugging,
        not_run={
            "popart-fuse (": "a message about a mistake in a pattern; test/pytest/test_validation.py asserts its form",
            "native differs": "a message about a mistake in the native engine; test/pytest/test_engines.py asserts its form",
        },
    ),
    "docs/explore.md": Page(
        not_run={
            "populus explore bert.onnx": "needs an ONNX file of BERT-base, which is not in the repository",
            "dask scheduler": "starts servers that do not end; test_exploration.py has workers of its own",
            "populus explore digits --vary tiles=4:64:4 --scheduler": "needs these servers",
        },
    ),
    "docs/explore-questions.md": Page(
        not_run={
            "populus explore bert.onnx": "needs an ONNX file of BERT-base, which is not in the repository",
            "populus explore hey_jarvis.onnx": "needs a model of an npm package",
            "python -m benchmarks.decoders": CLONE,
            "populus explore layers.onnx": CLONE,
        },
        long=("populus explore resnet50 --equal",),
    ),
    "docs/explore-measured.md": Page(not_run={"python -m": "needs a clone, and ZigZag in an environment of its own"}),
    "docs/mesh-measured.md": Page(not_run={"python -m benchmarks.decoders": CLONE, "populus profile layer.onnx": CLONE}),
    "docs/host.md": Page(given=givens.host, fails=("populus run model.onnx --no-host",)),
    "docs/machine-of-your-own.md": Page(
        given=givens.new_target,
        not_run={
            "python -m benchmarks.decoders": CLONE,
            "populus profile layer.onnx": "needs the layer that a clone writes; test_block_floats.py has some",
        },
    ),
    "docs/new-engine.md": Page(given=givens.new_engine),
    "docs/new-target.md": Page(given=givens.new_target),
    "docs/open-sizes.md": Page(given=givens.open_sizes, before={"program.stateful": givens.with_cache}),
    "docs/pipelines.md": Page(
        given=givens.pipelines,
        framed={"# a hash starts": Frame("passes.txt", "BLOCK\n", ("populus-opt model.onnx --pipeline passes.txt --print-pipeline",))},
    ),
    "docs/add-a-pass.md": Page(
        given=givens.pipelines,
        before={"count.py": givens.module_of_calls},
        framed={
            "class DoubleNegation": Frame("pattern.py", "BLOCK\n", ("populus run model.onnx --load pattern.py",)),
            "class PopopsCountPass": Frame("count.py", "BLOCK\n", ()),
        },
    ),
    "docs/popart-api.md": Page(not_run={"python benchmarks": "needs a checkout of PopART's repository, and a clone of this one"}),
    "docs/popart-compatibility.md": Page(
        given=givens.popart, not_run={"python benchmarks": "needs a checkout of PopART's repository, and a clone of this one"}
    ),
    "docs/poptorch-compatibility.md": Page(
        given=givens.poptorch, before={"torch.compile": givens.plain_module}, needs=("torch", "onnxscript"), long=("",)
    ),
    "docs/profile.md": Page(given=givens.new_target),
    "docs/reliability.md": Page(
        not_run={"python ": "needs a clone and 15 minutes for each line; the figures are of the runs that are described"}
    ),
    "docs/pytorch.md": Page(not_run={"pip install": INDEX}, needs=("torch", "onnxscript"), long=("",)),
    "docs/replicas.md": Page(
        given=givens.replicas,
        needs=("mpiexec",),
        long=tuple(
            f"mpiexec -n 4 populus train model.onnx --data train.npz --batch 64 --{option}" for option in ("shard", "stages", "replicas")
        ),
        before={"popart-replicate{": givens.differentiable},
        not_run={
            "pip install": INDEX,
            "populus: rank 1": "a message; test/pytest/test_replica_training.py asserts it",
            "populus: rank 2": "a message that names a process; runtime/guardian.py makes it",
        },
    ),
    "docs/run-program.md": Page(
        given=givens.run_program,
        long=("populus run-program examples/popart", "step   1"),
        said={"populus: devices.py": givens.refusals},
        not_run={
            "populus: run.py:2": "a message; test_compiled_ops.py asserts it",
            **({} if find_spec("torch") else {"populus run-program examples/poptorch": "needs torch"}),
        },
    ),
    "docs/tile-code.md": Page(
        given=givens.add_an_op,
        framed={
            "def row_norm_vertex": Frame("norm.py", NORM, ("populus check-op norm.py --seconds 5",)),
            "def histogram": Frame("count.py", COUNT, ("populus check-op count.py --seconds 5",)),
            "class Blocked(": Frame("blocked.py", KERNEL, ("python check.py blocked.py",)),
        },
    ),
    "docs/training.md": Page(given=givens.training),
    "docs/vjp.md": Page(
        given=givens.training, before={"onnx-expose-weights{names=": givens.closed}, said={"populus-opt: silent": givens.no_gradient}
    ),
    "docs/jax.md": Page(needs=("jax", "sklearn", "flax", "optax"), not_run={"pip install": INDEX}),
    "docs/stablehlo.md": Page(
        given=givens.stablehlo,
        needs=("jax", "sklearn"),
        before={
            "--inputs batch.npz": givens.open_batch,
            "--dim arg0.0=5": givens.open_stablehlo,
            "--dim arg1.0=5": givens.sized_stablehlo,
            "populus export model": givens.one_model,
        },
        not_run={"pip install": INDEX},
    ),
    "docs/stablehlo-measured.md": Page(
        not_run={
            "git clone": "needs the network",
            "python ": "needs a checkout of StableHLO's repository, and a clone of this one",
            "XLA_FLAGS=": "takes minutes of an idle machine, and a clone",
            "cat dialects": CLONE,
        },
    ),
    "docs/proof.md": Page(
        not_run={
            "pip install": INDEX,
            "poplar-merge is refuted": "a refutation of a pass that was made wrong (test_passes.py)",
            "launches of the native engine are": "a refutation of a kernel that was made wrong (test_launch_check.py)",
            "the pattern Attention is refuted": "a refutation of a pattern that was made wrong (test_rewrites.py)",
        }
    ),
    "docs/tutorial.md": Page(given=givens.digits, not_run={"make ": CLONE, "source ": CLONE}),
    "examples/digits/README.md": Page(given=givens.digits, not_run={"pip install": INDEX}, long=("populus train", "epoch")),
    "populus/README.md": Page(given=givens.one_model),
    "populus/exploration/README.md": Page(given=givens.one_model),
    "runtime/README.md": Page(given=givens.session),
    "test/README.md": Page(not_run={"make test": CLONE, "make quick": CLONE, ".venv/bin": CLONE}),
    "test/fuzz/README.md": Page(given=givens.fuzz, not_run={"make fuzz": CLONE}),
    "test/triples/README.md": Page(not_run={"make triples": CLONE}),
    "docs/web.md": Page(
        given=givens.web,
        not_run={
            "import { load }": "JavaScript of a page; test_web.py runs the loader in Node",
            "program.inputs;": "JavaScript of a page; test_web.py runs the loader in Node",
        },
    ),
}

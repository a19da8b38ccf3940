"""Runs public programs of PopXL, PopART and PopTorch as they are: `python benchmarks/programs.py FOLDER [-k WORDS] [--limit SECONDS]`.

FOLDER holds copies of the public repositories of graphcore: `examples`, `popart`, `popxl-addons`, `examples-utils`, and `tutorials` of
before it moved to examples (at b7ffa4d). Each program of the list runs by `populus run-program` in its own folder, without a change, at the
size that its own tests or the options of this list give. Drawn data stand in for downloads: `benchmarks/stand_ins` has the packages
torchvision, wandb, datasets and evaluate. Wants PyTorch, transformers 4.33, scipy, tqdm and simple-parsing 0.0.19.post1.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SMALL = "--vocab_size 128 --sequence_length 8 --hidden_size 64 --heads 4"
BERT, GPT = "examples/nlp/bert/popxl", "examples/nlp/gpt3_2.7B/popxl"
TUTORIALS, FEATURES = "examples/tutorials/tutorials", "examples/tutorials/feature_examples"
OLD = "tutorials/feature_examples/popart"
GUIDES = {
    "popxl": "autodiff basic_graph call_with_info code_loading create_multi_graphs_from_same_func in_sequence multi_call_graph_input "
    "multi_callsites_of_a_graph nested_session_contexts remote_rts_var remote_variable remote_variable_replica_grouped "
    "repeat_graph_0 repeat_graph_2 replication rts_var simple_addition tensor_addition tensor_get_write mnist float8_inference",
    "popart": "importing_graphs replication_popart simple_addition weights",
}
PROGRAMS = (
    *((f"{TUTORIALS}/popxl/{folder}", "mnist.py") for folder in ("1_basic_concepts", "2_custom_optimiser", "3_data_parallelism")),
    *((f"{TUTORIALS}/popxl/{folder}", "mnist.py") for folder in ("4_pipelining", "5_remote_variables_and_rts", "6_phased_execution")),
    (BERT, f"squad_inference.py --layers 3 --device_iterations 10 --micro_batch_size 2 --max_positional_length 8 {SMALL}"),
    (BERT, f"squad_training.py --layers 3 --micro_batch_size 2 --data_parallel 2 --max_positional_length 8 {SMALL}"),
    (BERT, f"pretraining.py --layers 3 --global_batch_size 16 --micro_batch_size 2 --data_parallel 2 --max_positional_length 8 {SMALL}"),
    (
        GPT,
        (
            "pretraining.py --layers 3 --global_batch_size 16 --micro_batch_size 2 --data_parallel 2 --tensor_parallel 2 "
            f"--max_positional_length 8 {SMALL} --precision float32"
        ),
    ),
    (GPT, f"generative_inference.py --layers 2 --micro_batch_size 2 --tensor_parallel 2 --max_positional_length 8 {SMALL}"),
    (GPT, f"mnli_inference.py --layers 2 --micro_batch_size 2 --tensor_parallel 2 --max_positional_length 8 {SMALL}"),
    (
        GPT,
        (
            f"mnli_finetuning.py --layers 2 --global_batch_size 8 --micro_batch_size 2 --data_parallel 2 --tensor_parallel 2 "
            f"--max_positional_length 8 {SMALL}"
        ),
    ),
    (
        "examples/nlp/gpt3_175B/popxl",
        (
            "pretraining.py --layers 2 --global_batch_size 8 --micro_batch_size 2 --data_parallel 2 --tensor_parallel_1 2 "
            f"--tensor_parallel_2 2 --max_positional_length 8 {SMALL}"
        ),
    ),
    (
        "examples/nlp/gpt_j/popxl",
        (
            "finetuning.py --config tiny --layers 3 --global_batch_size 16 --micro_batch_size 2 --data_parallel 2 --tensor_parallel 2 "
            f"--rotary_dim 16 {SMALL}"
        ),
    ),
    (
        "examples/nlp/gpt_j/popxl",
        f"inference.py --config tiny --layers 3 --micro_batch_size 16 --data_parallel 1 --tensor_parallel 2 --rotary_dim 16 {SMALL}",
    ),
    ("examples/nlp/t5/popxl", "finetuning.py --config tiny --micro_batch_size 2"),
    ("examples/nlp/t5/popxl", "inference.py --config tiny --micro_batch_size 8"),
    ("examples/nlp/bloom/popxl", f"inference.py --config bloom_560M_pod16 --layers 2 --tensor_parallel_1 2 --tensor_parallel_2 2 {SMALL}"),
    *(
        (
            f"examples/nlp/{name}/popxl",
            f"inference.py --config tiny --layers 2 {more} --vocab_size 128 --sequence_length 16 --hidden_size 128 --heads 8",
        )
        for name, more in (("dolly", "--tensor_parallel 4"), ("llama", "--tensor_parallel 4 --micro_batch_size 1"))
    ),
    *((f"popart/docs/{front}/files", f"{name}.py") for front, names in GUIDES.items() for name in names.split()),
    ("tutorials/simple_applications/popart/mnist", "popart_mnist.py --epochs 1 --simulation"),
    ("tutorials/simple_applications/popart/mnist", "popart_mnist_conv.py --epochs 1 --simulation"),
    (f"{OLD}/callbacks", "callbacks.py --data-size 100"),
    (f"{OLD}/pipelining", "pipelining.py --test"),
    (f"{OLD}/recomputing", "recomputing.py --test"),
    (f"{OLD}/sharding", "multi_ipu.py"),
    ("tutorials/kernel_benchmarks/popart", "conv.py --simulation --batches-per-step 1 --input-width 32 --input-height 32"),
    (f"{TUTORIALS}/pytorch/basics", "walkthrough_code_only.py"),
    (f"{TUTORIALS}/pytorch/efficient_data_loading", "tuto_data_loading.py"),
    (f"{TUTORIALS}/pytorch/mixed_precision", "walkthrough_code_only.py"),
    (f"{TUTORIALS}/pytorch/pipelining", "mnist_pipeline.py --epochs 1 --batch-size 4 --device-iterations 2 --gradient-accumulation 8"),
    (f"{TUTORIALS}/pytorch/observing_tensors", "anchor_tensor_example.py"),
    ("examples/tutorials/simple_applications/pytorch/mnist", "mnist_poptorch_code_only.py --epochs 1"),
    (f"{FEATURES}/pytorch/octconv", "octconv_example.py --epochs 1 --batch-size 4"),
    (f"{FEATURES}/pytorch/popdist", "popdist_training.py"),
)


def run(folder: Path, repositories: Path, command: str, limit: float) -> tuple[bool, float, str]:
    """Tells whether a program ends with status 0, its seconds, and the last line that it says."""
    paths = [str(ROOT / "benchmarks/stand_ins"), str(repositories / "popxl-addons"), str(repositories / "examples-utils"), str(ROOT)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TQDM_DISABLE": "1", "PYTHONWARNINGS": "ignore"}
    began = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "populus", "run-program", *shlex.split(command)],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False, limit, f"not finished after {limit:.0f} s"
    lines = (done.stderr if done.returncode else done.stdout + done.stderr).strip().splitlines()
    return done.returncode == 0, time.monotonic() - began, lines[-1] if lines else ""


def main() -> None:
    """Prints a line for each program, and the count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repositories", type=Path)
    parser.add_argument("-k", default="", help="only programs whose folder or command holds this")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for each")
    args = parser.parse_args()
    chosen = [(folder, command) for folder, command in PROGRAMS if args.k in f"{folder}/{command}"]
    ran = 0
    for folder, command in chosen:
        passed, seconds, said = run(args.repositories / folder, args.repositories.resolve(), command, args.limit)
        ran += passed
        print(f"{'runs ' if passed else 'stops'} {seconds:5.0f} s  {folder}/{command.split()[0]}: {said[:160]}", flush=True)
    print(f"{ran} of {len(chosen)} run")


if __name__ == "__main__":
    main()

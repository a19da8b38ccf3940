"""Trains Graphcore's public BERT and GPT applications at reduced size: `python benchmarks/applications.py EXAMPLES bert [--steps 20]`.

The other is `gpt`. EXAMPLES is a copy of the public repository graphcore/examples. `popxl_addons` and `examples_utils` are on PYTHONPATH.
The applications' own files build the program, unchanged, of 2 layers in f32 without dropout. Weights are drawn, and go to a model of
transformers by the applications' own mapping. It trains in float64 on the same data, which are drawn too. Prints both losses of each
step, and the largest relative difference. Wants PyTorch and transformers (measured with 4.33).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {"bert": "nlp/bert/popxl", "gpt": "nlp/gpt3_2.7B/popxl"}
VOCABULARY, LENGTH, WIDTH, HEADS, LAYERS = 128, 8, 64, 4, 2
MICRO, REPLICAS, PARTS, MASKED = 2, 2, 2, 3  # samples at a time, of so many replicas, so often in a step
RATE, DECAY = 1e-3, 0.01


def settings(config: Any) -> Any:
    """Gives a configuration of either application, made small. Gradients are not clipped: both count norms by replica."""
    config.model.layers, config.model.hidden_size, config.model.sequence_length = LAYERS, WIDTH, LENGTH
    config.model.precision = type(config.model).Precision.float32
    config.model.dropout_prob = 0.0
    config.model.embedding.vocab_size, config.model.embedding.max_positional_length = VOCABULARY, LENGTH
    config.model.attention.heads = HEADS
    config.training.global_batch_size = MICRO * REPLICAS * PARTS
    config.training.optimizer.weight_decay, config.training.optimizer.gradient_clipping = DECAY, 1e9
    config.execution.micro_batch_size, config.execution.data_parallel = MICRO, REPLICAS
    return config


def reference(model: Any, loss: Callable[..., Any], batches: list[dict[str, np.ndarray]]) -> Iterator[float]:
    """Trains a model of PyTorch by AdamW, without decay of biases and norms, and gives the loss before each step."""
    import torch

    plain = {n for n, _ in model.named_parameters() if "bias" in n or "LayerNorm" in n or "ln_" in n}
    groups = [[p for n, p in model.named_parameters() if (n in plain) is without] for without in (True, False)]
    optimizer = torch.optim.AdamW(
        [{"params": groups[0], "weight_decay": 0.0}, {"params": groups[1], "weight_decay": DECAY}], lr=RATE, betas=(0.9, 0.999), eps=1e-6
    )
    for batch in batches:
        optimizer.zero_grad()
        losses = [loss(model, {n: torch.as_tensor(a[k]) for n, a in batch.items()}) for k in range(PARTS * REPLICAS)]
        found = torch.stack(losses).sum() / (PARTS * REPLICAS)
        found.backward()
        optimizer.step()
        yield float(found)


def bert(steps: int) -> tuple[list[float], list[float]]:
    """Gives the losses of pretraining BERT here and in PyTorch."""
    import torch
    from config import BertConfig  # of the application, as are those below
    from modelling.bert_model import BertPretrainingLossAndGrad
    from pretraining import pretraining_phased
    from transformers import BertForPreTraining
    from transformers.models.bert import BertConfig as HFConfig
    from utils.checkpoint import hf_mapping

    config = settings(BertConfig())
    config.model.mlm.mask_tokens = MASKED
    shape = HFConfig(
        hidden_size=WIDTH,
        vocab_size=VOCABULARY,
        num_attention_heads=HEADS,
        max_position_embeddings=LENGTH,
        intermediate_size=4 * WIDTH,
        num_hidden_layers=LAYERS,
        hidden_act="gelu_new",  # the tanh that popxl.ops.gelu is
        layer_norm_eps=1e-5,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    torch.manual_seed(0)
    model = BertForPreTraining(shape).double()
    for name, weight in model.named_parameters():
        if "LayerNorm" in name or "bias" in name:  # which begin as ones and zeros
            weight.data += 0.1 * torch.randn_like(weight)
    generator = np.random.default_rng(1)

    def drawn() -> dict[str, np.ndarray]:
        rows = (PARTS * REPLICAS, MICRO)
        mask = np.ones((*rows, LENGTH))
        mask[:, 0, -2:] = 0
        return {
            "words": generator.integers(1, VOCABULARY, (*rows, LENGTH)),
            "kinds": generator.integers(0, 2, (*rows, LENGTH)),
            "mask": mask,
            "places": np.stack([generator.permutation(LENGTH)[:MASKED] for _ in range(rows[0] * MICRO)]).reshape(*rows, MASKED),
            "labels": generator.integers(1, VOCABULARY, (*rows, MASKED)),
            "next": generator.integers(0, 2, rows),
        }

    def loss(model: Any, data: dict[str, Any]) -> Any:
        said = model(input_ids=data["words"], token_type_ids=data["kinds"], attention_mask=data["mask"])
        masked = said.prediction_logits[torch.arange(MICRO)[:, None], data["places"]].reshape(-1, VOCABULARY)
        entropy = torch.nn.functional.cross_entropy
        return entropy(masked, data["labels"].flatten()) + entropy(said.seq_relationship_logits, data["next"])

    batches = [drawn() for _ in range(steps)]
    session = pretraining_phased(config)
    session.write_variables_data(hf_mapping(config, session, model.bert))
    head = SimpleNamespace(fwd=session.state.head)
    session.write_variables_data(BertPretrainingLossAndGrad.hf_mapping(config, head, model.cls, model.bert.pooler))
    ours: list[float] = []
    with session:
        for batch in batches:
            given = dict(zip(session.inputs, [*batch.values(), np.full(PARTS * REPLICAS, RATE)]))
            fed = {s: a.reshape(PARTS, REPLICAS, *s.shape).astype(s.dtype.as_numpy()) for s, a in given.items()}
            ours.append(float(np.mean(session.run(fed)[session.outputs[0]])))
    return ours, list(reference(model, loss, batches))


def gpt(steps: int) -> tuple[list[float], list[float]]:
    """Gives the losses of pretraining GPT, each layer cut over two replicas, here and in PyTorch."""
    import torch
    from config import GPTConfig  # of the application, as are those below
    from modelling.hf_mapping import hf_mapping_lm_TP
    from popxl_addons.array_munging import tensor_parallel_input
    from pretraining import pretraining
    from transformers import GPT2Config, GPT2LMHeadModel

    config = settings(GPTConfig())
    config.execution.tensor_parallel = 2
    shape = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=LENGTH,
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=HEADS,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    torch.manual_seed(0)
    model = GPT2LMHeadModel(shape).double()
    for name, weight in model.named_parameters():
        if "ln_" in name or "bias" in name:
            weight.data += 0.1 * torch.randn_like(weight)
    generator = np.random.default_rng(1)
    rows = (PARTS * REPLICAS, MICRO, LENGTH)
    batches = [{name: generator.integers(1, VOCABULARY, rows) for name in ("words", "labels")} for _ in range(steps)]

    def loss(model: Any, data: dict[str, Any]) -> Any:
        logits = model(input_ids=data["words"]).logits.reshape(-1, VOCABULARY)
        return torch.nn.functional.cross_entropy(logits, data["labels"].flatten())

    session = pretraining(config)
    session.write_variables_data(hf_mapping_lm_TP(config, session, model))
    whole = session.ir.replication_factor
    ours: list[float] = []
    with session:
        for batch in batches:
            fed = {
                stream: tensor_parallel_input(batch[name].reshape(-1, *stream.shape).astype(np.int32), 2, whole)
                for name, stream in (("words", session.inputs.words), ("labels", session.inputs.labels))
            }
            fed[session.inputs.lr] = np.full(session._full_input_shape(()), RATE, np.float32)
            ours.append(float(np.mean(session.run(fed)[session.outputs[0]])))
    return ours, list(reference(model, loss, batches))


def main() -> None:
    """Prints the losses."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("examples", type=Path)
    parser.add_argument("which", choices=list(FOLDERS))
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    sys.path.insert(0, str(args.examples.resolve() / FOLDERS[args.which]))
    from populus.aliases import install

    install()
    ours, theirs = (bert if args.which == "bert" else gpt)(args.steps)
    for step, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        print(f"step {step + 1:3d}  loss {mine:.6f}  PyTorch {other:.6f}")
    print(f"{args.which}: largest relative difference {max(abs(a / b - 1) for a, b in zip(ours, theirs)):.1e} over {args.steps} steps")


if __name__ == "__main__":
    main()

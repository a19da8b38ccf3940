"""Names of the inputs and outputs of a training program; the prefixes are PopART's where it has one."""

from __future__ import annotations

CLIP_NORM, CLIP_VALUE, LOSS_SCALE = "clip_norm", "clip_value", "loss_scale"  # scalars that belong to no optimizer
OVERFLOW = "Overflow"  # the result that is 1 if a gradient was not finite
SENT = "Sent"  # the result that a stage gives once all that it sends is sent
SEED = "Seed"  # the input from which random numbers derive


def gradient_name(name: str) -> str:
    """Names the gradient of a tensor, an input or a result."""
    return f"Gradient___{name}"


def rows_name(weight: str) -> str:
    """Names the result with the row numbers of a weight's sparse gradient."""
    return f"Rows___{weight}"


def accumulated_name(weight: str) -> str:
    """Names the accumulated gradient of a weight, an input and a result."""
    return f"Accl___{weight}"


def updated_name(weight: str) -> str:
    """Names the updated weight."""
    return f"Updated___{weight}"


def state_name(weight: str, state: str) -> str:
    """Names a state of a weight, an input and a result."""
    return f"State___{weight}___{state}"


def scalar_name(scalar: str) -> str:
    """Names the input with a hyperparameter."""
    return f"Hyper___{scalar}"

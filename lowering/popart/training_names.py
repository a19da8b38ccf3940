"""What the inputs and outputs of a program that trains are called; the prefixes are PopART's where it has one."""

from __future__ import annotations

CLIP_NORM, CLIP_VALUE, LOSS_SCALE = "clip_norm", "clip_value", "loss_scale"  # scalars that are no optimizer's
OVERFLOW = "Overflow"  # the result that is 1 where a gradient was not finite
SEED = "Seed"  # the input that random numbers follow from


def gradient_name(name: str) -> str:
    """The gradient of a tensor, input or result."""
    return f"Gradient___{name}"


def rows_name(weight: str) -> str:
    """The numbers of the rows that the gradient of a weight consists of."""
    return f"Rows___{weight}"


def accumulated_name(weight: str) -> str:
    """The gradients of a weight so far, input and result."""
    return f"Accl___{weight}"


def updated_name(weight: str) -> str:
    """A new weight."""
    return f"Updated___{weight}"


def state_name(weight: str, state: str) -> str:
    """A state of a weight, input and result."""
    return f"State___{weight}___{state}"


def scalar_name(scalar: str) -> str:
    """A hyperparameter."""
    return f"Hyper___{scalar}"

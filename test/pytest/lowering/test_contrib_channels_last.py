"""Quantized ops with channels last against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.contrib_models import WEIGHTS, agree

RNG = np.random.default_rng(0)
X = RNG.integers(0, 255, (2, 6, 5, 4), np.uint8)


@pytest.mark.parametrize("group", [1, 2])
def test_a_quantized_convolution_may_have_its_channels_last(group):
    weights = RNG.integers(*WEIGHTS, (6, 4 // group, 3, 3), np.int8)
    scales = np.linspace(0.01, 0.02, 6).astype(np.float32)
    x = [X, np.array(0.1, np.float32), np.array(120, np.uint8)]
    y = [np.array(0.5, np.float32), np.array(100, np.uint8), np.arange(6, dtype=np.int32)]
    inputs = [*x, weights, scales, np.zeros(6, np.int8), *y]
    agree("QLinearConv", inputs, channels_last=1, pads=[1, 1, 1, 1], strides=[2, 1], group=group)


def test_a_largest_element_may_be_of_channels_that_are_last():
    agree("NhwcMaxPool", [X], steps=0, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 0])


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("QLinearAveragePool", {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("QLinearAveragePool", {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "count_include_pad": 1}),
        ("QLinearGlobalAveragePool", {}),
    ],
    ids=str,
)
def test_a_quantized_mean_may_be_of_channels_that_are_last(op, attributes):
    inputs = [X, *(np.array(v, t) for v, t in ((0.1, np.float32), (120, np.uint8), (0.05, np.float32), (100, np.uint8)))]
    agree(op, inputs, channels_last=1, **attributes)

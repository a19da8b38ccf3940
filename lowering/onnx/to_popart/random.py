"""Conversions of random ops. Each node is a stream of its own, so that several nodes draw different numbers."""

from __future__ import annotations

from zlib import crc32

from xdsl.dialects.builtin import f32
from xdsl.ir import Attribute

from populus.dialects import popart
from populus.dialects.onnx.types import element_numbered
from populus.dialects.support.diagnostics import where
from populus.lowering.onnx.to_popart.conversion import Conversion, Output, Rule, Rules, element, shape


def random(distribution: str, a: str, b: str) -> Rule:
    """Makes the rule of RandomNormal, RandomUniform and their `Like` forms.

    The shape is an attribute, or that of the input. `a` and `b`: names of the attributes of the distribution.
    """

    def rule(c: Conversion) -> Output:
        import numpy as np

        like = c.optional(0)
        dtype = c.get("dtype")
        target: Attribute | None = element_numbered(dtype) if dtype else f32 if like is None else element(like)
        assert target is not None, dtype
        size = [int(n) for n in c.get("shape")] if like is None else list(shape(like))
        # A seed is a float in ONNX; without one the numbers are the same in each run.
        bits = np.array([c.get("seed") or 0.0], np.float32).view(np.uint32)[0]
        seed = c.constant(np.array([bits, 0], np.uint32))
        stream = crc32(where(c.op).encode())
        return c.insert(popart.RandomOp(seed, distribution=distribution, a=c.get(a), b=c.get(b), stream=stream, shape=size, element=target))

    return rule


def multinomial(c: Conversion) -> Output:
    """Converts Multinomial: classes drawn by unnormalised log probabilities, [b, samples] from [b, classes].

    The class is the number of cumulative probabilities below a uniform number. Source: ONNX Multinomial-22.
    """
    import numpy as np

    x = c.cast(c.input(0), f32)
    (batch, classes), samples = shape(x), int(c.get("sample_size"))
    target = element_numbered(c.get("dtype"))
    assert target is not None, c.get("dtype")
    chances = c.insert(popart.SoftmaxOp(x, axis=1))
    sums = c.insert(popart.MatMulOp(chances, c.constant(np.triu(np.ones((classes, classes), np.float32))[:, :-1].copy())))
    bits = np.array([c.get("seed") or 0.0], np.float32).view(np.uint32)[0]
    stream = crc32(where(c.op).encode())
    u = popart.RandomOp(
        c.constant(np.array([bits, 0], np.uint32)), distribution="uniform", stream=stream, shape=[batch, samples], element=f32
    )
    above = c.insert(popart.GreaterOrEqualOp(c.reshape(c.insert(u), (batch, samples, 1)), c.reshape(sums, (batch, 1, classes - 1))))
    return c.insert(popart.ReduceSumOp(c.cast(above, target), axes=(2,), keep=False))


RULES: Rules = {
    "Multinomial": multinomial,
    "RandomNormal": random("normal", "mean", "scale"),
    "RandomNormalLike": random("normal", "mean", "scale"),
    "RandomUniform": random("uniform", "low", "high"),
    "RandomUniformLike": random("uniform", "low", "high"),
}

"""onnxruntime's RotaryEmbedding: pairs of channels are turned by an angle that belongs to their position."""

from populus.custom import (
    Arg,
    ClassVar,
    Input,
    PopartOp,
    calls,
    element_type_of,
    f16,
    f32,
    f64,
    flag,
    function_of,
    i64,
    irdl_op_definition,
    number,
    operand_def,
    result_def,
    shape_of,
    tensors,
)


@irdl_op_definition
class RotaryEmbeddingOp(PopartOp):
    """`y = x cos + turned(x) sin`, x: [batch, heads, length, size]; caches: [positions, size / 2].

    Source: com.microsoft RotaryEmbedding-1.
    """

    name = "ort.rotary_embedding"
    ONNX: ClassVar = ("org.ort", "RotaryEmbedding", 1)
    EXAMPLES: ClassVar = [
        ([(2, 3, 4, 6), Input((2, 4), "int64", low=0, high=7), (8, 3), (8, 3)], {}),
        ([(1, 2, 4, 6), Input((1, 4), "int64", low=0, high=7), (8, 3), (8, 3)], {"interleaved": True, "scale": 0.5}),
    ]
    T: ClassVar = tensors("T", f16, f32, f64)
    C: ClassVar = tensors("C", f16, f32, f64)
    x = operand_def(T)
    positions = operand_def(tensors("I", i64))
    cosines = operand_def(C)
    sines = operand_def(C)
    y = result_def(T)
    interleaved: bool = flag()
    scale: float = number(1.0)

    def infer(self):
        return [self.x.type]

    def halves(self, b, x):
        size, step = shape_of(x.type)[3], 2 if self.interleaved else 1
        ends = ((0, size), (1, size)) if self.interleaved else ((0, size // 2), (size // 2, size))
        return [calls.slice_dim(b, x, 3, begin, end, step) for begin, end in ends]

    def rotated(self, b, x, sign):
        n, _, length, size = shape_of(self.x.type)
        cosine, sine = (
            calls.reshape(b, calls.op(b, "gather", c, self.positions, axis=0), (n, 1, length, size // 2))
            for c in (self.cosines, self.sines)
        )
        first, second = self.halves(b, x)
        one = calls.map(b, (Arg(1) * Arg(3) - Arg(2) * Arg(4) * sign) * self.scale, first, second, cosine, sine)
        two = calls.map(b, (Arg(2) * Arg(3) + Arg(1) * Arg(4) * sign) * self.scale, first, second, cosine, sine)
        if not self.interleaved:
            return calls.concat(b, [one, two], 3)
        pairs = [calls.reshape(b, v, (*shape_of(v.type), 1)) for v in (one, two)]
        return calls.reshape(b, calls.concat(b, pairs, 4), shape_of(x.type))

    def lower(self, b):
        return [self.rotated(b, self.x, 1.0)]

    def gradient(self, b, grads):
        (n, _, length, _), found = shape_of(self.x.type), []
        (x1, x2), (g1, g2) = self.halves(b, self.x), self.halves(b, grads[0])
        for formula in (Arg(3) * Arg(1) + Arg(4) * Arg(2), Arg(4) * Arg(1) - Arg(3) * Arg(2)):  # of a cosine, and of a sine
            rows = calls.reduce(b, "add", calls.map(b, formula * self.scale, x1, x2, g1, g2), (1,))
            zeros = calls.fill(b, 0.0, element_type_of(self.cosines.type), shape_of(self.cosines.type))
            at = calls.reshape(b, self.positions, (n * length,))
            found.append(calls.op(b, "scatter", zeros, at, calls.reshape(b, rows, (n * length, shape_of(rows.type)[2])), reduction="add"))
        return [self.rotated(b, grads[0], -1.0), None, *found]


rotary_embedding = function_of(RotaryEmbeddingOp)

"""A concatenation along an axis that is an operand, as Paddle's test of it has it."""

from populus.custom import (
    ClassVar,
    Input,
    PopartOp,
    PopulusError,
    calls,
    element_type_of,
    elements,
    f16,
    f32,
    f64,
    function_of,
    i32,
    i64,
    irdl_op_definition,
    operand_def,
    result_def,
    shape_of,
    tensor,
    tensors,
    var_operand_def,
)


@irdl_op_definition
class ConcatOp(PopartOp):
    """`y = the xs side by side along the axis`; the axis is a constant. Source: Paddle test/custom_op/custom_concat_op.cc."""

    name = "paddle.concat"
    ONNX: ClassVar = ("org.paddle", "Concat", 1)
    CONSTANTS: ClassVar = ("axis",)
    EXAMPLES: ClassVar = [([Input(values=1, dtype="int64"), (2, 3), (2, 4)], {}), ([Input(values=[-2], dtype="int32"), (2, 3), (1, 3)], {})]
    E: ClassVar = elements("E", f16, f32, f64)
    axis = operand_def(tensors("I", i32, i64))
    xs = var_operand_def(E)
    y = result_def(E)

    def dim(self):
        rank, axis = len(shape_of(self.xs[0].type)), int(self.value_of("axis").reshape(()))
        if not -rank <= axis < rank:
            raise PopulusError(f"the axis is {axis}; xs have {rank} dimensions")
        return axis % rank

    def infer(self):
        shapes, d = [list(shape_of(x.type)) for x in self.xs], self.dim()
        if any(s[:d] + s[d + 1 :] != shapes[0][:d] + shapes[0][d + 1 :] for s in shapes):
            raise PopulusError(f"shapes {shapes} differ in another dimension than {d}")
        return [tensor([*shapes[0][:d], sum(s[d] for s in shapes), *shapes[0][d + 1 :]], element_type_of(self.xs[0].type))]

    def lower(self, b):
        return [calls.concat(b, self.xs, self.dim())]

    def gradient(self, b, grads):
        at, found = 0, []
        for x in self.xs:
            n = shape_of(x.type)[self.dim()]
            found.append(calls.slice_dim(b, grads[0], self.dim(), at, at + n))
            at += n
        return [None, *found]


concat = function_of(ConcatOp)

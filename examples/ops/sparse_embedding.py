"""An embedding whose gradient is made of the rows that were read: each row once, with the sum of its gradients."""

from populus.custom import (
    Arg,
    ClassVar,
    Input,
    IntVector,
    PopartOp,
    Vector,
    calls,
    codelet,
    element_type_of,
    elements,
    equal,
    f32,
    f64,
    function_of,
    i64,
    irdl_op_definition,
    operand_def,
    result_def,
    select,
    shape_of,
    tensor,
    tensors,
    whole,
)


@codelet(axes={"g": "m w", "number": "m", "d": "n w"}, whole="m n")
def add_rows(g: Vector, number: IntVector, d: Vector) -> None:
    for j in range(d.shape[1]):
        for i in range(d.shape[0]):
            d[i, j] = 0.0
        for m in range(len(number)):
            d[number[m], j] += g[m, j]


@irdl_op_definition
class SparseEmbeddingOp(PopartOp):
    """`y[i] = table[number[i]], zeros where number[i] = padding`. Source: Paddle phi embedding_grad_kernel.cc."""

    name = "paddle.embedding"
    ONNX: ClassVar = ("org.paddle", "Embedding", 1)
    EXAMPLES: ClassVar = [
        ([(5, 3), Input((4,), "int64", low=0, high=4)], {}),
        ([(5, 3), Input((7,), "int64", low=0, high=4)], {"padding": 2}),
    ]
    E: ClassVar = elements("E", f32, f64)
    table = operand_def(E)
    number = operand_def(tensors("I", i64))
    y = result_def(E)
    padding: int = whole(-1, low=-1, high=4)

    def infer(self):
        return [tensor((*shape_of(self.number.type), shape_of(self.table.type)[1]), element_type_of(self.table.type))]

    def kept(self, b, rows):
        column = calls.reshape(b, self.number, (*shape_of(self.number.type), 1))
        return calls.map(b, select(0.0, Arg(1), equal(Arg(2), self.padding)), rows, column)

    def lower(self, b):
        return [self.kept(b, calls.op(b, "gather", self.table, self.number, axis=0))]

    def gradient(self, b, grads):
        return [calls.codelet(b, add_rows, self.kept(b, grads[0]), self.number, shape=shape_of(self.table.type)), None]

    def independent(self):
        return [(0, 1, 0, 1), (1, 0, 0, 0)]


sparse_embedding = function_of(SparseEmbeddingOp)

"""The files of which blocks are a part: the block replaces the line BLOCK."""

SILENT = """from populus.custom import *


@irdl_op_definition
class SilentOp(PopartOp):
    \"\"\"`y = x`. Source: this page.\"\"\"

    name = "custom.silent"
    ONNX: ClassVar = ("page", "Silent", 1)
    T: ClassVar = tensors("T", f32)
    x = operand_def(T)
    y = result_def(T)

    def infer(self):
        return [self.x.type]

    def lower(self, b):
        return [calls.map(b, Arg(1) * 1, self.x)]
"""
WEIGHED = """from populus.custom import *


@irdl_op_definition
class WeighedOp(PopartOp):
    \"\"\"`y[i] = sum over k of softmax(x)[i, k] x[i, k]`. Source: this page.\"\"\"

    name = "page.weighed"
    EXAMPLES: ClassVar = [([(3, 5)], {})]
    E: ClassVar = elements("E", f32, f64)
    x = operand_def(E)
    y = result_def(E)

    BLOCK
"""
GATHERED = """from populus.custom import *


@irdl_op_definition
class GatheredOp(PopartOp):
    \"\"\"`y = the elements i of x along axis`. Source: this page.\"\"\"

    name = "page.gathered"
    BLOCK
    x = operand_def(elements("E", f32))
    i = operand_def(elements("I", i64))
    y = result_def(elements("E", f32))
    axis: int = whole(0, low=0, high=0)

    def infer(self):
        shape = shape_of(self.x.type)
        return [tensor((*shape[: self.axis], *shape_of(self.i.type), *shape[self.axis + 1 :]), element_type_of(self.x.type))]

    def lower(self, b):
        return [calls.op(b, "gather", self.x, self.i, axis=self.axis)]
"""
NORM = """from populus.custom import *
from math import sqrt


BLOCK


@irdl_op_definition
class NormOp(PopartOp):
    \"\"\"`y[i] = sqrt(sum of x[i, k]^2)`. Source: this page.\"\"\"

    name = "page.norm"
    EXAMPLES: ClassVar = [([(3, 5)], {})]
    E: ClassVar = elements("E", f32)
    x = operand_def(E)
    y = result_def(E)

    def infer(self):
        return [tensor(shape_of(self.x.type)[:1], element_type_of(self.x.type))]

    def lower(self, b):
        return [calls.codelet(b, row_norm_vertex, self.x, shape=shape_of(self.x.type)[:1])]
"""
COUNT = """from populus.custom import *


BLOCK


@irdl_op_definition
class HistogramOp(PopartOp):
    \"\"\"`count[v] = the number of x that are v`, of ten. Source: this page.\"\"\"

    name = "page.histogram"
    EXAMPLES: ClassVar = [([Input((30,), "int32", low=0, high=9)], {})]
    x = operand_def(elements("I", i32))
    y = result_def(elements("I", i32))

    def infer(self):
        return [tensor((10,), i32)]

    def lower(self, b):
        return [calls.codelet(b, histogram, self.x, shape=(10,))]
"""
KERNEL = """import populus
from populus.custom import *
from populus.lowering.driver.extensions import read

LeakyReluOp = populus.load("leaky_relu.py").module.LeakyReluOp
kernels = read("kernels.py").module


BLOCK
"""
CALLER = """#include <stdint.h>
#include <stdio.h>
#include "populus.h"

int main(void) {
    static float pixels[3 * 224 * 224], scores[3];
    int64_t shape[] = {1, 3, 224, 224}, classes[] = {1, 3};
BLOCK
    return 0;
}
"""
NET = """import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 4)
        self.loss = torch.nn.CrossEntropyLoss()

    def forward(self, x, labels):
        y = self.layer(x)
        return y, self.loss(y, labels)


net = Net()
dataset = torch.utils.data.TensorDataset(torch.randn(128, 8), torch.randint(0, 4, (128,)))
x = torch.randn(16, 8)
"""

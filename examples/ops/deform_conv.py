"""Torchvision's deformable convolution: samples between pixels at learned offsets, then a product with the weights."""

import math

from populus.custom import (
    Arg,
    ClassVar,
    PopartOp,
    PopulusError,
    Vector,
    calls,
    codelet,
    element_type_of,
    elements,
    f32,
    f64,
    function_of,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    result_def,
    shape_of,
    tensor,
    whole,
)


@codelet(axes={"x": "n c h w", "offset": "n d oh ow", "y": "n c k oh ow"}, whole="c k")
def sampled(x: Vector, offset: Vector, y: Vector, kw: int, stride: int, pad: int) -> None:
    for n in range(y.shape[0]):
        for i in range(y.shape[3]):
            for j in range(y.shape[4]):
                for k in range(y.shape[2]):
                    v = float(i * stride - pad + k // kw) + offset[n, 2 * k, i, j]
                    u = float(j * stride - pad + k % kw) + offset[n, 2 * k + 1, i, j]
                    top, left = math.floor(v), math.floor(u)
                    for c in range(y.shape[1]):
                        total = 0.0
                        for a in range(2):
                            for e in range(2):
                                if 0 <= top + a < x.shape[2] and 0 <= left + e < x.shape[3]:
                                    weight = (1.0 - abs(v - float(top + a))) * (1.0 - abs(u - float(left + e)))
                                    total += weight * x[n, c, top + a, left + e]
                        y[n, c, k, i, j] = total


@irdl_op_definition
class DeformConvOp(PopartOp):
    """`y = w [x sampled at window + offset]`, x: [n, c, h, w], w: [o, c, kh, kw], offset: [n, 2 kh kw, oh, ow].

    Source: torchvision deform_conv2d.
    """

    name = "torch.deform_conv"
    ONNX: ClassVar = ("org.pytorch", "DeformConv", 1)
    EXAMPLES: ClassVar = [([(2, 3, 5, 6), (4, 3, 3, 2), (2, 12, 5, 7), (4,)], {"pad": 1, "stride": 1})]
    E: ClassVar = elements("E", f32, f64)
    x = operand_def(E)
    w = operand_def(E)
    offset = operand_def(E)
    bias = opt_operand_def(E)
    y = result_def(E)
    stride: int = whole(1, low=1)
    pad: int = whole(0, low=0)

    def infer(self):
        (n, _, h, w), (o, _, kh, kw) = shape_of(self.x.type), shape_of(self.w.type)
        out = (n, o, (h + 2 * self.pad - kh) // self.stride + 1, (w + 2 * self.pad - kw) // self.stride + 1)
        if shape_of(self.offset.type) != (n, 2 * kh * kw, *out[2:]):
            raise PopulusError(f"offset has shape {shape_of(self.offset.type)}; {(n, 2 * kh * kw, *out[2:])} is expected")
        return [tensor(out, element_type_of(self.x.type))]

    def lower(self, b):
        (n, c, _, _), (o, _, kh, kw), (_, _, oh, ow) = shape_of(self.x.type), shape_of(self.w.type), shape_of(self.y.type)
        columns = calls.codelet(b, sampled, self.x, self.offset, shape=(n, c, kh * kw, oh, ow), kw=kw, stride=self.stride, pad=self.pad)
        columns, w = calls.reshape(b, columns, (n, c * kh * kw, oh * ow)), calls.reshape(b, self.w, (o, c * kh * kw))
        y = calls.reshape(b, calls.op(b, "matmul", w, columns), (n, o, oh, ow))
        return [y if self.bias is None else calls.map(b, Arg(1) + Arg(2), y, calls.reshape(b, self.bias, (o, 1, 1)))]


deform_conv = function_of(DeformConvOp)

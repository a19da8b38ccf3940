"""The selective scan of Mamba along time: a state for each channel, and a gradient that goes back by a second codelet."""

from populus.custom import (
    Arg,
    ClassVar,
    Input,
    PopartOp,
    Vector,
    calls,
    codelet,
    f32,
    f64,
    function_of,
    irdl_op_definition,
    operand_def,
    result_def,
    shape_of,
    tensors,
)


@codelet(axes={"a": "n t c", "u": "n t c", "h": "n t c"}, whole="t")
def forward_scan(a: Vector, u: Vector, h: Vector) -> None:
    for n in range(h.shape[0]):
        for c in range(h.shape[2]):
            state = 0.0
            for t in range(h.shape[1]):
                state = a[n, t, c] * state + u[n, t, c]
                h[n, t, c] = state


@codelet(axes={"a": "n t c", "g": "n t c", "d": "n t c"}, whole="t")
def backward_scan(a: Vector, g: Vector, d: Vector) -> None:
    for n in range(d.shape[0]):
        for c in range(d.shape[2]):
            state = 0.0
            for t in range(d.shape[1] - 1, -1, -1):
                state = state + g[n, t, c]
                d[n, t, c] = state
                state = state * a[n, t, c]


@irdl_op_definition
class ScanOp(PopartOp):
    """`h[t] = a[t] h[t - 1] + u[t], h[-1] = 0`; all [n, t, c]. Source: state-spaces/mamba selective_scan."""

    name = "mamba.scan"
    ONNX: ClassVar = ("org.mamba", "Scan", 1)
    EXAMPLES: ClassVar = [([Input((2, 5, 3), low=-0.9, high=0.9), (2, 5, 3)], {})]
    T: ClassVar = tensors("T", f32, f64)
    a = operand_def(T)
    u = operand_def(T)
    h = result_def(T)

    def infer(self):
        return [self.a.type]

    def lower(self, b):
        return [calls.codelet(b, forward_scan, self.a, self.u)]

    def independent(self):
        return [(i, d, 0, d) for i in (0, 1) for d in (0, 2)]

    def gradient(self, b, grads):
        t = shape_of(self.h.type)[1]
        d = calls.codelet(b, backward_scan, self.a, grads[0])
        before = calls.pad(b, calls.slice_dim(b, self.h, 1, 0, t - 1), (0, 1, 0), (0, 0, 0))
        return [calls.map(b, Arg(1) * Arg(2), d, before), d]


scan = function_of(ScanOp)

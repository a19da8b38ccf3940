"""Torchvision's non-maximum suppression as code of one tile: boxes by falling score, less those that overlap one before."""

from populus.custom import (
    ClassVar,
    Input,
    IntVector,
    PopartOp,
    Vector,
    bools,
    calls,
    codelet,
    elements,
    f32,
    f64,
    function_of,
    i64,
    irdl_op_definition,
    number,
    operand_def,
    result_def,
    shape_of,
    tensor,
    tensors,
)


@codelet(axes={"boxes": "n four", "order": "n", "kept": "n", "count": "one"})
def suppress(boxes: Vector, order: IntVector, kept: IntVector, count: IntVector, threshold: float) -> None:
    gone = bools(len(order))
    found = 0
    for i in range(len(order)):
        kept[i] = -1
    for i in range(len(order)):
        a = order[i]
        if gone[a]:
            continue
        kept[found] = a
        found += 1
        area = (boxes[a, 2] - boxes[a, 0]) * (boxes[a, 3] - boxes[a, 1])
        for j in range(i + 1, len(order)):
            c = order[j]
            width = min(boxes[a, 2], boxes[c, 2]) - max(boxes[a, 0], boxes[c, 0])
            height = min(boxes[a, 3], boxes[c, 3]) - max(boxes[a, 1], boxes[c, 1])
            if width > 0.0 and height > 0.0:
                other = (boxes[c, 2] - boxes[c, 0]) * (boxes[c, 3] - boxes[c, 1])
                if width * height > threshold * (area + other - width * height):
                    gone[c] = True
    count[0] = found


@irdl_op_definition
class NmsOp(PopartOp):
    """`kept = numbers of the boxes that no better one overlaps by more than iou`, -1 at the end. Source: torchvision.ops.nms."""

    name = "torch.nms"
    ONNX: ClassVar = ("org.pytorch", "Nms", 1)
    EXAMPLES: ClassVar = [
        ([Input(values=[[0, 0, 2, 2], [0.1, 0, 2, 2], [3, 3, 4, 4], [3, 3, 4.5, 4]]), Input(values=[0.5, 0.9, 0.1, 0.7])], {"iou": 0.5}),
    ]
    E: ClassVar = elements("E", f32, f64)
    boxes = operand_def(E)
    scores = operand_def(E)
    kept = result_def(tensors("I", i64))
    count = result_def(tensors("J", i64))
    iou: float = number(0.5, low=0, high=1)

    def infer(self):
        return [tensor(shape_of(self.scores.type), i64), tensor((1,), i64)]

    def lower(self, b):
        (n,) = shape_of(self.scores.type)
        order = calls.op(b, "top_k", self.scores, k=n, largest=True)
        outputs = [((n,), i64), ((1,), i64)]
        return calls.codelets(b, suppress, self.boxes, order, outputs=outputs, threshold=self.iou)


nms = function_of(NmsOp)

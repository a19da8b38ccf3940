"""Trains a residual block on images of stripes, with an activation that is an op of its own: a program of PopART.

    populus run-program examples/popart/resnet_block.py --load examples/leaky_relu.py --profile block.html

The block is convolution, batch norm, activation, convolution, batch norm, and a sum with its input.
"""

import argparse

import numpy as np
import popart

CHANNELS, SIZE, CLASSES = 8, 8, 4


def stripes(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws images of stripes in one of four directions, with noise, and the numbers of their directions."""
    labels = rng.integers(0, CLASSES, count).astype(np.int32)
    angle = labels[:, None, None] * np.pi / CLASSES
    rows, columns = np.mgrid[0:SIZE, 0:SIZE] / SIZE
    phase = rng.uniform(0, 2 * np.pi, (count, 1, 1))
    images = np.sin(4 * np.pi * (rows * np.cos(angle) + columns * np.sin(angle)) + phase)
    return (images + 0.3 * rng.normal(size=images.shape))[:, None].astype(np.float32), labels


class Net:
    """A stem, the block, and a layer of classes, as a model of PopART."""

    def __init__(self, batch: int):
        self.builder = popart.Builder(opsets={"ai.onnx": 10, "ai.graphcore": 1})
        self.rng = np.random.default_rng(1)
        self.images = self.builder.addInputTensor(popart.TensorInfo("FLOAT", [batch, 1, SIZE, SIZE]), "images")
        self.labels = self.builder.addInputTensor(popart.TensorInfo("INT32", [batch]), "labels")
        x = self.activation(self.norm(self.convolution(self.images, 1)))
        y = self.activation(self.norm(self.convolution(x, CHANNELS)))
        y = self.norm(self.convolution(y, CHANNELS))
        x = self.activation(self.builder.aiOnnx.add([x, y], "shortcut"))
        x = self.builder.aiOnnx.globalaveragepool([x])
        x = self.builder.aiOnnx.flatten([x])
        x = self.builder.aiOnnx.gemm([x, self.weight(CHANNELS, CLASSES), self.weight(CLASSES, zero=True)])
        self.probabilities = self.builder.aiOnnx.softmax([x], axis=1)
        self.loss = self.builder.aiGraphcore.nllloss([self.probabilities, self.labels], popart.ReductionType.Mean)

    def weight(self, *shape: int, zero: bool = False) -> str:
        """Adds a weight."""
        fan_in = int(np.prod(shape[1:] if len(shape) > 2 else shape[:1]))
        values = np.zeros(shape) if zero else self.rng.normal(size=shape) * np.sqrt(2 / fan_in)
        return self.builder.addInitializedInputTensor(values.astype(np.float32))

    def convolution(self, x: str, channels: int) -> str:
        """Adds a convolution of 3 by 3."""
        return self.builder.aiOnnx.conv([x, self.weight(CHANNELS, channels, 3, 3)], pads=[1, 1, 1, 1], strides=[1, 1])

    def norm(self, x: str) -> str:
        """Adds a batch norm with the statistics of the batch."""
        ones, zeros = np.ones(CHANNELS, np.float32), np.zeros(CHANNELS, np.float32)
        values = [self.builder.addInitializedInputTensor(a) for a in (ones, zeros, zeros, ones)]
        return self.builder.aiOnnx.batchnormalization([x, *values], 5, epsilon=1e-5, momentum=0.9)[0]

    def activation(self, x: str) -> str:
        """Adds the custom op: `--load` names the file that defines it."""
        return self.builder.customOp(opName="LeakyRelu", opVersion=1, domain="com.acme", inputs=[x], attributes={"alpha": 0.1})[0]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=16)
    given = parser.parse_args()
    net = Net(given.batch)
    session = popart.TrainingSession(
        fnModel=net.builder.getModelProto(),
        dataFlow=popart.DataFlow(1, [net.loss, net.probabilities]),
        loss=net.loss,
        optimizer=popart.SGD({"defaultLearningRate": (0.1, False), "defaultMomentum": (0.9, True)}),
        deviceInfo=popart.DeviceManager().createIpuModelDevice({"tilesPerIPU": 1472}),
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    rng = np.random.default_rng(0)
    for step in range(1, given.steps + 1):
        images, labels = stripes(rng, given.batch)
        session.run(popart.PyStepIO({net.images: images, net.labels: labels}, anchors))
        right = np.mean(np.argmax(anchors[net.probabilities], 1) == labels)
        if step == 1 or step % 5 == 0:
            print(f"step {step:3}  loss {float(np.mean(anchors[net.loss])):.4f}  right {right:.0%}")
    session.weightsToHost()


if __name__ == "__main__":
    main()

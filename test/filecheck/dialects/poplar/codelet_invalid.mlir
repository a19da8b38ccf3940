// RUN: populus-opt %s --split-input-file --verify-diagnostics | filecheck %s

// What a declared codelet may not be.

// CHECK: there is no codelet 'fil'; did you mean 'fill'?
poplar.codelet @fil contract {form = "fill", inputs = [], output = "y"}

// -----
// CHECK: @fill has the contract {form = "fill", inputs = [], output = "y", params = {value = "number"}} in this version, not {form = "fill"}
poplar.codelet @fill contract {form = "fill"}

// -----
// CHECK: @fill has either a body or a contract
poplar.codelet @fill

// -----
// CHECK: @f.00000000:1: `import os` is not of a codelet's file
poplar.codelet @f.00000000 python
  "import os"

// -----
// CHECK: @fill: the body is that of @fill.
poplar.codelet @fill python
  "@codelet"
  "def fill(y: Vector) -> None:"
  "    for i in range(len(y)):"
  "        y[i] = 0.0"

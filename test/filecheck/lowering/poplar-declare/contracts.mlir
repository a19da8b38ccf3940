// RUN: populus-opt %s -p poplar-declare | filecheck %s
// RUN: populus-opt %s -p poplar-declare,poplar-declare | filecheck %s

// Each codelet of ours is declared once, by its contract; one in Python has its body already.

poplar.codelet @twice.1bab2698 python
  "from populus.custom import Vector, codelet"
  ""
  "@codelet"
  "def twice(x: Vector, y: Vector) -> None:"
  "    for i in range(len(y)):"
  "        y[i] = 2 * x[i]"

poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  %y = poplar.var "y" : !poplar.tensor<8xf32>
  poplar.execute "zero" { poplar.family @fill {value = 0.0 : f32} for (i = 8) out y = %x[i] : !poplar.tensor<8xf32> }
  poplar.execute "one" { poplar.family @fill {value = 1.0 : f32} for (i = 8) out y = %x[i] : !poplar.tensor<8xf32> }
  poplar.execute "twice" {
    poplar.family @twice.1bab2698 for (i = 8)
      in x = %x[i] : !poplar.tensor<8xf32>
      out y = %y[i] : !poplar.tensor<8xf32>
  }
}

// CHECK:      builtin.module {
// CHECK-NEXT:   poplar.codelet @fill contract {form = "fill", inputs = [], output = "y", params = {value = "number"}}
// CHECK-NEXT:   poplar.codelet @twice.1bab2698 python
// CHECK-NEXT:     "from populus.custom import Vector, codelet"
// CHECK-NEXT:     ""
// CHECK-NEXT:     "@codelet"
// CHECK:        poplar.graph @main

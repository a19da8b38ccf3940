"""A program of one built-in op for each of those that operands of one float shape do not fit, for `--audit-op`."""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from populus.dialects.support.parser import LocatingParser

PAIR = "%a : tensor<{0}>, %b : tensor<{0}>"
IMAGE = "%x : tensor<2x6x3x4xf32>, %scale : tensor<6xf32>, %bias : tensor<6xf32>"
WINDOW = "strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>"
CONV = "strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>"

# name -> arguments, the op after `%y = `, and the type of the result
EXAMPLES: dict[str, tuple[str, str, str]] = {
    "and": (PAIR.format("4xi1"), "popart.and %a, %b", "tensor<4xi1>"),
    "attention": (
        "%q : tensor<2x3x4x5xf32>, %k : tensor<2x3x6x5xf32>, %v : tensor<2x3x6x2xf32>",
        "popart.attention %q, %k, %v {scale = 0.5 : f32}",
        "tensor<2x3x4x2xf32>",
    ),
    "average_pool": (
        "%x : tensor<2x3x6x4xf32>",
        f"popart.average_pool %x {{kernel = array<i64: 2, 2>, {WINDOW}}}",
        "tensor<2x3x3x2xf32>",
    ),
    "batch_norm": (
        f"{IMAGE}, %mean : tensor<6xf32>, %variance : tensor<6xf32>",
        "popart.batch_norm %x, %scale, %bias, %mean, %variance",
        "tensor<2x6x3x4xf32>",
    ),
    "bit_cast": ("%x : tensor<6xf32>", "popart.bit_cast %x {to = i32}", "tensor<6xi32>"),
    "bit_shift": (PAIR.format("3xui8"), "popart.bit_shift %a, %b {left = true}", "tensor<3xui8>"),
    "bitwise_and": (PAIR.format("3xi32"), "popart.bitwise_and %a, %b", "tensor<3xi32>"),
    "bitwise_not": ("%x : tensor<3xi32>", "popart.bitwise_not %x", "tensor<3xi32>"),
    "bitwise_or": (PAIR.format("3xi32"), "popart.bitwise_or %a, %b", "tensor<3xi32>"),
    "bitwise_xor": (PAIR.format("3xi32"), "popart.bitwise_xor %a, %b", "tensor<3xi32>"),
    "conv": (
        "%x : tensor<2x3x5x6xf32>, %w : tensor<4x3x3x3xf32>, %b : tensor<4xf32>",
        f"popart.conv %x, %w, %b {{{CONV}}}",
        "tensor<2x4x3x4xf32>",
    ),
    "conv_transpose": (
        "%x : tensor<1x3x4x3xf32>, %w : tensor<3x2x3x3xf32>, %b : tensor<2xf32>",
        f"popart.conv_transpose %x, %w, %b {{{CONV}, output_padding = array<i64: 0, 0>}}",
        "tensor<1x2x6x5xf32>",
    ),
    "gather": ("%x : tensor<3x4x5xf32>, %i : tensor<2x2xi64>", "popart.gather %x, %i {axis = 1 : i64}", "tensor<3x2x2x5xf32>"),
    "gemm": ("%a : tensor<3x4xf32>, %b : tensor<4x5xf32>, %c : tensor<5xf32>", "popart.gemm %a, %b, %c", "tensor<3x5xf32>"),
    "group_norm": (IMAGE, "popart.group_norm %x, %scale, %bias {groups = 2 : i64}", "tensor<2x6x3x4xf32>"),
    "if": (
        "%c : tensor<i1>, %x : tensor<3xf32>",
        (
            "popart.if %c then {\n  %r = popart.relu %x : tensor<3xf32>\n  popart.yield %r : tensor<3xf32>\n"
            "} else {\n  popart.yield %x : tensor<3xf32>\n}"
        ),
        "tensor<3xf32>",
    ),
    "instance_norm": (IMAGE, "popart.instance_norm %x, %scale, %bias", "tensor<2x6x3x4xf32>"),
    "loop": (
        "%x : tensor<3xf32>",
        (
            "popart.loop(%x) {trips = 5 : i64} : (tensor<3xf32>) -> tensor<3xf32> do {\n^bb0(%i: tensor<i32>, %h: tensor<3xf32>):\n"
            "  %s = popart.sin %h : tensor<3xf32>\n  popart.yield %s : tensor<3xf32>\n}"
        ),
        "tensor<3xf32>",
    ),
    "matmul": ("%a : tensor<3x4xf32>, %b : tensor<4x5xf32>", "popart.matmul %a, %b", "tensor<3x5xf32>"),
    "max_pool": ("%x : tensor<2x3x6x4xf32>", f"popart.max_pool %x {{kernel = array<i64: 2, 2>, {WINDOW}}}", "tensor<2x3x3x2xf32>"),
    "not": ("%x : tensor<4xi1>", "popart.not %x", "tensor<4xi1>"),
    "or": (PAIR.format("4xi1"), "popart.or %a, %b", "tensor<4xi1>"),
    "pad": ("%x : tensor<3x4xf32>", "popart.pad %x {lower = array<i64: 1, -1>, upper = array<i64: 0, 2>}", "tensor<4x5xf32>"),
    "random": (
        "%seed : tensor<2xui32>",
        'popart.random %seed {distribution = "uniform", a = -1.0 : f32, b = 3.0 : f32, stream = 5 : i64, shape = array<i64: 4, 10>}',
        "tensor<4x10xf32>",
    ),
    "reshape": ("%x : tensor<3x4xf32>", "popart.reshape %x {shape = array<i64: 2, -1>}", "tensor<2x6xf32>"),
    "scatter": (
        "%x : tensor<5x2xf32>, %i : tensor<3xi64>, %u : tensor<3x2xf32>",
        'popart.scatter %x, %i, %u {reduction = "add"}',
        "tensor<5x2xf32>",
    ),
    "slice": (
        "%x : tensor<3x4xf32>",
        "popart.slice %x {begins = array<i64: 0, 3>, ends = array<i64: 3, 0>, steps = array<i64: 2, -1>}",
        "tensor<2x3xf32>",
    ),
    "tile": ("%x : tensor<3x4xf32>", "popart.tile %x {repeats = array<i64: 2, 3>}", "tensor<6x12xf32>"),
    "transpose": ("%x : tensor<3x4xf32>", "popart.transpose %x {permutation = array<i64: 1, 0>}", "tensor<4x3xf32>"),
    "where": (
        "%c : tensor<4xi1>, %a : tensor<3x4xf32>, %b : tensor<3x1xf32>",
        "popart.where %c, %a, %b",
        "tensor<3x4xf32>",
    ),
    "xor": (PAIR.format("4xi1"), "popart.xor %a, %b", "tensor<4xi1>"),
}

# Ops that are part of others, and where to look instead.


def example(ctx: Context, name: str) -> ModuleOp:
    """Parses the example of an op as a program whose function is `@main`."""
    arguments, op, result = EXAMPLES[name]
    types = [part.partition(":")[2].strip() for part in arguments.split(", %")]
    names = [part.partition(":")[0].strip(" %") for part in arguments.split(", %")]
    match name:
        case "loop":
            typed = op
        case "if":
            typed = f"{op} : tensor<i1> -> {result}"
        case _ if len(types) == 1 and "{" not in op:
            typed = f"{op} : {result}"
        case _:
            typed = f"{op} : ({', '.join(types)}) -> {result}"
    listed = ", ".join(f'"{n}"' for n in names)
    text = (
        f'func.func @main({arguments}) -> {result} attributes {{input_names = [{listed}], output_names = ["y"]}} {{\n'
        f"%y = {typed}\nfunc.return %y : {result}\n}}"
    )
    return LocatingParser(ctx, text, f"popart.{name}").parse_module()

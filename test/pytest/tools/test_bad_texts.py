"""Texts and files that fuzzers found to crash, or to be read as something else: each in its smallest form."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import populus
from populus.compare.levels import compare_levels
from populus.dialects.data import ConstantOp
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.table import context
from populus.lowering.driver.files import parse_text, text_of
from populus.lowering.driver.pipeline import Pipeline
from populus.tools.arrays import read_arrays

MAIN = "func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {"
TEXTS = {
    "a label of two blocks": (
        "func.func @main() { cf.br ^next ^next: func.return ^next: func.return }",
        "1:52: re-declaration of block 'next'",
    ),
    "a variable outside of the graph": (
        (
            '%x = poplar.var "x" : !poplar.tensor<5xf32> poplar.graph @main target <host> '
            '{ poplar.stream_in "x" to %x : !poplar.tensor<5xf32> poplar.stream_out %x to "y" : !poplar.tensor<5xf32> }'
        ),
        "poplar.stream_in reads a value that is defined outside of the graph",
    ),
    "two outputs of one name": (
        (
            'func.func @main(%x: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>) attributes {output_names = ["y", "y"]} '
            "{ %y = popart.neg %x : tensor<3xf32> func.return %x, %y : tensor<3xf32>, tensor<3xf32> }"
        ),
        "output_names of @main has 'y' twice",
    ),
    "a mark of no operand": (
        f"{MAIN} %y = popops.map <neg(_1)>(%x) {{inplace = 7 : i64}} : (tensor<3xf32>) -> tensor<3xf32> func.return %y : tensor<3xf32> }}",
        "inplace is 7; there are 1 operands",
    ),
    "a yield of no region": (
        f"{MAIN} %y = popart.neg %x : tensor<3xf32> popart.yield %y : tensor<3xf32> }}",
        "popart.yield: stands in func.func; it ends a region of a branch, loop or kernel",
    ),
    "an end of no subgraph": (f"{MAIN} onnx.yield %x : tensor<3xf32> }}", "onnx.yield: stands in func.func; it ends a subgraph"),
    "a function without a return": (
        f"{MAIN} %y = popart.neg %x : tensor<3xf32> cf.br ^end ^end: }}",
        "a function of ops on tensors is one block that ends in func.return",
    ),
    "a function of two blocks": (
        "func.func @main() { cf.br ^end ^end: func.return }",
        "the function @main has 2 blocks, expected one",
    ),
    "a branch of two blocks": (
        (
            "func.func @main(%c: tensor<i1>) -> tensor<f32> { %y = onnx.If_21(%c) ({ }, { }) : (tensor<i1>) -> tensor<f32> "
            "func.return %y : tensor<f32> }"
        ),
        "the graph '.*' is not one block that ends in onnx.yield",
    ),
    "strings for another shape": (
        'func.func @main() { %s = onnx.strings ["a"] : tensor<2x!onnx.string> func.return }',
        "1 strings for tensor<2x!onnx.string>",
    ),
    "a Split into fewer parts than outputs": (
        (
            "func.func @main(%x: tensor<4xf32>) -> tensor<2xf32> { %a, %b, %c = onnx.Split_18(%x) {num_outputs = 2 : i64} : "
            "(tensor<4xf32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) func.return %a : tensor<2xf32> }"
        ),
        "num_outputs is 2; the node has 3 outputs",
    ),
    "a number beyond f32": (
        f"{MAIN} %y = popart.leaky_relu %x {{alpha = 1.0e+39}} : tensor<3xf32> func.return %y : tensor<3xf32> }}",
        "1e\\+39 is beyond the numbers of f32",
    ),
    "a gather with a dimension named twice": (
        (
            'func.func @main(%x: tensor<1x4x2xf32>, %i: tensor<6x1xi32>) { %g = "stablehlo.gather"(%x, %i) <{dimension_numbers = '
            "#stablehlo.gather<offset_dims = [1, 1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, "
            "slice_sizes = array<i64: 1, 4, 2>}> : (tensor<1x4x2xf32>, tensor<6x1xi32>) -> tensor<6x4x2xf32> func.return }"
        ),
        "offset_dims is \\[1, 1\\]; dimensions of a rank of 3 in ascending order are expected",
    ),
    "a host function on numbers": (
        (
            'func.func @main(%x: tensor<3xi32>) -> tensor<3xi32> { %y = host.call "text.normalize"(%x) : (tensor<3xi32>) -> tensor<3xi32> '
            "func.return %y : tensor<3xi32> }"
        ),
        "text.normalize is called with numbers, expected strings",
    ),
    "a host function of too many operands": (
        (
            f'{MAIN} %y = host.call "text.from_numbers"(%x, %x) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32> '
            "func.return %y : tensor<3xf32> }"
        ),
        "text.from_numbers is called with 2 operands, expected 1",
    ),
}


def ran(text: str) -> None:
    program = populus.compile(parse_text(context(), text, "t.mlir"), tiles=2, engine="numpy")
    program.run(program.signature.random(0))


@pytest.mark.parametrize("what", TEXTS)
def test_a_text_that_no_pass_can_read_is_refused_in_one_line(what: str):
    text, said = TEXTS[what]
    with pytest.raises(PopulusError, match=said) as error:
        ran(text)
    assert "\n" not in str(error.value)


def test_a_name_of_several_lines_stays_in_one_line():
    node = helper.make_node("Relu", ["x\ny"], ["y"], "a\nb")
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("x", "y")]
    with pytest.raises(PopulusError, match="'a b': Relu: it reads 'x y'") as error:
        populus.compile(helper.make_model(helper.make_graph([node], "g", infos[:1], infos[1:])))
    assert "\n" not in str(error.value)


def test_an_upsample_has_a_scale_for_each_dimension():
    node = helper.make_node("Upsample", ["x"], ["y"], "up", scales=[1.0, 2.0, 2.0])
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [2, 3]), ("y", None))]
    model = helper.make_model(helper.make_graph([node], "g", infos[:1], infos[1:]), opset_imports=[helper.make_opsetid("", 7)])
    with pytest.raises(PopulusError, match="'up': Upsample-7: it has 3 scales for 2 dimensions"):
        populus.compile(model)


COLLECTIVE = (
    "poplar.graph @main target <gc200, tiles = 4> { "
    '%x = poplar.var "x" : !poplar.tensor<4xf32> %y = poplar.var "y" : !poplar.tensor<4xf32> '
    'poplar.stream_in "x" to %x : !poplar.tensor<4xf32> COLLECTIVE : !poplar.tensor<4xf32>, !poplar.tensor<4xf32> '
    'poplar.stream_out %y to "y" : !poplar.tensor<4xf32> }'
)


@pytest.mark.parametrize("engine", ["numpy", "strict", "native"])
@pytest.mark.parametrize(
    ("collective", "said"),
    [
        ('"all_reduce"(%x, %y) inputs 1 params {reduction = "add", stride = 1 : i64, size = ""}', "an integer is expected"),
        ('"all_reduce"(%x, %y) inputs 1 params {reduction = "add", mean = 1 : i64, size = 1 : i64}', "'mean' is not defined"),
        ('"all_reduce"(%x, %y) inputs 1', "'reduction' expected"),
        ('"all_gather"(%x, %y) inputs 1 params {stride = 1 : i64, size = 1 : i64}', "tensor<1x4xf32>"),
        ('"all_reduce"(%x, %y) inputs 0 params {reduction = "add", stride = 1 : i64, size = 1 : i64}', "one output, of 2 views"),
        ('"all_redeuce"(%x, %y) inputs 1', "no collective 'all_redeuce'"),
    ],
)
def test_a_collective_that_its_op_would_not_be_is_refused_by_each_engine(collective: str, said: str, engine: str):
    module = parse_text(context(), COLLECTIVE.replace("COLLECTIVE", f"poplar.collective {collective}"), "t.mlir")
    with pytest.raises(PopulusError, match=said) as error:
        populus.compile(module, engine=engine).run({"x": np.ones(4, np.float32)})
    assert "\n" not in str(error.value)


def test_a_convolution_of_no_images_has_no_elements():
    text = """func.func @main(%x: tensor<0x2x7xf32>) -> tensor<0x3x5xf32> attributes {output_names = ["y"]} {
      %w = data.constant dense<1.0> : tensor<3x2x3xf32>
      %y = popart.conv %x, %w {strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>}
        : (tensor<0x2x7xf32>, tensor<3x2x3xf32>) -> tensor<0x3x5xf32>
      func.return %y : tensor<0x3x5xf32> }"""
    program = populus.compile(parse_text(context(), text, "t.mlir"))
    for level in ("popart", "popops", "poplar"):
        assert program.run_at(level, {"x": np.ones((0, 2, 7), np.float32)})["y"].shape == (0, 3, 5)


NEGATIVE = """func.func @main(%x: tensor<1x1x3xf32>, %w: tensor<1x1x1xf32>) -> tensor<1x1xNxf32> attributes {output_names = ["y"]} {
  %y = popart.OP %x, %w {strides = array<i64: 1>, pads = array<i64: -1, 0>, dilations = array<i64: 1> EXTRA}
    : (tensor<1x1x3xf32>, tensor<1x1x1xf32>) -> tensor<1x1xNxf32>
  func.return %y : tensor<1x1xNxf32> }"""


@pytest.mark.parametrize(
    ("op", "extra", "expected"), [("conv", "", [2, 3]), ("conv_transpose", ", output_padding = array<i64: 0>", [0, 1, 2, 3])]
)
def test_a_negative_pad_crops_x_or_borders_y_at_each_level(op: str, extra: str, expected: list[int]):
    text = NEGATIVE.replace("OP", op).replace("EXTRA", extra).replace("N", str(len(expected)))
    program = populus.compile(parse_text(context(), text, "t.mlir"))
    x, w = program.signature.inputs
    given = {x: np.float32([[[1, 2, 3]]]), w: np.ones((1, 1, 1), np.float32)}
    for level in ("popart", "popops", "poplar"):
        assert program.run_at(level, given)["y"].ravel().tolist() == expected


@pytest.mark.parametrize(
    ("view", "shape", "said"),
    [
        ("reshape %x", "2x2", "5 has 5 elements, 2x2 has 4"),
        ("broadcast %x", "4", "5 does not stretch to 4"),
        ("dim_shuffle %x [1]", "5", r"\[1\] is not a permutation of 1 dimensions"),
        ("slice %x[0:9:0]", "5", r"\[0:9:0\] leaves a dimension of 5"),
    ],
)
def test_a_wrong_view_is_refused_where_a_line_before_it_reads_it(view: str, shape: str, said: str):
    text = f"""poplar.graph @main target <host> {{ %x = poplar.var "x" : !poplar.tensor<5xf32>
      poplar.stream_in "x" to %y : !poplar.tensor<{shape}xf32>
      %y = poplar.{view} : !poplar.tensor<5xf32> -> !poplar.tensor<{shape}xf32> }}"""
    with pytest.raises(PopulusError, match=said):
        parse_text(context(), text, "t.mlir")


def test_a_slice_of_one_element_has_any_step():
    text = """func.func @main(%x: tensor<3xf32>) -> tensor<1xf32> attributes {output_names = ["y"]} {
      %y = popops.slice %x {begins = array<i64: 2>, ends = array<i64: -1>, steps = array<i64: -9223372036854775808>}
        : (tensor<3xf32>) -> tensor<1xf32>
      func.return %y : tensor<1xf32> }"""
    module = parse_text(context(), text, "t.mlir")
    for engine in ("numpy", "strict", "native"):
        assert populus.compile(module, engine=engine).run({"x": np.float32([1, 2, 3])})["y"].tolist() == [3]


@pytest.mark.parametrize("element", ["f32", "f64"])
def test_a_float_that_is_printed_as_its_bits_is_read_as_them(element: str):
    """A dense literal of 123456789 is printed in hexadecimal digits."""
    module = parse_text(context(), f"%k = data.constant dense<[123456789.0, 0.1, 1.0e30]> : tensor<3x{element}>", "t.mlir")
    again = parse_text(context(), text_of(module, locations=False), "t.mlir")
    made, read = (next(op for op in m.walk() if isinstance(op, ConstantOp)).array() for m in (module, again))
    assert read.tolist() == made.tolist()
    assert made[0] == np.float32(123456789.0) if element == "f32" else made[0] == 123456789.0


def test_the_place_of_a_line_is_not_that_of_the_named_op_which_it_took_in():
    text = (
        f'{MAIN} %a = popart.leaky_relu %x {{alpha = 0.5 : f32}} : tensor<3xf32> loc("named")\n'
        "%y = popart.add %a, %x : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>\nfunc.return %y : tensor<3xf32> }"
    )
    program = populus.compile(parse_text(context(), text, "t.mlir"), tiles=2, engine="numpy")
    assert [c.first for c in compare_levels(program, program.signature.random(0))] == [None, None]


def npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def test_a_dimension_from_the_end_is_reduced_in_stages():
    text = (
        "func.func @main(%x: tensor<10001xf32>) -> tensor<f32> "
        '{ %y = popops.reduce %x {op = "add", dims = array<i64: -1>} : (tensor<10001xf32>) -> tensor<f32> func.return %y : tensor<f32> }'
    )
    program = populus.compile(parse_text(context(), text, "t.mlir"), tiles=16, engine="numpy")
    assert program.run({"x": np.ones(10001, np.float32)})["output_0"] == 10001


F4 = "{'descr': '<f4', 'fortran_order': False, 'shape': "
HEADERS = {
    "a size that the file does not have": (npy(f"{F4}(1099511627776,), }}"), "elements; a tensor"),
    "a little more than the file has": (npy(f"{F4}(3,), }}", b"1234"), "12 bytes; the file has 4"),
    "brackets": (npy("{'descr': " + "[" * 90), "is not a plain array: its header is"),
    "a parenthesis too few": (npy("{'descr': '<i8', 'fortran_order': False, 'shape': 7,), }"), "is not a plain array: its header is"),
    "objects": (npy("{'descr': '|O', 'fortran_order': False, 'shape': (), }"), "arrays of Python objects are never loaded"),
    "fields": (npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (), }"), "is not a plain array"),
    "no array": (b"text", "is not an array as NumPy writes it"),
}


@pytest.mark.parametrize("what", HEADERS)
def test_a_header_is_compared_with_the_file_before_memory_is_taken(what: str, tmp_path):
    content, said = HEADERS[what]
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", content)
    with pytest.raises(PopulusError, match=said) as error:
        read_arrays([str(path)], ["x"])
    assert "\n" not in str(error.value)


def test_arrays_of_every_form_are_read_as_numpy_reads_them(tmp_path):
    arrays = {
        "c": np.arange(6, dtype=np.int16).reshape(2, 3),
        "f": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "scalar": np.array(True),
        "none": np.zeros((0, 3), np.float16),
        "text": np.array(["a", "bc"]),
        "bytes": np.array([b"a", b"bc"]),
        "big": np.arange(3, dtype=">i4"),
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", **arrays)
        found = read_arrays([str(tmp_path / "a.npz")], [])
        for name, array in arrays.items():
            assert (found[name].dtype, found[name].tolist()) == (array.dtype, array.tolist())


def test_more_than_the_limit_is_not_unpacked(tmp_path, monkeypatch: pytest.MonkeyPatch):
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(1 << 20, np.uint8))
    monkeypatch.setenv("POPULUS_LIMITS", "bytes=1M")
    with pytest.raises(PopulusError, match=r"a.npz: its arrays take \d+ bytes; at most 2\^20 are taken \(POPULUS_LIMITS=bytes=N"):
        read_arrays([str(tmp_path / "a.npz")], ["x"])


def test_a_tensor_of_no_known_type_is_one_line(tmp_path):
    (tmp_path / "a.pb").write_bytes(TensorProto(dims=[2], data_type=255, raw_data=b"12").SerializeToString())
    with pytest.raises(PopulusError, match="not an ONNX tensor: '' is a tensor of data type 255"):
        read_arrays([str(tmp_path / "a.pb")], ["x"])


def test_a_name_that_is_not_utf_8_is_one_line():
    info = helper.make_tensor_value_info
    proto = helper.make_graph([helper.make_node("Neg", ["x"], ["yyyy"])], "g", [info("x", 1, [2])], [info("yyyy", 1, [2])])
    model = helper.make_model(proto, opset_imports=[helper.make_opsetid("", 17)])
    damaged = type(model).FromString(model.SerializeToString().replace(b"yyyy", b"y\xffyy"))
    with pytest.raises(PopulusError, match=r"g: the name b'y\\xffyy' in it is not UTF-8"):
        populus.compile(damaged)


def test_an_archive_that_is_cut_is_one_line(tmp_path):
    stream = io.BytesIO()
    np.savez(stream, x=np.arange(100))
    for at in range(0, len(stream.getvalue()), 37):
        (tmp_path / "a.npz").write_bytes(stream.getvalue()[:at])
        with pytest.raises(PopulusError, match="not a file of plain arrays"):
            read_arrays([str(tmp_path / "a.npz")], ["x"])


BOOL = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
X = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])
INDICES = helper.make_tensor_value_info("i", TensorProto.INT64, [3, 3, 3])
ROW = helper.make_tensor_value_info("k", TensorProto.INT64, [1, 4])
WIDE = helper.make_tensor_value_info("w", TensorProto.INT64, [2, 4])


def branch() -> onnx.GraphProto:
    return helper.make_graph([helper.make_node("Identity", ["x"], ["b"])], "b", [], [helper.make_tensor_value_info("b", 1, [1, 4])])


NODES = {
    "more outputs of an If than its branches have": (
        lambda: helper.make_node("If", ["c"], ["y", "z"], then_branch=branch(), else_branch=branch()),
        "it has 2 outputs, and gives 1",
    ),
    "indices of another rank": (
        lambda: helper.make_node("GatherElements", ["x", "i"], ["y"]),
        r"indices are of shape \[3, 3, 3\], x of \[1, 4\]",
    ),
    "more rows of indices than x has": (
        lambda: helper.make_node("GatherElements", ["x", "w"], ["y"], axis=1),
        r"indices are of shape \[2, 4\], x of \[1, 4\]",
    ),
    "a reduction that is none": (
        lambda: helper.make_node("ScatterElements", ["x", "k", "x"], ["y"], reduction="ad"),
        "reduction is 'ad'; did you mean 'add'",
    ),
    "a fill of no number": (
        lambda: helper.make_node("ConstantOfShape", ["k"], ["y"], value=helper.make_tensor("v", 1, [0], [])),
        "its attribute 'value' has 0 elements; one is expected",
    ),
    "a fill of two numbers": (
        lambda: helper.make_node("ConstantOfShape", ["k"], ["y"], value=helper.make_tensor("v", 1, [2], [3, 4])),
        "its attribute 'value' has 2 elements; one is expected",
    ),
    "a cast to no type": (lambda: helper.make_node("Cast", ["x"], ["y"], to=1 << 33), "type"),
}


@pytest.mark.parametrize("what", NODES)
def test_a_node_that_fits_no_schema_is_refused_in_one_line(what: str):
    make, said = NODES[what]
    graph = helper.make_graph([make()], "g", [BOOL, X, INDICES, WIDE, ROW], [helper.make_tensor_value_info("y", 1, None)])
    with pytest.raises(PopulusError, match=said) as error:
        populus.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tiles=2, engine="numpy")
    assert "\n" not in str(error.value)


def test_a_pipeline_with_a_string_over_two_lines_is_one_line():
    with pytest.raises(PopulusError, match="cannot read 'popops-to-p\"plar onnx-infer-shapes'") as error:
        Pipeline.from_text('popops-to-p"plar\nonnx-infer-shapes')
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("literal", ["1.0", "-0.0"])
def test_equal_elements_of_a_text_are_one_element(literal: str):
    """A list of all of them would be of 10^12 numbers."""
    text = f"%k = data.constant dense<{literal}> : tensor<1000000x1000000xf32>"
    module = parse_text(context(), text, "t.mlir")
    (op,) = module.body.block.ops
    assert len(op.value.data.data) == 4
    again = parse_text(context(), text_of(module, locations=False), "t.mlir")
    (other,) = again.body.block.ops
    assert other.value == op.value
    small = parse_text(context(), text.replace("1000000x1000000", "2x3"), "t.mlir")
    (op,) = small.body.block.ops
    assert op.array().shape == (2, 3)
    assert len({float(x).hex() for x in op.array().reshape(-1)}) == 1
    assert parse_text(context(), text.replace("1000000x1000000", "0x3"), "t.mlir").body.block.first_op.array().size == 0

"""The importer: what it makes of models, and what it says of broken ones."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper
from xdsl.dialects.func import FuncOp

from populus.dialects.data import constant_value
from populus.dialects.onnx import CustomOp
from populus.dialects.support.diagnostics import PopulusError, verify
from populus.lowering.onnx.importer import import_onnx


def info(name, shape=(2,), element=T.FLOAT):
    return helper.make_tensor_value_info(name, element, list(shape))


def model(nodes, inputs=None, outputs=None, initializers=(), opset=17, ir_version=8, domains=(), **more):
    graph = helper.make_graph(list(nodes), "graph", inputs or [info("x")], outputs or [info("y")], list(initializers))
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version, **more)


def relu(**more):
    return model([helper.make_node("Relu", ["x"], ["y"], name="r")], **more)


def main(module):
    verify(module)
    return next(op for op in module.walk() if isinstance(op, FuncOp))


def names(module):
    return [op.name for op in main(module).body.block.ops]


def refused(found, **more):
    with pytest.raises(PopulusError) as error:
        import_onnx(found, **more)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_an_op_has_the_version_that_its_opset_means():
    assert names(import_onnx(relu(opset=12))) == ["onnx.Relu_6", "func.return"]
    assert names(import_onnx(relu(opset=14))) == ["onnx.Relu_14", "func.return"]


def test_names_of_inputs_outputs_and_nodes_are_kept():
    function = main(import_onnx(relu()))
    assert str(function.attributes["input_names"]) == '["x"]'
    assert str(function.attributes["output_names"]) == '["y"]'
    assert function.body.block.first_op.location.desc.data == "r"


def test_a_node_without_a_name_is_called_as_its_first_output():
    found = import_onnx(model([helper.make_node("Relu", ["x"], ["y"])]))
    assert main(found).body.block.first_op.location.desc.data == "y"


@pytest.mark.parametrize("ir_version", [3, 8])
def test_an_initializer_that_is_listed_as_an_input_is_a_constant(ir_version):
    w = numpy_helper.from_array(np.array([1, 2], np.float32), "w")
    found = model([helper.make_node("Add", ["x", "w"], ["y"])], [info("x"), info("w")], initializers=[w], ir_version=ir_version)
    assert str(main(import_onnx(found)).attributes["input_names"]) == '["x"]'


def test_a_large_fill_takes_no_memory():
    shape = numpy_helper.from_array(np.array([1 << 16, 1 << 16], np.int64), "s")
    found = model([helper.make_node("ConstantOfShape", ["s"], ["y"])], outputs=[info("y", (1 << 16, 1 << 16))], initializers=[shape])
    value = constant_value(main(import_onnx(found)).body.block.last_op.operands[0])
    assert value.shape == (1 << 16, 1 << 16)
    assert value.strides == (0, 0)


def test_an_input_that_is_left_out_stays_out():
    found = model([helper.make_node("Clip", ["x", "", "x"], ["y"])], [info("x", ())], [info("y", ())])
    assert main(import_onnx(found)).body.block.first_op.inputs[1] is None


def test_dimensions_are_bound_by_name():
    found = relu(inputs=[info("x", ("batch", 3))], outputs=[info("y", ("batch", 3))])
    assert main(import_onnx(found)).attributes["dim_names"].data[0].data[0].data == "batch"
    assert str(main(import_onnx(found, dims={"batch": 4})).body.block.args[0].type) == "tensor<4x3xf32>"
    assert refused(found, dims={"rows": 4}) == "graph: there is no dimension 'rows' to bind; the model has batch"


def test_an_input_can_be_made_a_constant():
    found = model([helper.make_node("Reshape", ["x", "s"], ["y"])], [info("x"), info("s", (1,), T.INT64)])
    module = import_onnx(found, values={"s": np.array([2], np.int64)})
    assert str(main(module).attributes["input_names"]) == '["x"]'


def test_a_function_of_the_model_is_written_out_with_its_attributes():
    add = helper.make_node("Elu", ["a"], ["b"], name="inner")
    add.attribute.append(onnx.AttributeProto(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="slope"))
    function = helper.make_function("own", "Own", ["a"], ["b"], [add], [helper.make_opsetid("", 17)], ["slope"])
    call = helper.make_node("Own", ["x"], ["y"], name="outer", domain="own", slope=0.5)
    found = import_onnx(model([call], domains=["own"], functions=[function]))
    op = main(found).body.block.first_op
    assert op.name == "onnx.Elu_6"
    assert op.alpha.value.data == 0.5
    assert op.location.desc.data == "outer/inner"


def test_a_subgraph_is_a_region_that_reads_outer_values():
    branch = helper.make_graph([helper.make_node("Relu", ["x"], ["b"])], "branch", [], [info("b")])
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    function = main(import_onnx(model([node], [info("x"), info("c", (), T.BOOL)])))
    then = function.body.block.first_op.region("then_branch").block
    assert then.first_op.operands[0] is function.body.block.args[0]


def test_a_custom_op_needs_its_file():
    found = model([helper.make_node("Twice", ["x"], ["y"], domain="my.domain", scale=2.0)], domains=["my.domain"])
    text = "graph: 'y': Twice: there is no op Twice in the custom domain 'my.domain'; give the file that defines it with load='FILE.py'"
    assert refused(found) == text
    op = main(import_onnx(found, customs={("my.domain", "Twice")})).body.block.first_op
    assert isinstance(op, CustomOp)
    assert op.node_attributes.data["scale"].value.data == 2.0


def test_a_missing_file_is_named(tmp_path):
    assert refused(tmp_path / "no.onnx") == f"{tmp_path}/no.onnx: no such file"


@pytest.mark.parametrize("keep", [0, 5, 60])
def test_a_part_of_a_file_is_no_model(tmp_path, keep):
    path = tmp_path / "part.onnx"
    path.write_bytes(relu().SerializeToString()[:keep])
    assert refused(path).startswith(f"{path}: this is not an ONNX model")


def external(path, location, shape=(2,), **entries):
    tensor = T(name="w", data_type=T.FLOAT, dims=shape, data_location=T.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    onnx.save(model([helper.make_node("Add", ["x", "w"], ["y"])], initializers=[tensor]), path)
    return path


def test_external_data_is_read_from_beside_the_model(tmp_path):
    np.array([9, 1, 2], np.float32).tofile(tmp_path / "w.bin")
    path = external(tmp_path / "m.onnx", "w.bin", offset=4, length=8)
    assert constant_value(main(import_onnx(path)).body.block.first_op.results[0]).tolist() == [1, 2]


def test_external_data_that_is_missing_is_named(tmp_path):
    path = external(tmp_path / "m.onnx", "w.bin")
    assert refused(path) == f"{path}: 'y': Add: 'w' is in the file 'w.bin', which is missing in {tmp_path}"


@pytest.mark.parametrize("location", ["../w.bin", "/etc/passwd", "a/../../w.bin", "link/w.bin"])
def test_external_data_stays_inside_the_models_folder(tmp_path, location):
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "w.bin").write_bytes(bytes(8))
    (inside / "link").symlink_to(tmp_path)
    assert "which is not inside the model's folder" in refused(external(inside / "m.onnx", location))


def test_sizes_are_checked_before_memory_is_taken(tmp_path):
    (tmp_path / "w.bin").write_bytes(bytes(8))
    text = refused(external(tmp_path / "m.onnx", "w.bin", shape=(1 << 40,)))
    assert f"needs the bytes 0 to {4 << 40} of 'w.bin', which has 8" in text
    w = T(name="w", data_type=T.FLOAT, dims=[1 << 40], raw_data=bytes(8))
    assert "the file has 8 bytes for it" in refused(model([helper.make_node("Add", ["x", "w"], ["y"])], initializers=[w]))


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (helper.make_node("Rellu", ["x"], ["y"]), "'y': Rellu: there is no op Rellu in the domain 'ai.onnx'; did you mean 'Relu'?"),
        (helper.make_node("Qwerty", ["x"], ["y"]), "'y': Qwerty: there is no op Qwerty in the domain 'ai.onnx'"),
        (helper.make_node("Gelu", ["x"], ["y"]), "'y': Gelu: Gelu exists from opset 20 on, the model states opset 17"),
        (helper.make_node("Upsample", ["x", "x"], ["y"]), "'y': Upsample: Upsample was withdrawn in opset 10, the model states opset 17"),
        (helper.make_node("Relu", ["z"], ["y"]), "'y': Relu: it reads 'z', which no input, initializer or earlier node defines"),
        (helper.make_node("Relu", ["x"], ["x"]), "'x': Relu: its output 'x' is already defined"),
        (helper.make_node("Relu", ["x"], ["y"], alpha=1.0), "'y': Relu: Relu-14 has no attribute 'alpha'"),
        (helper.make_node("Elu", ["x"], ["y"], alpha=1), "'y': Elu: Elu-6's attribute 'alpha' is of type INT; FLOAT is expected"),
        (helper.make_node("Concat", ["x"], ["y"]), "'y': Concat: Concat-13 needs the attribute 'axis'"),
        (helper.make_node("Add", ["x"], ["y"]), "'y': Add: Add-14 has no input 'B' (number 2); it needs 2 inputs at least"),
        (helper.make_node("Relu", ["x", "x"], ["y"]), "'y': Relu: Relu-14 has 2 inputs; it takes 1 at most"),
        (helper.make_node("Relu", ["x"], ["z"]), "the graph's output 'y' is not defined by any node, input or initializer"),
    ],
)
def test_a_wrong_node_is_named_with_what_is_wrong(node, text):
    assert refused(model([node])) == f"graph: {text}"


def test_an_opset_that_is_not_known_yet_is_refused():
    assert "the model states opset 999 of 'ai.onnx'; 1 to " in refused(relu(opset=999))


def test_functions_that_call_themselves_are_refused():
    node = helper.make_node("Own", ["x"], ["y"], domain="own")
    function = helper.make_function("own", "Own", ["x"], ["y"], [node], [helper.make_opsetid("own", 1)])
    assert "they may not call themselves" in refused(model([node], domains=["own"], functions=[function]))

"""Ops of `ai.onnx.ml`, against onnxruntime's; and a few of `ai.onnx` that ONNX's suite hardly touches, against NumPy's."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper

import populus
from populus.dialects.support.diagnostics import PopulusError

ML = "ai.onnx.ml"
RNG = np.random.default_rng(0)
X = RNG.normal(size=(7, 3)).astype(np.float32)
TYPES = {np.dtype(np.float32): T.FLOAT, np.dtype(np.float64): T.DOUBLE, np.dtype(np.int64): T.INT64, np.dtype(object): T.STRING}


def model(op, inputs, outputs=1, domain=ML, opset=18, ml=3, graphs=(), **attributes):
    """A model of one node; onnxruntime needs no types of outputs but the element types, which it finds itself."""
    names = [f"x{i}" for i in range(len(inputs))]
    node = helper.make_node(op, names, [f"y{i}" for i in range(outputs)], "node", domain=domain, **attributes)
    infos = [helper.make_tensor_value_info(n, TYPES[x.dtype], list(x.shape)) for n, x in zip(names, inputs)]
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info(f"y{i}") for i in range(outputs)])
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(ML, ml), helper.make_opsetid("ai.onnx.preview.training", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def tree(seed, trees=3, depth=3, modes=("BRANCH_LEQ",), **more):
    """Attributes of random full trees: nodes of the depth above the last are inner ones."""
    rng = np.random.default_rng(seed)
    n = 2 ** (depth + 1) - 1
    inner = np.arange(n) < 2**depth - 1
    return {
        "nodes_treeids": np.repeat(np.arange(trees), n).tolist(),
        "nodes_nodeids": np.tile(np.arange(n), trees).tolist(),
        "nodes_featureids": np.where(np.tile(inner, trees), rng.integers(0, 3, trees * n), 0).tolist(),
        "nodes_values": np.where(np.tile(inner, trees), rng.normal(size=trees * n).astype(np.float32), 0).tolist(),
        "nodes_modes": [str(rng.choice(modes)) if i else "LEAF" for i in np.tile(inner, trees)],
        "nodes_truenodeids": np.tile(np.where(inner, 2 * np.arange(n) + 1, 0), trees).tolist(),
        "nodes_falsenodeids": np.tile(np.where(inner, 2 * np.arange(n) + 2, 0), trees).tolist(),
        "nodes_hitrates": [1.0] * (trees * n),
        **more,
    }


def leaves(prefix, seed, targets, trees=3, depth=3, low=-1.0):
    """The weights of the leaves: target i of each leaf."""
    rng = np.random.default_rng(seed)
    first, n = 2**depth - 1, 2 ** (depth + 1) - 1
    rows = [(t, leaf, k) for t in range(trees) for leaf in range(first, n) for k in range(targets)]
    return {
        f"{prefix}_treeids": [r[0] for r in rows],
        f"{prefix}_nodeids": [r[1] for r in rows],
        f"{prefix}_ids": [r[2] for r in rows],
        f"{prefix}_weights": rng.uniform(low, 1, len(rows)).astype(np.float32).tolist(),
    }


ALL_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
NANS = X.copy()
NANS[::2, 1] = np.nan
LABELS = {"classlabels_int64s": [3, 1, 2]}
SVM = {
    "kernel_params": [0.5, 0.2, 2.0], "support_vectors": RNG.normal(size=18).astype(np.float32).tolist(), "post_transform": "NONE",
}  # fmt: skip
CASES = {
    "tree regressor": ("TreeEnsembleRegressor", [X], 1, {**tree(1), **leaves("target", 1, 2), "n_targets": 2, "base_values": [0.5, -1.0]}),
    "tree regressor, all modes": (
        "TreeEnsembleRegressor",
        [X.round()],
        1,
        {**tree(2, modes=ALL_MODES), **leaves("target", 1, 1), "n_targets": 1},
    ),
    "tree regressor, average": (
        "TreeEnsembleRegressor",
        [X],
        1,
        {**tree(3), **leaves("target", 1, 1), "n_targets": 1, "aggregate_function": "AVERAGE"},
    ),
    "tree regressor, min": (
        "TreeEnsembleRegressor",
        [X],
        1,
        {**tree(3), **leaves("target", 1, 2), "n_targets": 2, "aggregate_function": "MIN"},
    ),
    "tree regressor, max": (
        "TreeEnsembleRegressor",
        [X],
        1,
        {**tree(3), **leaves("target", 1, 2), "n_targets": 2, "aggregate_function": "MAX"},
    ),
    "tree regressor, NaN": (
        "TreeEnsembleRegressor",
        [NANS],
        1,
        {**tree(4, nodes_missing_value_tracks_true=[1, 0, 1] * 15), **leaves("target", 1, 1), "n_targets": 1},
    ),
    "tree regressor of doubles": (
        "TreeEnsembleRegressor",
        [X.astype(np.float64)],
        1,
        {**tree(1), **leaves("target", 1, 1), "n_targets": 1},
    ),
    "tree classifier": ("TreeEnsembleClassifier", [X], 2, {**tree(1), **leaves("class", 1, 3), **LABELS, "post_transform": "SOFTMAX"}),
    "tree classifier, logistic": (
        "TreeEnsembleClassifier",
        [X],
        2,
        {**tree(5), **leaves("class", 1, 1), "classlabels_int64s": [0, 5], "post_transform": "LOGISTIC"},
    ),
    "tree classifier, positive": (
        "TreeEnsembleClassifier",
        [X],
        2,
        {**tree(5, 1), **leaves("class", 1, 1, 1, low=0.0), "classlabels_strings": ["no", "yes"]},
    ),
    "linear regressor": (
        "LinearRegressor",
        [X],
        1,
        {"coefficients": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "targets": 2, "intercepts": [0.5, 1.0]},
    ),
    "linear classifier": (
        "LinearClassifier",
        [X],
        2,
        {
            "coefficients": RNG.normal(size=9).tolist(),
            "intercepts": [0.1, 0.2, 0.3],
            "classlabels_ints": [5, 6, 7],
            "post_transform": "SOFTMAX",
        },
    ),
    "linear classifier, one score": (
        "LinearClassifier",
        [X],
        2,
        {"coefficients": [1.0, -1.0, 0.5], "intercepts": [0.1], "classlabels_strings": ["a", "b"], "post_transform": "LOGISTIC"},
    ),
    "svm regressor, rbf": (
        "SVMRegressor",
        [X],
        1,
        {**SVM, "kernel_type": "RBF", "coefficients": RNG.normal(size=6).tolist(), "n_supports": 6, "rho": [0.3]},
    ),
    "svm regressor, poly": (
        "SVMRegressor",
        [X],
        1,
        {**SVM, "kernel_type": "POLY", "coefficients": RNG.normal(size=6).tolist(), "n_supports": 6, "rho": [0.3]},
    ),
    "svm classifier": (
        "SVMClassifier",
        [X],
        2,
        {
            **SVM,
            "kernel_type": "SIGMOID",
            "coefficients": RNG.normal(size=12).tolist(),
            "vectors_per_class": [2, 3, 1],
            "rho": [0.3, -0.1, 0.2],
            "classlabels_ints": [0, 1, 2],
        },
    ),
    "svm classifier, chances": (
        "SVMClassifier",
        [X],
        2,
        {
            **SVM,
            "kernel_type": "RBF",
            "coefficients": RNG.normal(size=12).tolist(),
            "vectors_per_class": [2, 3, 1],
            "rho": [0.3, -0.1, 0.2],
            "classlabels_ints": [0, 1, 2],
            "prob_a": [-2.0, -1.0, -1.5],
            "prob_b": [0.1, 0.2, 0.0],
        },
    ),
    "svm classifier, linear": (
        "SVMClassifier",
        [X],
        2,
        {
            "kernel_type": "LINEAR",
            "kernel_params": [0.0, 0.0, 0.0],
            "coefficients": RNG.normal(size=9).tolist(),
            "rho": [0.3],
            "classlabels_ints": [4, 5, 6],
        },
    ),
    "scaler": ("Scaler", [X], 1, {"offset": [0.1, 0.2, 0.3], "scale": [2.0, 1.0, 0.5]}),
    "scaler of integers": ("Scaler", [np.arange(6).reshape(2, 3)], 1, {"offset": [0.5], "scale": [2.0]}),
    **{f"normalizer {norm}": ("Normalizer", [np.abs(X) * (X[:, :1] > 0)], 1, {"norm": norm}) for norm in ("MAX", "L1", "L2")},
    "imputer": ("Imputer", [NANS], 1, {"imputed_value_floats": [1.0, 2.0, 3.0], "replaced_value_float": float("nan")}),
    "imputer of integers": ("Imputer", [np.arange(6).reshape(2, 3) % 4], 1, {"imputed_value_int64s": [9], "replaced_value_int64": 3}),
    "feature vectorizer": ("FeatureVectorizer", [X, X[:, :2]], 1, {"inputdimensions": [3, 2]}),
    "one hot": ("OneHotEncoder", [np.array([[1, 3], [2, 9]])], 1, {"cats_int64s": [3, 1, 2], "zeros": 1}),
    "one hot of strings": ("OneHotEncoder", [np.array(["b", "c", "a"], object)], 1, {"cats_strings": ["a", "b"], "zeros": 1}),
    "categories": (
        "CategoryMapper",
        [np.array(["b", "?"], object)],
        1,
        {"cats_strings": ["a", "b"], "cats_int64s": [7, 8], "default_int64": -5},
    ),
    "categories back": (
        "CategoryMapper",
        [np.array([8, 0])],
        1,
        {"cats_strings": ["a", "b"], "cats_int64s": [7, 8], "default_string": "?"},
    ),
    "labels of floats": (
        "LabelEncoder",
        [np.array([1.5, np.nan, 2.0], np.float32)],
        1,
        {"keys_floats": [1.5, 3.0], "values_strings": ["a", "b"], "default_string": "?"},
    ),
    "binarizer": ("Binarizer", [X], 1, {"threshold": 0.2}),
}


@pytest.mark.parametrize("engine", ["numpy", "strict"])
@pytest.mark.parametrize("name", CASES)
def test_an_op_gives_what_onnxruntimes_does(name, engine):
    op, inputs, outputs, attributes = CASES[name]
    made = model(op, inputs, outputs, **attributes)
    given = {f"x{i}": x for i, x in enumerate(inputs)}
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    wanted = onnxruntime.InferenceSession(made.SerializeToString(), options).run(None, given)
    found = populus.compile(made, tiles=4, engine=engine).run(given)
    for i, w in enumerate(wanted):
        f = found[f"y{i}"]
        assert (f.dtype, f.shape) == (w.dtype, w.shape)
        if w.dtype.kind in "fc":
            np.testing.assert_allclose(f, w, rtol=1e-4, atol=1e-5)
        else:
            assert f.tolist() == w.tolist()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"nodes_truenodeids": [99] * 45}, "node 0 has a child that does not exist"),
        ({"nodes_modes": ["BRANCH_ODD"] * 45}, "a node's mode is 'BRANCH_ODD'; BRANCH_LEQ, .* and LEAF are expected"),
        ({"nodes_featureids": [3] * 45}, "a node compares feature 3; x has 3"),
        ({"nodes_values": [0.5]}, "its lists of nodes differ in length"),
        ({"target_nodeids": [77] * 24}, "a weight names a node or a target that does not exist"),
        ({"aggregate_function": "MEDIAN"}, "aggregate_function is 'MEDIAN'; AVERAGE, SUM, MIN, MAX are expected"),
        ({"nodes_truenodeids": [0] * 45, "nodes_falsenodeids": [0] * 45}, "its trees have a cycle"),
    ],
)
def test_trees_that_do_not_fit_together_are_refused(change, said):
    attributes = {**tree(1), **leaves("target", 1, 1), "n_targets": 1, **change}
    with pytest.raises(PopulusError, match=f"'node': ai.onnx.ml.TreeEnsembleRegressor-3: .*{said}"):
        populus.compile(model("TreeEnsembleRegressor", [X], **attributes))


def test_maps_are_given_back_and_read_by_no_node():
    zipped = model("ZipMap", [X], classlabels_strings=["a", "b", "c"])
    rows = populus.compile(zipped).run({"x0": X})["y0"]
    assert [list(row) for row in rows] == [["a", "b", "c"]] * 7
    np.testing.assert_array_equal([list(row.values()) for row in rows], X)
    with pytest.raises(PopulusError, match="it has 2 keys for rows of 3 values"):
        populus.compile(model("ZipMap", [X], classlabels_int64s=[1, 2]))


def of_map(op, key, value, **attributes):
    """A model of one node that reads a map, and of a node that reads its row."""
    entry = helper.make_value_info("x", helper.make_map_type_proto(key, helper.make_tensor_type_proto(value, [])))
    nodes = [helper.make_node(op, ["x"], ["r"], "row", domain=ML, **attributes), helper.make_node("Identity", ["r"], ["y"], "copy")]
    graph = helper.make_graph(nodes, "g", [entry], [helper.make_empty_tensor_value_info("y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(ML, 1)], ir_version=8)


DENSE, SPARSE = {"cast_to": "TO_FLOAT"}, {"cast_to": "TO_FLOAT", "map_form": "SPARSE", "max_map": 8}
MAPS = [
    ("DictVectorizer", T.STRING, T.FLOAT, {"string_vocabulary": ["c", "b", "a"]}, {"a": 2.5, "c": 1.5}),
    ("DictVectorizer", T.STRING, T.FLOAT, {"string_vocabulary": ["c", "b", "a"]}, {"a": 2.5, "other": 1.5}),
    ("DictVectorizer", T.INT64, T.FLOAT, {"int64_vocabulary": [7, 8, 1]}, {1: 2.5, 7: 1.5}),
    ("CastMap", T.INT64, T.FLOAT, DENSE, {5: 2.5, 1: 1.5, 9: -1.0}),
    ("CastMap", T.INT64, T.FLOAT, {"cast_to": "TO_INT64"}, {5: 2.5, 1: -1.5}),
    ("CastMap", T.INT64, T.FLOAT, {"cast_to": "TO_STRING"}, {5: 2.5, 1: -1.5}),
    ("CastMap", T.INT64, T.FLOAT, SPARSE, {5: 2.5, 1: 1.5}),
]


@pytest.mark.parametrize(("op", "key", "value", "attributes", "given"), MAPS)
def test_maps_that_a_model_reads_become_onnxruntimes_rows(op, key, value, attributes, given):
    made = of_map(op, key, value, **attributes)
    (wanted,) = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x": given})
    program = populus.compile(made)
    found = program.run({"x": given})["y"]
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    assert found.tolist() == wanted.tolist() == program.run({"x": wanted})["y"].tolist()  # the row itself may be given too


def test_values_of_maps_that_onnxruntime_cannot_be_given():
    words = of_map("CastMap", T.INT64, T.STRING, **SPARSE)
    assert populus.compile(words).run({"x": {0: "2.5", 7: "-1"}})["y"].tolist() == [[2.5, 0, 0, 0, 0, 0, 0, -1]]
    exact = of_map("CastMap", T.INT64, T.STRING, cast_to="TO_INT64")
    assert populus.compile(exact).run({"x": {0: str(2**53 + 1), 1: "-2.5"}})["y"].tolist() == [[2**53 + 1, -2]]
    named = of_map("DictVectorizer", T.INT64, T.STRING, int64_vocabulary=[7, 8, 1])
    assert populus.compile(named).run({"x": {1: "q", 7: "r"}})["y"].tolist() == [["r", "", "q"]]
    counted = of_map("DictVectorizer", T.STRING, T.INT64, string_vocabulary=["a", "b"])
    assert populus.compile(counted).run({"x": {"b": 2**53 + 1}})["y"].tolist() == [[0, 2**53 + 1]]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({8: 1.0}, "input 'x': the key 8 is not in 0 to 7, the positions of max_map"),
        ({"a": 1.0}, "input 'x': the key 'a' is str; keys are integers"),
        ({1: "many"}, "input 'x': the value 'many' is no number"),
        ([1.0], r"input 'x' is float64, expected float32"),
    ],
)
def test_maps_that_make_no_row_are_refused(given, said):
    with pytest.raises(PopulusError, match=said):
        populus.compile(of_map("CastMap", T.INT64, T.FLOAT, **SPARSE)).run({"x": given})


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (of_map("CastMap", T.STRING, T.FLOAT), "'row': CastMap: keys of input 'x' are no int64"),
        (of_map("CastMap", T.INT64, T.FLOAT, cast_to="TO_BOOL"), "'row': CastMap: cast_to is 'TO_BOOL'"),
        (of_map("DictVectorizer", T.STRING, T.FLOAT), "'row': DictVectorizer: one vocabulary, of the type of the keys of 'x', is expected"),
        (of_map("DictVectorizer", T.INT64, T.FLOAT, int64_vocabulary=[1, 1]), "'row': DictVectorizer: its vocabulary has a key twice"),
        (of_map("Scaler", T.INT64, T.FLOAT), "'row': Scaler reads the map 'x'; CastMap or DictVectorizer is expected"),
    ],
)
def test_nodes_that_do_not_fit_their_map_are_refused(made, said):
    with pytest.raises(PopulusError, match=said):
        populus.compile(made)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_det_is_numpys(n):
    x = RNG.normal(size=(2, 3, n, n)).astype(np.float32)
    x[0, 0] = 0
    x[1, 1, 0] = x[1, 1, -1]  # two equal rows
    found = populus.compile(model("Det", [x], domain=""), tiles=4).run({"x0": x})["y0"]
    np.testing.assert_allclose(found, np.linalg.det(x), rtol=1e-4, atol=1e-5)


def test_max_roi_pool_is_onnxruntimes():
    x = RNG.normal(size=(2, 3, 6, 8)).astype(np.float32)
    rois = np.array([[0, 0, 0, 7, 5], [1, 2, 1, 5, 4], [0, 3, 3, 3, 3], [1, 5, 4, 11, 9]], np.float32)
    pool = model("MaxRoiPool", [x, rois], domain="", pooled_shape=[2, 3], spatial_scale=0.9)
    (wanted,) = onnxruntime.InferenceSession(pool.SerializeToString()).run(None, {"x0": x, "x1": rois})
    np.testing.assert_array_equal(populus.compile(pool, tiles=4).run({"x0": x, "x1": rois})["y0"], wanted)


def test_multinomial_draws_classes_by_their_probabilities():
    x = np.log(np.array([[0.5, 0.2, 0.3], [1e-9, 1e-9, 1.0]], np.float32))
    draw = populus.compile(model("Multinomial", [x], domain="", sample_size=3000), tiles=4).run({"x0": x})["y0"]
    assert draw.dtype == np.int32
    np.testing.assert_allclose(np.bincount(draw[0], minlength=3) / 3000, [0.5, 0.2, 0.3], atol=0.05)
    assert set(draw[1]) == {2}


def test_dropout_without_a_seed_drops_its_share_and_scales_the_rest():
    nodes = [helper.make_node("Dropout", ["x", "ratio", "training"], ["y", "mask"], "drop")]
    tensors = [helper.make_tensor("ratio", T.FLOAT, [], [0.25]), helper.make_tensor("training", T.BOOL, [], [True])]
    infos = [helper.make_tensor_value_info(n, t, [4000]) for n, t in (("x", T.FLOAT), ("y", T.FLOAT), ("mask", T.BOOL))]
    drop = helper.make_model(helper.make_graph(nodes, "g", infos[:1], infos[1:], tensors), opset_imports=[helper.make_opsetid("", 22)])
    found = populus.compile(drop, tiles=4).run({"x": np.ones(4000, np.float32)})
    assert 0.7 < found["mask"].mean() < 0.8
    np.testing.assert_allclose(found["y"], np.where(found["mask"], 1 / 0.75, 0), rtol=1e-6)


def test_a_gradient_is_of_the_tensors_that_it_names():
    nodes = [
        helper.make_node("Mul", ["a", "b"], ["c"]),
        helper.make_node("Gradient", ["a", "b"], ["da", "db"], "g", domain="ai.onnx.preview.training", xs=["a", "b"], y="c"),
        helper.make_node("Add", ["da", "c"], ["d"]),
    ]
    infos = [helper.make_tensor_value_info(n, T.FLOAT, [2]) for n in ("a", "b", "d", "db")]

    def made(nodes):
        graph = helper.make_graph(nodes, "g", infos[:2], infos[2:])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.preview.training", 1)])

    a, b = np.array([1, 2], np.float32), np.array([3, 5], np.float32)
    found = populus.compile(made(nodes)).run({"a": a, "b": b})
    np.testing.assert_array_equal(found["d"], b + a * b)
    np.testing.assert_array_equal(found["db"], a)
    nodes[1] = helper.make_node("Gradient", ["b", "a"], ["da", "db"], "g", domain="ai.onnx.preview.training", xs=["a", "b"], y="c")
    with pytest.raises(PopulusError, match="'g': Gradient: its inputs are b, a; those that xs and zs name are expected, a, b"):
        populus.compile(made(nodes))

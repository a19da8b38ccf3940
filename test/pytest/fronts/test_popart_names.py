"""PopART's names beside ops: weights of host and device, groups of replicas, reports, supported ops, places, overloads."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.popart_programs import CPU
from populus import popart
from populus.dialects.support.diagnostics import PopulusError
from populus.popart import quiet
from populus.popart.overloads import bound, overloaded

ROOT = Path(__file__).parents[3]


def learner(optimizer: popart.Optimizer | None = None, **options: Any) -> popart.TrainingSession:
    """Makes a session that learns one weight w, with the loss w^2 / 2 times x."""
    b = popart.Builder()
    x = b.addInputTensor("FLOAT", [1], "x")
    w = b.addInitializedInputTensor(np.ones(1, np.float32), "w")
    loss = b.aiGraphcore.identityloss([b.aiOnnx.mul([x, b.aiOnnx.mul([w, w])])])
    given = popart.SessionOptions()
    for name, value in options.items():
        setattr(given, name, value)
    rate = optimizer or popart.SGD({"defaultLearningRate": (0.25, False), "defaultMomentum": (0.5, False)})
    session = popart.TrainingSession(b.getModelProto(), popart.DataFlow(1, [w]), loss, rate, CPU, userOptions=given)
    session.prepareDevice()
    session.weightsFromHost()
    return session


def step(session: popart.InferenceSession) -> float:
    """Runs a step with x = 1; gives the weight after it."""
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": np.ones(1, np.float32)}, anchors))
    return float(anchors["w"][0])


def read(session: popart.InferenceSession) -> float:
    """Reads the host's weight."""
    array = np.zeros(1, np.float32)
    session.readWeights(popart.PyWeightsIO({"w": array}))
    return float(array[0])


def test_the_host_has_weights_of_its_own_until_they_are_taken():
    session = learner()
    first = step(session)
    assert first == 0.5
    assert (read(session), session.areHostWeightsInSync()) == (1, False)
    second = step(session)
    session.weightsFromHost()  # both the weight and its velocity begin anew
    assert step(session) == first
    assert step(session) == second
    session.weightsToHost()
    assert (read(session), session.areHostWeightsInSync()) == (second, True)


def test_weights_are_written_to_the_host_first_and_reset_from_a_model(tmp_path):
    session = learner()
    session.writeWeights(popart.PyWeightsIO({"w": np.full(1, 3, np.float32)}))
    assert step(session) == 0.5
    session.weightsFromHost()
    assert step(session) == 1.5
    session.modelToHost(str(tmp_path / "after.onnx"))
    assert read(session) == 1.5
    other = learner()
    other.resetHostWeights(str(tmp_path / "after.onnx"))
    other.weightsFromHost()
    assert step(other) == 0.75
    with pytest.raises(PopulusError, match=r"'w' is \[1\]; \[2\] is given"):
        session.writeWeights(popart.PyWeightsIO({"w": np.zeros(2, np.float32)}))


def test_weights_of_inference_are_constants_unless_an_option_says_no():
    def inference(constant: bool) -> popart.InferenceSession:
        b = popart.Builder()
        b.addInputTensor("FLOAT", [1], "x")
        w = b.addInitializedInputTensor(np.ones(1, np.float32), "w")
        y = b.aiOnnx.add(["x", w])
        options = popart.SessionOptions()
        options.constantWeights = constant
        session = popart.InferenceSession(b.getModelProto(), popart.DataFlow(1, [y]), CPU, userOptions=options)
        session.prepareDevice()
        return session

    with pytest.raises(PopulusError, match="'w' is a constant of the program; set constantWeights = False"):
        inference(True).writeWeights(popart.PyWeightsIO({"w": np.zeros(1, np.float32)}))
    session = inference(False)
    session.writeWeights(popart.PyWeightsIO({"w": np.full(1, 5, np.float32)}))
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": np.ones(1, np.float32)}, anchors))
    assert anchors["Add:0"].tolist() == [6]


def test_a_session_compiles_and_feeds_as_its_options_say(tmp_path):
    assert "popart-outline" in str(learner().program.pipeline)
    assert "popart-outline" not in str(learner(enableOutlining=False).program.pipeline)
    learner(enableEngineCaching=True, cachePath=str(tmp_path / "kept"))
    assert list((tmp_path / "kept").rglob("*.*"))
    with pytest.raises(PopulusError, match="call prepareDevice first"):
        _ = learner(compileEngine=False).program
    session = learner(syntheticDataMode=popart.SyntheticDataMode.Zeros)
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({}, anchors))
    session.weightsToHost()
    assert (float(anchors["w"][0]), read(session)) == (0, 1)  # the host gets nothing, and zeros move no weight
    session = learner(syntheticDataMode=popart.SyntheticDataMode.RandomUniform)
    session.run(popart.PyStepIO({}, {}))
    session.weightsToHost()
    assert 0.5 < read(session) < 1


def test_groups_of_channels_are_neighbours_or_strided():
    def found(strided: bool) -> Any:
        b = popart.Builder()
        x = b.addInputTensor("FLOAT", [1, 4, 2], "x")
        s, z = (b.aiOnnx.constant(np.full(4, v, np.float32)) for v in (1, 0))
        mean = b.aiGraphcore.groupnormalization([x, s, z], 2)[1]
        options = popart.SessionOptions()
        options.groupNormStridedChannelGrouping = strided
        session = popart.InferenceSession(b.getModelProto(), popart.DataFlow(1, [mean]), CPU, userOptions=options)
        session.prepareDevice()
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({"x": np.arange(8, dtype=np.float32).reshape(1, 4, 2)}, anchors))
        return anchors[mean].tolist()

    assert (found(False), found(True)) == ([1.5, 5.5], [2.5, 4.5])


def test_states_of_f16_are_kept_in_it():
    types: dict[str, Any] = {"accl1_type": popart.DataType.FLOAT16}
    session = learner(popart.Adam({"defaultLearningRate": (0.1, False)}, **types))
    step(session)
    assert {n: a.dtype.name for n, a in session._state.items()} == {"Accl1___w": "float16", "Accl2___w": "float32", "Step___w": "float32"}
    with pytest.raises(PopulusError, match="a state of INT8; FLOAT and FLOAT16 are there"):
        popart.Adam({}, accl2_type=popart.DataType.INT8)


def test_a_session_tells_of_its_program():
    session = learner()
    assert {"x", "w"} <= set(session.getAllTensorIds())
    assert session.getCycleCount() > 0
    assert "cycles" in session.getSummaryReport()
    assert b"poplar." in session.getSerializedGraph()
    state = session.getRNGState()
    session.setRNGState(state)
    with pytest.raises(PopulusError, match="no program 'other'"):
        session.run("other", popart.PyStepIO({}, {}))


def test_groups_of_replicas_follow_the_comm_group_or_the_stride():
    kind = popart.CommGroupType
    orthogonal = popart.VariableSettings(popart.CommGroup(kind.Orthogonal, 2), popart.VariableRetrievalMode.OnePerGroup)
    assert orthogonal.groups(4) == [[0, 2], [1, 3]]
    consecutive = popart.VariableSettings(popart.CommGroup(kind.Consecutive, 2))
    assert consecutive.groups(4) == [[0, 1], [2, 3]]
    assert [consecutive.getGroupRepresentative(g) for g in range(2)] == [0, 2]
    strided = popart.VariableSettings(1, 2, popart.VariableRetrievalMode.AllReplicas)
    assert strided.groups(4) == [[0, 1], [2, 3]]
    assert (strided.numReplicasReturningVariable(4), consecutive.numReplicasReturningVariable(4)) == (4, 2)
    assert popart.VariableSettings().groups(3) == [[0, 1, 2]]
    assert consecutive.shapeOnReplica([2, 5], 4) == [5]
    assert consecutive.shapeOnHost([5], 4) == [2, 5]
    with pytest.raises(PopulusError, match="a Consecutive group of 0 replicas"):
        popart.VariableSettings(popart.CommGroup(kind.Consecutive, 0))
    with pytest.raises(PopulusError, match="3 replicas do not make groups of 2"):
        consecutive.groups(3)
    with pytest.raises(PopulusError, match=r"first dimension is expected to be the 2 groups"):
        consecutive.shapeOnReplica([5], 4, "w")


def test_two_trainings_are_compared_by_their_weights(tmp_path):
    def saved(name: str, value: float) -> str:
        b = popart.Builder()
        b.addOutputTensor(b.aiOnnx.exp([b.addInitializedInputTensor(np.full(2, value, np.float32), "w")]))
        (tmp_path / name).write_bytes(b.getModelProto())
        return str(tmp_path / name)

    before, one, two = saved("a", 0), saved("b", 1), saved("c", 3)
    report = popart.NumericsReport(A0=before, A1=one, B0=before, B1=two)
    assert report.getRelativeErrors()["w"] == pytest.approx((2 * 4) / (np.sqrt(2) * np.sqrt(18)))
    assert "relative error" in report.fullReport()
    assert popart.NumericsReport(before, one, before, one).getRelativeErrors() == {"w": 0}
    with pytest.raises(PopulusError, match="there is no weight 'v'"):
        report.report("v")


def test_supported_ops_are_those_with_rules():
    public = set(popart.getSupportedOperations(False))
    assert popart.OperatorIdentifier("ai.onnx", "Conv", 11) in public
    assert popart.OperatorIdentifier("ai.graphcore", "Gelu", 1) in public
    assert popart.OperatorIdentifier("ai.graphcore", "Abort", 1) not in public
    assert not public & set(popart.getUnsupportedOperations(10))
    every = popart.getSupportedOperationsDefinition(True)
    assert set(every) > public
    conv = every[popart.OperatorIdentifier("ai.onnx", "Conv", 11)]
    assert [i.name for i in conv.inputs] == ["X", "W", "B"]
    assert "strides" in conv.attributes
    assert [i.name for i in every[popart.OperatorIdentifier("populus", "popart.atan2", 1)].inputs] == ["a", "b"]


def test_types_that_a_model_leaves_open_are_stated_beside_it():
    b = popart.Builder()
    x = b.addUntypedInputTensor("x")
    y = b.aiOnnx.exp([x])
    info = popart.InputShapeInfo()
    info.add("x", popart.TensorInfo("FLOAT", [2]))
    session = popart.InferenceSession(b.getModelProto(), popart.DataFlow(1, [y]), CPU, inputShapeInfo=info)
    assert session.getInfo(y).shape() == [2]
    with pytest.raises(PopulusError, match="no type was stated for 'y'"):
        info.get("y")


def test_places_are_asked_back_of_tensors_and_of_the_contexts_around():
    b = popart.Builder()
    x = b.addInputTensor("FLOAT", [2])
    with b.virtualGraph(1), b.pipelineStage(2):
        y = b.aiOnnx.exp([x])
        assert (b.getVirtualGraph(), b.getPipelineStage(), b.hasExecutionPhase()) == (1, 2, False)
    assert (b.getVirtualGraph(y), b.hasVirtualGraph(), b.getPartialsType(y)) == (1, False, "FLOAT")
    b.virtualGraph(y, 3)
    b.setPartialsType(y, "HALF")
    b.recomputeOutputInBackwardPass({y})
    b.setInplacePreferences(y, {"ExpInplace": -1.0})
    with b.schedulePriority(1.0):
        pass
    assert (b.getVirtualGraph({y}), b.getPartialsType(y), b.getRecomputeOutputInBackwardPass(y)) == (3, "HALF", True)
    with pytest.raises(PopulusError, match="no context says a PipelineStage"):
        b.getPipelineStage()


def test_a_list_of_parameters_is_chosen_by_names_and_number():
    lists = (("a", "b"), ("c", "a", "b"))
    assert bound("f", lists, (1,), {"b": 2}) == {"a": 1, "b": 2}
    assert bound("f", lists, (1, 2, 3), {}) == {"c": 1, "a": 2, "b": 3}
    assert bound("f", lists, (), {"c": 1}) == {"c": 1}
    with pytest.raises(TypeError, match=r"f takes \(a, b\); 1 values and a are given"):
        bound("f", (("a", "b"),), (1,), {"a": 2})

    class Kind:
        @overloaded("x", "y z")
        def member(self, given: dict[str, Any]) -> dict[str, Any]:
            """Gives what it is given."""
            return given

    assert Kind().member(1, 2) == {"y": 1, "z": 2}
    assert Kind.member.overloads == [["x"], ["y", "z"]]


@pytest.fixture
def api(monkeypatch) -> Any:
    """Gives the script that compares names."""
    spec = importlib.util.spec_from_file_location("popart_api", ROOT / "benchmarks/popart_api.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "popart_api", module)  # its dataclasses look it up
    spec.loader.exec_module(module)
    return module


def test_the_page_of_names_has_every_option_and_what_becomes_of_it(api):
    page = (ROOT / "docs/popart-api.md").read_text()
    assert api.options_table() in page
    names = [n for line in api.options_table().splitlines()[2:] for n in line.split("|")[2].replace("`", "").replace(",", " ").split()]
    assert sorted(names) == sorted(popart.SessionOptions.DEFAULTS)
    same = next(line for line in page.splitlines() if line.endswith("% are the same."))
    assert float(same.partition(" ")[0]) >= 95


def test_each_option_is_honoured_refused_or_warned_of_once(monkeypatch):
    monkeypatch.setattr(quiet, "_SAID", set[tuple[str, str]]())  # nothing was said yet, and other tests find it as it was
    unsaid = popart.SessionOptions.HONOURED | popart.SessionOptions.REFUSED
    for name, default in popart.SessionOptions.DEFAULTS.items():
        counted = name in popart.SessionOptions.HONOURED and isinstance(default, int)
        other = {"other": "1"} if isinstance(default, dict) else 2 if counted else "another value"
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            for _ in range(2):
                setattr(popart.SessionOptions(), name, other)
        assert [str(w.message).partition(" and ")[0] for w in found] == (
            [] if name in unsaid else [f"populus.popart takes SessionOptions.{name}"]
        )


@pytest.mark.parametrize(("name", "value", "expected"), [
    ("accumulationFactor", "x", "a whole number"),
    ("replicatedGraphCount", 2.5, "a whole number"),
    ("enableGradientAccumulation", "no", "True or False"),
])  # fmt: skip
def test_an_option_of_another_type_is_refused_where_it_is_set(name, value, expected):
    options = popart.SessionOptions()
    with pytest.raises(PopulusError, match=f"^SessionOptions.{name} = {value!r}; expected {expected}$"):
        setattr(options, name, value)
    setattr(options, name, np.int64(1))
    assert getattr(options, name) == 1


def test_the_comparison_of_names_reads_bindings_and_sees_differences(api):
    public = api.Public()
    api.read_bindings(
        """
        m.def("getLogger", &f, py::arg("name") = "all");  // m.def("no", ..)
        m.def("absent", [](int a) { return (a); }, py::arg("a"));
        py::enum_<E> en(m, "InitType"); en.value("NoInit", E::NoInit); en.value("More", E::More);
        py::class_<C> cls(m, "ConstSGD", base);
        cls.def(py::init<float>(), py::arg("learning_rate"), py::arg("weight_decay") = 0.0f).def("learningRates", &C::l);
        """,
        public,
    )
    found = {name: (kind, how) for _, name, kind, how in api.rows(public, popart)}
    assert found == {
        "getLogger": ("same", ""),
        "absent": ("absent", ""),
        "InitType": ("other", "More"),
        "ConstSGD": ("same", ""),
        "ConstSGD.__init__": ("same", ""),
        "ConstSGD.learningRates": ("same", ""),
    }

"""`poptorch`: models that run, options, losses, outputs of several micro batches, loaders."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest

import populus
from populus.dialects.support.diagnostics import PopulusError, PopulusWarning
from populus.popart import quiet

torch = pytest.importorskip("torch", reason="needs torch, which is optional")
poptorch = pytest.importorskip("populus.poptorch", reason="needs onnxscript, as torch.onnx does", exc_type=ImportError)


poptorch.PoplarExecutor.MACHINE = replace(poptorch.PoplarExecutor.MACHINE, tiles=4)
MODES = poptorch.OutputMode


class Affine(torch.nn.Module):
    """Rows times a weight; with targets, the mean of squares too."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        self.register_buffer("shift", torch.tensor([0.5, 0.0]))

    def forward(self, x, target=None):
        y = x @ self.weight + self.shift
        return y if target is None else (y, torch.nn.functional.mse_loss(y, target))


X = torch.arange(12.0).reshape(6, 2)


def test_results_have_the_structure_of_the_modules():
    class Net(torch.nn.Module):
        def forward(self, x, scale=1.0, *, extra):
            return {"twice": x * 2, "rest": [extra["a"] + scale, "a word", None], "count": x.shape[0]}

    found = poptorch.inferenceModel(Net().eval())(X, 3.0, extra={"a": X})
    assert found["rest"][1:] == ["a word", None]
    assert found["count"] == 6
    assert torch.equal(found["twice"], X * 2)
    assert torch.equal(found["rest"][0], X + 3)


def test_64_bit_results_are_narrowed():
    class Net(torch.nn.Module):
        def forward(self, x):
            return x.argmax(1), x.double()

    first, second = poptorch.inferenceModel(Net())(X.double())
    assert (first.dtype, second.dtype) == (torch.int32, torch.float32)


CHOSEN = [
    (MODES.All, 1, [0, 1, 2, 3, 4, 5]),
    (MODES.Default, 1, [0, 1, 2, 3, 4, 5]),
    (MODES.Final, 1, [5]),
    (MODES.EveryN, 2, [1, 3, 5]),
    (MODES.EveryN, 3, [2, 5]),
]


@pytest.mark.parametrize(("mode", "period", "rows"), CHOSEN)
def test_the_output_mode_chooses_device_iterations(mode, period, rows):
    options = poptorch.Options().deviceIterations(6).outputMode(mode, period)
    model = poptorch.inferenceModel(Affine(), options)
    assert torch.allclose(model(X), Affine()(X)[rows])


def test_the_sum_of_iterations_is_a_mode():
    model = poptorch.inferenceModel(Affine(), poptorch.Options().deviceIterations(3).outputMode(MODES.Sum))
    assert torch.allclose(model(X), Affine()(X).reshape(3, 2, 2).sum(0))


def test_losses_of_iterations_are_a_row_and_the_last_is_a_scalar():
    for mode, shape in ((MODES.All, (3,)), (MODES.Default, ()), (MODES.Sum, ())):
        options = poptorch.Options().deviceIterations(3).outputMode(mode)
        assert poptorch.trainingModel(Affine(), options)(X, X)[1].shape == shape


def test_an_input_that_cannot_be_cut_is_refused():
    model = poptorch.inferenceModel(Affine(), poptorch.Options().deviceIterations(4))
    with pytest.raises(PopulusError, match=r"input 0 has shape \[6, 2\]; device iterations times gradient accumulation is 4"):
        model(X)


def test_inputs_of_another_shape_are_refused():
    model = poptorch.inferenceModel(Affine())
    model(X)
    with pytest.raises(PopulusError, match=r"the inputs are float32 \[5, 2\], and the model is compiled for float32 \[6, 2\]"):
        model(X[:5])


def test_a_model_that_infers_follows_the_weights_of_training():
    module = Affine()
    training, inferring = poptorch.trainingModel(module), poptorch.inferenceModel(module)
    first = inferring(X)
    training(X, X)
    assert not torch.allclose(inferring(X), first)
    assert torch.allclose(inferring(X), module(X))
    module.weight.data.fill_(1.0)
    inferring.copyWeightsToDevice()
    assert torch.allclose(inferring(X), module(X))
    module.load_state_dict({"weight": torch.zeros(2, 2), "shift": torch.ones(2)})
    assert torch.allclose(inferring(X), torch.ones(6, 2))


def test_a_named_buffer_is_written_alone():
    module = Affine()
    model = poptorch.inferenceModel(module, poptorch.Options().updatableNamedBuffers(["shift"]))
    model(X)
    module.shift.data.fill_(7.0)
    model.copyNamedBuffersToDevice()
    assert torch.allclose(model(X), module(X))


def test_a_custom_op_is_a_users_op():
    import examples.leaky_relu as op  # registers nothing: the file is loaded below

    class Net(torch.nn.Module):
        def forward(self, x):
            return poptorch.custom_op([x], "LeakyRelu", "com.acme", 1, example_outputs=[x], attributes={"alpha": 0.5})[0]

    given = torch.tensor([-2.0, 3.0])
    with pytest.raises(PopulusError, match="there is no op LeakyRelu in the custom domain 'com.acme'"):
        poptorch.inferenceModel(Net())(given)
    populus.load(op.__file__)
    assert poptorch.inferenceModel(Net())(given).tolist() == [-1.0, 3.0]


def test_functions_of_poptorch_compute():
    class Net(torch.nn.Module):
        def forward(self, x, at):
            loop = poptorch.for_loop(3, lambda v: v * 2, [x])[0]
            chosen = poptorch.cond(at.sum() > 0, lambda v: v + 1, [x], lambda v: v - 1, [x])[0]
            part = poptorch.dynamic_slice(x, 0, at, 2, 1)
            put = poptorch.dynamic_update(x, torch.zeros(2, 2), 0, at, 2)
            near = poptorch.nearest(x[:2], x)
            with poptorch.Block("a"), poptorch.NameScope("b"), poptorch.MultiConv():
                return (
                    loop,
                    chosen,
                    part,
                    put,
                    near,
                    poptorch.nop(x),
                    poptorch.serializedMatMul(x, x.T, poptorch.MatMulSerializationMode.Disabled),
                )

    loop, chosen, part, put, near, same, product = poptorch.inferenceModel(Net())(X, torch.tensor([3]))
    expected = X.clone()
    expected[3:5] = 0
    for found, wanted in ((loop, X * 8), (chosen, X + 1), (part, X[3:5]), (put, expected), (same, X), (product, X @ X.T)):
        assert torch.allclose(found, wanted)
    assert near.tolist() == [0, 1]


def test_a_tensor_inside_can_be_anchored():
    first = poptorch.inferenceModel(Affine())
    first.compile(X)
    name = first.getTensorNames()[1]
    model = poptorch.inferenceModel(Affine(), poptorch.Options().anchorTensor("inside", name))
    model(X)
    assert torch.allclose(model.getAnchoredTensor("inside"), X @ Affine().weight)
    with pytest.raises(PopulusError, match="No tensor with name other found"):
        model.getAnchoredTensor("other")


def test_gradients_and_new_weights_can_be_anchored():
    module = Affine()
    options = poptorch.Options().anchorTensor("grad", "Gradient___weight").anchorTensor("new", "UpdatedVar___weight")
    model = poptorch.trainingModel(module, options, torch.optim.SGD(module.parameters(), lr=0.1))
    before = Affine()
    before(X, X)[1].backward()
    model(X, X)
    assert torch.allclose(model.getAnchoredTensor("grad"), before.weight.grad)
    assert torch.allclose(model.getAnchoredTensor("new"), before.weight - 0.1 * before.weight.grad)
    assert "Gradient___weight" in model.getTensorNames()


def test_a_buffer_counts_on_the_machine():
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("i", torch.zeros(1))

        def forward(self):
            self.i += 1
            return self.i

    module = Counter()
    model = poptorch.inferenceModel(module)
    assert [model().item() for _ in range(3)] == [1.0, 2.0, 3.0]
    assert module.i.item() == 0
    model.copyWeightsToHost()
    assert module.i.item() == 3


# -- losses -----------------------------------------------------------------------------------------------------------


class Losses(torch.nn.Module):
    """Losses of a function of the squares' means."""

    def __init__(self, losses):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.losses = losses

    def forward(self, x):
        return self.losses(x * self.weight)


def test_identity_loss_reduces_and_is_the_last_loss():
    for reduction, grad in (("sum", X.sum(0)), ("mean", X.sum(0) / 12), ("none", X.sum(0)), (1, X.sum(0) / 12)):
        net = Losses(lambda y, r=reduction: poptorch.identity_loss(y + 0 * torch.nn.functional.mse_loss(y, y), reduction=r))
        poptorch.trainingModel(net, optimizer=torch.optim.SGD(net.parameters(), lr=0.5))(X)
        assert torch.allclose(net.weight, 1 - 0.5 * grad)


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        (lambda y: y.sum(), "the model computes no loss; use one of torch.nn, or mark a tensor by poptorch.identity_loss"),
        (
            lambda y: torch.nn.functional.mse_loss(y, y) + torch.nn.functional.l1_loss(y, y),
            "the model computes several losses, mse_loss, l1_loss; poptorch.identity_loss of their sum makes them one",
        ),
        (lambda y: poptorch.identity_loss(y, "max"), "identity_loss takes the reduction sum, mean or none, not 'max'"),
        (poptorch.CPU(len, "count"), r"poptorch.CPU\('count'\) is not there"),
        (lambda y: y if y.sum() > 0 else -y, "torch.export cannot trace the module: "),
        (torch.special.bessel_j0, "torch.onnx cannot write .*bessel_j0; use other functions in its place"),
    ],
)
def test_a_module_that_cannot_be_trained_is_refused(losses, message):
    with pytest.raises(PopulusError, match=message):
        poptorch.trainingModel(Losses(losses))(X)


# -- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value", "usual", "why"),
    [
        ("Precision.enableStochasticRounding", True, False, "f16 is rounded to the nearest"),
        ("Precision.setPartialsType", torch.half, torch.float32, "partial sums are of f32"),
        ("logCycleCount", True, None, "it changes no result on one machine"),
    ],
)
def test_an_option_without_meaning_warns_once_by_name_at_the_user_s_line(option, value, usual, why, monkeypatch):
    monkeypatch.setattr(quiet, "_SAID", set[tuple[str, str]]())
    method = attrgetter(option)(poptorch.Options())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if usual is not None:
            method(usual)
    with pytest.warns(PopulusWarning, match=re.escape(f"populus.poptorch takes {option} and ignores it: {why}")) as said:
        method(value)
    assert [Path(w.filename) for w in said] == [Path(__file__)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        method(value)
        options = poptorch.Options()
        assert options.deviceIterations(3).device_iterations == 3
        assert options.Training.gradientAccumulation(2).gradient_accumulation == 2


class Masked(torch.nn.Module):
    """Computes a logarithm whose NaN no result shows."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, x):
        logs = torch.log(x * self.scale)
        shown = torch.where(x > 0, logs, 0.0)
        return shown, poptorch.identity_loss(shown, "sum")


@pytest.mark.parametrize("training", [False, True])
def test_with_floating_point_exceptions_a_run_stops_at_the_op(training):
    options = poptorch.Options().outputMode(poptorch.OutputMode.All)
    options.Precision.enableFloatingPointExceptions(True)
    model = poptorch.trainingModel(Masked(), options) if training else poptorch.inferenceModel(Masked(), options)
    shown, loss = model(torch.tensor([1.0, 4.0]))
    assert shown.tolist() == pytest.approx([0, np.log(4)])
    assert loss.item() == pytest.approx(np.log(4))
    with pytest.raises(PopulusError, match=r"floating point exception: Log '.*' gives NaN \(.*test_poptorch\.py:\d+\)"):
        model(torch.tensor([1.0, -1.0]))
    with pytest.raises(PopulusError, match="floating point exception: Log '.*' gives an infinity of finite numbers"):
        model(torch.tensor([1.0, 0.0]))
    model(torch.tensor([1.0, np.inf]) if not training else torch.tensor([2.0, 3.0]))  # infinities that are given are none of it


def test_without_floating_point_exceptions_a_run_goes_on():
    assert poptorch.inferenceModel(Masked())(torch.tensor([1.0, -1.0]))[0].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (lambda o: o.replicationFactor(0), PopulusError, r"replicationFactor\(0\); a whole number from 1 on is expected"),
        (lambda o: o.deviceIterations(0), PopulusError, r"deviceIterations\(0\); a whole number from 1 on is expected"),
        (lambda o: o.enableSyntheticData(True), PopulusError, "Options.enableSyntheticData is not there"),
        (lambda o: o.Training.setAutomaticLossScaling(True), PopulusError, "set loss_scaling of the optimizer"),
        (lambda o: o.Distributed.configureProcessId(1, 2), PopulusError, "2 processes; a model runs in one"),
        (lambda o: o.outputMode(MODES.EveryN), PopulusError, "needs output_return_period"),
        (lambda o: o.Training.accumulationAndReplicationReductionType("mean"), ValueError, "ReductionType.Mean or"),
        (lambda o: o.devise_iterations, AttributeError, "Options has no option 'devise_iterations'; did you mean 'device_iterations'?"),
        (lambda o: o.enableStableNorm(), TypeError, "missing a required argument: 'enabled'"),
    ],
)
def test_an_option_that_would_change_results_is_refused(change, kind, message):
    with pytest.raises(kind, match=message):
        change(poptorch.Options())


def test_options_are_the_models_once_it_has_them():
    options = poptorch.Options()
    poptorch.inferenceModel(Affine(), options)
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        options.deviceIterations(2)
    assert options.clone().deviceIterations(2).device_iterations == 2


def test_accumulation_is_for_training():
    options = poptorch.Options()
    options.Training.gradientAccumulation(2)
    with pytest.raises(PopulusError, match="gradientAccumulation to 1 or leave it"):
        poptorch.inferenceModel(Affine(), options)


def test_a_file_of_options_is_data(tmp_path):
    path = tmp_path / "poptorch.conf"
    path.write_text("# twice\ndeviceIterations(2)\nTraining.gradientAccumulation(3)\noutputMode(poptorch.OutputMode.Sum)\n")
    options = poptorch.Options().loadFromFile(str(path))
    assert (options.device_iterations, options.Training.gradient_accumulation, options.output_mode) == (2, 3, MODES.Sum)
    for text, message in (
        ("deviceIterations(open('x'))", "there is no such name in poptorch"),
        ("__class__(1)", "Options has no '__class__'"),
        ("deviceIterations", "a call is expected"),
        ("deviceIterations(2", "was never closed"),
    ):
        path.write_text(text + "\n")
        with pytest.raises(poptorch.ConfigFileError, match=message):
            poptorch.Options().loadFromFile(str(path))
    assert poptorch.Options().from_json('{"deviceIterations": 4, "Training": {"gradientAccumulation": 2}}').device_iterations == 4


# -- loaders ----------------------------------------------------------------------------------------------------------


def loader(mode=poptorch.DataLoaderMode.Sync, count=10, **more):
    options = poptorch.Options().deviceIterations(2)
    dataset = torch.utils.data.TensorDataset(torch.arange(count))
    return poptorch.DataLoader(options, dataset, mode=mode, **more)


@pytest.mark.parametrize("mode", poptorch.DataLoaderMode)
def test_batches_have_the_samples_of_a_call(mode):
    with loader(mode, batch_size=2) as found:
        assert found.combinedBatchSize == 4
        for _ in range(2):
            assert [b[0].tolist() for b in found] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert len(found) == 2
    with loader(mode, batch_size=2, drop_last=False) as found:
        assert [b[0].tolist() for b in found][-1] == [8, 9]


def test_a_sampler_of_batches_is_joined():
    found = loader(batch_sampler=[[0, 2], [4, 6], [1, 3]])
    assert [b[0].tolist() for b in found] == [[0, 2, 4, 6]]
    with pytest.raises(PopulusError, match="mutually exclusive"):
        loader(batch_sampler=[[0]], shuffle=True)


def test_an_error_of_the_dataset_comes_out_of_the_thread():
    class Broken(torch.utils.data.Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, i):
            if i == 5:
                raise ValueError("row 5")
            return np.float32(i)

    found = poptorch.DataLoader(poptorch.Options(), Broken(), 4, mode=poptorch.DataLoaderMode.Async)
    rows = iter(found)
    assert next(rows).tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="row 5"):
        next(rows)


# -- the machine ------------------------------------------------------------------------------------------------------


def test_the_machine_is_a_model():
    assert poptorch.ipuHardwareIsAvailable()
    assert not poptorch.ipuHardwareIsAvailable(4)
    assert poptorch.ipuHardwareVersion() == 2
    assert not poptorch.isRunningOnIpu()
    model = poptorch.inferenceModel(Affine())
    with pytest.raises(poptorch.Error, match="has not been compiled"):
        model.copyWeightsToHost()
    model.compile(X)
    assert model.isCompiled()
    assert model.isAttachedToDevice()
    assert model.program.profile().target.name == "gc200"
    assert model.cycleCount() > 0
    model.detachFromDevice()
    assert torch.allclose(model(X), Affine()(X))
    model.destroy()
    assert not model.isCompiled()
    with pytest.raises(poptorch.Error, match="an executable is not written"):
        model.save("x")
    offline = poptorch.inferenceModel(Affine(), poptorch.Options().connectionType(poptorch.ConnectionType.Never))
    offline.compile(X)
    with pytest.raises(poptorch.Error, match="offline device"):
        offline(X)


def test_hooks_run_around_a_trace():
    seen = []

    class Net(torch.nn.Module):
        def forward(self, x):
            seen.append(("trace", poptorch.isRunningOnIpu()))
            return x + 1

    hooks = [poptorch.registerPreCompileHook(lambda: seen.append("before")), poptorch.registerPostCompileHook(lambda: seen.append("after"))]
    poptorch.inferenceModel(Net())(X)
    for hook in hooks:
        hook.remove()
    poptorch.inferenceModel(Affine())(X)
    assert seen == ["before", ("trace", True), "after"]


def test_dropout_follows_from_the_seed_and_drops_its_share():
    class Net(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.dropout(x, 0.25, self.training)

    ones = torch.ones(64, 64)
    found = [poptorch.inferenceModel(Net().train(), poptorch.Options().randomSeed(seed))(ones) for seed in (1, 1, 2)]
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert found[0].unique().tolist() == [0.0, pytest.approx(4 / 3)]
    assert (found[0] == 0).float().mean().item() == pytest.approx(0.25, abs=0.03)

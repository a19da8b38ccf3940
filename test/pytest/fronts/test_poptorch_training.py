"""Training by `poptorch`: curves of losses and weights equal PyTorch's."""

from __future__ import annotations

import copy
from dataclasses import replace
from math import inf

import pytest

from populus.dialects.support.diagnostics import PopulusError

torch = pytest.importorskip("torch", reason="needs torch, which is optional")
poptorch = pytest.importorskip("populus.poptorch", reason="needs onnxscript, as torch.onnx does", exc_type=ImportError)
torch_backend = pytest.importorskip("populus.torch_backend")


poptorch.PoplarExecutor.MACHINE = replace(poptorch.PoplarExecutor.MACHINE, tiles=16)
STEPS, BATCH = 100, 6


class Net(torch.nn.Module):
    """A convolution with a batch norm, a layer, and a loss."""

    def __init__(self, norm: bool = True):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 3, 3, bias=not norm)
        self.norm = torch.nn.BatchNorm2d(3) if norm else torch.nn.Identity()
        self.full = torch.nn.Linear(48, 4)

    def forward(self, x, labels):
        y = self.full(torch.relu(self.norm(self.conv(x))).flatten(1))
        return y, torch.nn.functional.cross_entropy(y, labels)


def data(count):
    g = torch.Generator().manual_seed(1)
    return torch.randn(count, 1, 6, 6, generator=g), torch.randint(0, 4, (count,), generator=g)


def compared(make, reference=None, parts=1, iterations=1, norm=True, steps=STEPS, options=None):
    """Trains two copies of a net; gives the largest differences of losses, relative, and of weights and buffers."""
    torch.manual_seed(0)
    ours = Net(norm).train()
    theirs = copy.deepcopy(ours)
    optimizer, other = make(ours), (reference or make)(theirs)
    options = options or poptorch.Options()
    options.deviceIterations(iterations).outputMode(poptorch.OutputMode.All)
    options.Training.gradientAccumulation(parts)
    model = poptorch.trainingModel(ours, options, optimizer)
    x, labels = data(BATCH * steps)
    every, found, expected = BATCH * parts * iterations, [], []
    for k in range(0, len(x), every):
        found.append(model(x[k : k + every], labels[k : k + every])[1].reshape(-1))
    for k in range(steps):
        rows = slice(k * BATCH, (k + 1) * BATCH)
        loss = theirs(x[rows], labels[rows])[1]
        expected.append(loss.detach())
        (loss / parts).backward()
        if (k + 1) % parts == 0:
            other.step()
            other.zero_grad()
    losses = torch.cat(found), torch.stack(expected)
    worst = ((losses[0] - losses[1]).abs() / losses[1].abs().clamp(min=1e-2)).max().item()
    pairs = zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True)
    return worst, max((a - b).abs().max().item() for a, b in pairs)


def sgd(lr, **more):
    return lambda net: torch.optim.SGD(net.parameters(), lr=lr, **more)


KINDS = {
    "sgd": sgd(0.05),
    "momentum": sgd(0.02, momentum=0.9, dampening=0.4, weight_decay=0.01),
    "nesterov": sgd(0.02, momentum=0.9, nesterov=True),
    "dampening alone": sgd(0.02, dampening=0.4),
    "adam": lambda m: torch.optim.Adam(m.parameters(), lr=0.003, weight_decay=0.01),
    "adamw": lambda m: torch.optim.AdamW(m.parameters(), lr=0.003, betas=(0.8, 0.99), weight_decay=0.1),
    "rmsprop": lambda m: torch.optim.RMSprop(m.parameters(), lr=0.001, momentum=0.5),
    "centered": lambda m: torch.optim.RMSprop(m.parameters(), lr=0.001, centered=True, weight_decay=0.01),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_hundred_losses_are_those_of_torch(kind):
    losses, weights = compared(KINDS[kind], norm=kind in ("sgd", "momentum"))
    assert losses < 1e-5
    assert weights < 1e-4


def test_device_iterations_and_accumulated_gradients_are_those_of_torch():
    losses, weights = compared(KINDS["momentum"], parts=2, iterations=5)
    assert losses < 1e-5
    assert weights < 1e-4


def test_sums_of_gradients_are_means_times_their_number():
    options = poptorch.Options()
    options.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Sum)
    losses, _ = compared(sgd(0.01), sgd(0.04), parts=4, steps=20, options=options)
    assert losses < 1e-5


def test_the_loss_scaling_of_an_optimizer_changes_no_step():
    def scaled(net):
        return poptorch.optim.SGD(net.parameters(), lr=0.05, momentum=0.5, loss_scaling=128.0)

    assert compared(scaled, sgd(0.05, momentum=0.5), steps=20)[0] < 1e-5


def test_groups_of_weights_have_their_own_rates():
    def make(net):
        return torch.optim.SGD([{"params": net.conv.parameters(), "lr": 0.1}, {"params": net.full.parameters()}], lr=0.01, momentum=0.9)

    assert compared(make, norm=False, steps=20)[1] < 1e-5


def test_a_weight_without_an_optimizer_stays():
    losses, weights = compared(lambda m: torch.optim.SGD(m.full.parameters(), lr=0.05), steps=10)
    assert losses < 1e-5
    assert weights < 1e-5


def test_gradients_are_clipped_by_their_norm():
    torch.manual_seed(0)
    net = Net(norm=False)
    before = {n: p.detach().clone() for n, p in net.named_parameters()}
    model = poptorch.trainingModel(net, optimizer=poptorch.optim.SGD(net.parameters(), lr=1.0, max_grad_norm=0.01))
    model(*data(BATCH))
    moved = torch.cat([(p - before[n]).flatten() for n, p in net.named_parameters()]).norm()
    assert moved.item() == pytest.approx(0.01, rel=1e-4)


def lamb(w, g, m, v, step, lr, betas, eps, decay, norm, corrected):
    """Computes a step of LAMB in f64."""
    m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g * g
    first, second = (m / (1 - betas[0] ** step), v / (1 - betas[1] ** step)) if corrected else (m, v)
    x = first / (second.sqrt() + eps) + decay * w
    return w - lr * min(w.norm().item(), norm) / x.norm() * x, m, v


@pytest.mark.parametrize(("corrected", "norm"), [(True, None), (False, 0.5)])
def test_lamb_takes_its_formulas_steps(corrected, norm):
    torch.manual_seed(0)
    net = Net(norm=False)
    weights = {n: p.detach().double() for n, p in net.named_parameters()}
    states = {n: (torch.zeros_like(p), torch.zeros_like(p)) for n, p in weights.items()}
    optimizer = poptorch.optim.LAMB(net.parameters(), lr=0.01, bias_correction=corrected, max_weight_norm=norm)
    model = poptorch.trainingModel(net, optimizer=optimizer)
    reference = Net(norm=False).double()
    x, labels = data(BATCH)
    for step in range(1, 6):
        model(x, labels)
        reference.load_state_dict(weights)
        reference.zero_grad()
        reference(x.double(), labels)[1].backward()
        for n, p in reference.named_parameters():
            weights[n], *states[n] = lamb(weights[n], p.grad, *states[n], step, 0.01, (0.9, 0.999), 1e-8, 1e-2, norm or inf, corrected)
    assert max((p - weights[n]).abs().max().item() for n, p in net.named_parameters()) < 1e-5


def test_adamw_without_bias_correction_differs_from_adamw():
    def theirs(net):
        return torch.optim.AdamW(net.parameters(), lr=0.01)

    for corrected in (True, False):
        worst, _ = compared(
            lambda net, c=corrected: poptorch.optim.AdamW(net.parameters(), lr=0.01, bias_correction=c), theirs, norm=False, steps=10
        )
        assert (worst < 1e-5) == corrected


def test_other_hyperparameters_need_setOptimizer():
    torch.manual_seed(0)
    net = Net(norm=False)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0, momentum=0.9)
    model = poptorch.trainingModel(net, optimizer=optimizer)
    first = net.full.weight.detach().clone()
    model(*data(BATCH))
    optimizer.param_groups[0]["lr"] = 0.1
    model(*data(BATCH))
    assert torch.equal(net.full.weight, first)
    model.setOptimizer(optimizer)
    model(*data(BATCH))
    assert not torch.equal(net.full.weight, first)


def test_an_optimizers_state_goes_on_in_another_model():
    def begun():
        torch.manual_seed(0)
        net = Net(norm=False)
        optimizer = poptorch.optim.Adam(net.parameters(), lr=0.01)
        return net, optimizer, poptorch.trainingModel(net, optimizer=optimizer)

    x, labels = data(BATCH)
    net, _, model = begun()
    for _ in range(6):
        model(x, labels)
    first, optimizer, model = begun()
    for _ in range(3):
        model(x, labels)
    kept, weights = optimizer.state_dict(), copy.deepcopy(first.state_dict())
    second, optimizer, model = begun()
    second.load_state_dict(weights)
    optimizer.load_state_dict(kept)
    for _ in range(3):
        model(x, labels)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), second.parameters(), strict=True))


class Images(torch.nn.Module):
    """A net of images with or without kinks, where the slope depends on which side of 0, or which of two pixels, is larger."""

    def __init__(self, kinks: bool):
        super().__init__()
        self.kinks = kinks
        self.conv = torch.nn.Conv2d(1, 4, 3, padding=1)
        self.hidden, self.classes = torch.nn.Linear(36, 16), torch.nn.Linear(16, 4)

    def forward(self, x, labels):
        bend = torch.relu if self.kinks else torch.tanh
        pool = torch.nn.functional.max_pool2d if self.kinks else torch.nn.functional.avg_pool2d
        y = self.classes(bend(self.hidden(pool(bend(self.conv(x)), 2).flatten(1))))
        return y, torch.nn.functional.cross_entropy(y, labels)


def drift(kinks, dtype, steps=140, rows=20):
    """Trains a net on the machine, and in float64 by PyTorch; gives the largest distance of their weights."""
    torch.manual_seed(0)
    net = Images(kinks).to(dtype)
    reference = copy.deepcopy(net).double()
    other = torch.optim.SGD(reference.parameters(), lr=0.05)
    x, labels = data(steps * rows)
    own = torch.optim.SGD(net.parameters(), lr=0.05)
    model = poptorch.trainingModel(net, None, own) if dtype == torch.float32 else torch.compile(net, backend=torch_backend.backend)
    for k in range(0, steps * rows, rows):
        some = slice(k, k + rows)
        loss = model(x[some].to(dtype), labels[some])[1]
        if dtype == torch.float64:
            loss.backward()
            own.step()
            own.zero_grad()
        reference(x[some].double(), labels[some])[1].backward()
        other.step()
        other.zero_grad()
    return max((a.double() - b).abs().max().item() for a, b in zip(net.parameters(), reference.parameters(), strict=True))


def test_weights_leave_float64_by_rounding_alone():
    # A sum that rounds to the other side of a kink has another slope, in any f32. So weights jump, but neither without kinks nor in f64.
    assert drift(kinks=False, dtype=torch.float32) < 2e-6
    assert drift(kinks=True, dtype=torch.float64) < 1e-13


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (torch.optim.Adagrad, "there is no optimizer Adagrad on the machine; there are SGD"),
        (lambda p: torch.optim.Adam(p, amsgrad=True), "Adam: amsgrad=True is not there"),
        (lambda p: torch.optim.SGD(p, lr=0.1, maximize=True), "SGD: maximize=True is not there"),
    ],
)
def test_an_optimizer_that_is_not_there_is_refused(make, message):
    net = Net()
    with pytest.raises(PopulusError, match=message):
        poptorch.trainingModel(net, optimizer=make(net.parameters()))

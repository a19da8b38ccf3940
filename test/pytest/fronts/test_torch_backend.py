"""`torch.compile(model, backend="populus")`: results, gradients, refusals."""

from __future__ import annotations

import copy

import pytest

from populus.dialects.support.diagnostics import PopulusError, PopulusWarning
from populus.torch_backend import backend

torch = pytest.importorskip("torch", reason="needs torch, which is optional")
pytest.importorskip("onnxscript", reason="needs onnxscript, as torch.onnx does")


def compiled(model, **options):
    return torch.compile(model, backend=backend, options={"target": "gc200", "tiles": 8, **options})


class Net(torch.nn.Module):
    """Layers with a batch norm between."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = torch.nn.Linear(4, 6, bias=False), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 2)

    def forward(self, x):
        return self.second(torch.relu(self.norm(self.first(x))))


def test_the_backend_is_known_by_its_name_once_installed():
    from importlib.metadata import entry_points

    found = [e for e in entry_points(group="torch_dynamo_backends") if e.name == "populus"]
    if not found:
        pytest.skip("populus is not installed with its entry points")
    assert found[0].load() is backend


def test_results_are_torchs_for_each_shape():
    @torch.compile(backend=backend)
    def function(x, y):
        return torch.sin(x) @ y.T, x.shape[0] * 2, x > 0

    for rows in (3, 4, 5):
        x = torch.randn(rows, 4)
        product, number, positive = function(x, x)
        assert torch.allclose(product, torch.sin(x) @ x.T, atol=1e-5)
        assert number == 2 * rows
        assert torch.equal(positive, x > 0)


def test_programs_of_the_shapes_used_last_are_kept(monkeypatch):
    from populus.torch_backend import compiled as module

    monkeypatch.setattr(module, "MOST_SHAPES", 2)
    made: list[int] = []
    sized = module.Compiled._sized
    monkeypatch.setattr(module.Compiled, "_sized", lambda self, args: made.append(len(args[0])) or sized(self, args))
    function = module.Compiled(torch.fx.symbolic_trace(torch.nn.ReLU()), {"tiles": 1})
    for rows in (3, 4, 3, 5, 3, 4):  # 5 takes the place of 4, and 4 that of 5
        x = torch.randn(rows)
        (y,) = torch.utils._pytree.tree_leaves(function(x))
        assert torch.equal(y, torch.relu(x))
        assert len(function._made) <= 2
    assert made == [3, 4, 5, 4]


def test_training_is_torchs():
    torch.manual_seed(0)
    ours = Net().train()
    theirs = copy.deepcopy(ours)
    function = compiled(ours)
    x = torch.randn(5, 4)
    for net, model in ((ours, function), (theirs, theirs)):
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
        for _ in range(10):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    for a, b in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True):
        assert torch.allclose(a, b, atol=1e-5)


def test_gradients_of_inputs_are_torchs():
    function = compiled(lambda x, y: (x * y).sum(0) + x.argmax(0))
    x, y = (torch.randn(3, 4, requires_grad=True) for _ in range(2))
    g = torch.randn(4)
    found = torch.autograd.grad(function(x, y), (x, y), g)
    expected = torch.autograd.grad((x * y).sum(0) + x.argmax(0), (x, y), g)
    for a, b in zip(found, expected, strict=True):
        assert torch.allclose(a, b)


def test_backward_sees_the_same_random_numbers():
    function = compiled(lambda x: torch.nn.functional.dropout(x, 0.5, True))
    x = torch.ones(8, 8, requires_grad=True)
    for _ in range(2):
        y = function(x)
        (grad,) = torch.autograd.grad(y, x, torch.ones_like(y))
        assert torch.equal(grad, y.detach())


def test_an_input_that_a_graph_changes_is_changed():
    x = torch.zeros(3)
    assert torch.equal(compiled(lambda v: v.add_(2) * 3)(x), torch.full((3,), 6.0))
    assert torch.equal(x, torch.full((3,), 2.0))


def test_a_graph_that_cannot_be_compiled_is_refused_or_left_to_torch():
    x = torch.randn(3)
    with pytest.raises(PopulusError, match="bessel_j0"):
        compiled(torch.special.bessel_j0)(x)
    with pytest.warns(PopulusWarning, match=r"PyTorch runs a graph that populus cannot compile: .*bessel_j0"):
        assert torch.equal(compiled(torch.special.bessel_j0, fallback=True)(x), torch.special.bessel_j0(x))


def test_an_unknown_option_is_refused():
    with pytest.raises(Exception, match="the backend populus has no option 'tile'; did you mean 'tiles'"):
        compiled(torch.sin, tile=3)(torch.randn(3))


def test_cross_entropies_that_the_exporter_cannot_write_are_torchs():
    x, weight = torch.randn(6, 5), torch.tensor([1.0, 2, 3, 4, 5])
    labels, shares = torch.tensor([0, 1, 2, -100, 4, 3]), torch.softmax(torch.randn(6, 5), 1)

    def losses(x, labels, shares):
        loss = torch.nn.functional.cross_entropy
        return [
            loss(x, labels, label_smoothing=0.1),
            loss(x, labels, weight=weight, label_smoothing=0.1),
            loss(x, labels, reduction="sum", label_smoothing=0.2),
            loss(x, labels, reduction="none", label_smoothing=0.2),
            loss(x, shares),
            loss(x, shares, weight=weight, label_smoothing=0.3),
        ]

    for found, expected in zip(compiled(losses)(x, labels, shares), losses(x, labels, shares), strict=True):
        assert torch.allclose(found, expected, atol=1e-5)


def test_running_statistics_of_norms_are_torchs():
    torch.manual_seed(0)
    norms = torch.nn.BatchNorm2d(3, momentum=0.3), torch.nn.InstanceNorm2d(3, affine=True, track_running_stats=True)
    ours = torch.nn.Sequential(*norms).train()
    theirs = copy.deepcopy(ours)
    function, x = compiled(ours), torch.randn(2, 3, 4, 5)
    for _ in range(2):
        assert torch.allclose(function(x), theirs(x), atol=1e-5)
    for a, b in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True):
        assert torch.allclose(a, b, atol=1e-6)

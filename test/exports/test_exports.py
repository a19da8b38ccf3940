"""Models as exporters write them, made here, against what they were made of. Without the exporters there is nothing to run."""

from __future__ import annotations

import io
import warnings

import numpy as np
import onnx
import pytest

from populus import onnx_backend

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 5)).astype(np.float32)
TWO, THREE = (X[:, 0] + X[:, 1] > 0).astype(int), np.digitize(X[:, 0], [-0.5, 0.5])
NUMBER = (X @ np.arange(1, 6)).astype(np.float32)
WORDS = ["the cat sat on the mat", "a dog ran over the hill", "The cat and the dog", "rain, rain go away", "hello world hello"]

ESTIMATORS = {
    "sklearn.ensemble:GradientBoostingClassifier": ({"n_estimators": 5}, TWO),
    "sklearn.ensemble:RandomForestClassifier": ({"n_estimators": 5}, THREE),
    "sklearn.ensemble:IsolationForest": ({"n_estimators": 5}, None),
    "sklearn.gaussian_process:GaussianProcessRegressor": ({}, NUMBER),
    "sklearn.linear_model:LogisticRegression": ({}, np.array(["low", "mid", "high"])[THREE]),
    "sklearn.neighbors:KNeighborsClassifier": ({"n_neighbors": 3}, THREE),
    "sklearn.neural_network:MLPClassifier": ({"hidden_layer_sizes": (8,), "max_iter": 30}, THREE),
    "sklearn.preprocessing:PolynomialFeatures": ({}, None),
    "sklearn.svm:SVC": ({"probability": True, "random_state": 0}, THREE),
    "sklearn.svm:NuSVR": ({}, NUMBER),
    "sklearn.tree:DecisionTreeRegressor": ({}, NUMBER),
}


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("target", ["host", "gc200"])
def test_an_estimator_predicts_the_same(name, target, monkeypatch):
    skl2onnx = pytest.importorskip("skl2onnx")
    ort = pytest.importorskip("onnxruntime")
    module, _, kind = name.partition(":")
    settings, y = ESTIMATORS[name]
    estimator = getattr(pytest.importorskip(module), kind)(**settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(X, y)
        model = skl2onnx.to_onnx(estimator, X[:1], target_opset={"": 20, "ai.onnx.ml": 3})
    monkeypatch.setattr(onnx_backend.Backend, "target", target)
    found = onnx_backend.run_model(model, [X[:7]])
    wanted = ort.InferenceSession(model.SerializeToString()).run(None, {model.graph.input[0].name: X[:7]})
    for f, w in zip(found, wanted, strict=True):
        if isinstance(w, list):
            assert [list(row) for row in f] == [list(row) for row in w]
            f, w = (np.array([list(row.values()) for row in rows]) for rows in (f, w))
        if w.dtype.kind == "f":
            np.testing.assert_allclose(f, w, rtol=1e-3, atol=1e-4)
        else:
            assert f.tolist() == w.tolist()


@pytest.mark.parametrize("analyzer", ["word", "char"])
def test_text_is_counted_the_same(analyzer):
    skl2onnx = pytest.importorskip("skl2onnx")
    from skl2onnx.common.data_types import StringTensorType

    text = pytest.importorskip("sklearn.feature_extraction.text")
    vectorizer = text.TfidfVectorizer(analyzer=analyzer, ngram_range=(1, 2)).fit(WORDS)
    model = skl2onnx.convert_sklearn(vectorizer, initial_types=[("s", StringTensorType([None]))], target_opset=17)
    (found,) = onnx_backend.run_model(model, [np.array(WORDS[::-1], object)])
    np.testing.assert_allclose(found, vectorizer.transform(WORDS[::-1]).toarray(), rtol=1e-4, atol=1e-6)


def attention(torch):
    class Step(torch.nn.Module):
        """Attention over a cache of keys and values."""

        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = (torch.nn.Linear(8, 8) for _ in range(3))

        def forward(self, x, keys, values):
            k, v = torch.cat([keys, self.k(x)], 1), torch.cat([values, self.v(x)], 1)
            return torch.softmax(self.q(x) @ k.transpose(1, 2) / 8**0.5, -1) @ v, k, v

    return (
        Step(),
        [torch.randn(2, 1, 8), torch.randn(2, 4, 8), torch.randn(2, 4, 8)],
        {0: {0: "b"}, 1: {0: "b", 1: "p"}, 2: {0: "b", 1: "p"}},
    )


def graph_net(torch):
    class Net(torch.nn.Module):
        """The mean of what neighbours say."""

        def forward(self, x, edges):
            total = torch.zeros_like(x).scatter_add(0, edges[1].unsqueeze(1).expand(-1, 4), x[edges[0]])
            count = torch.zeros(x.shape[0]).scatter_add(0, edges[1], torch.ones(edges.shape[1]))
            return total / count.clamp(min=1).unsqueeze(-1)

    return Net(), [torch.randn(5, 4), torch.randint(0, 5, (2, 9))], {0: {0: "n"}, 1: {1: "e"}}


def recurrent(torch):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = torch.nn.LSTM(4, 6, num_layers=2, batch_first=True, bidirectional=True)

        def forward(self, x):
            return self.lstm(x)[0]

    return Net(), [torch.randn(2, 5, 4)], {0: {0: "b", 1: "s"}}


def detection(torch):
    class Head(torch.nn.Module):
        """The boxes of the best scores."""

        def forward(self, boxes, scores):
            values, at = torch.topk(scores.flatten(1), 5, dim=1)
            return values, at % 3, torch.gather(boxes, 1, (at // 3).unsqueeze(-1).expand(-1, -1, 4))

    return Head(), [torch.randn(2, 6, 4), torch.randn(2, 6, 3)], {0: {0: "b"}, 1: {0: "b"}}


def spectrogram(torch):
    class Net(torch.nn.Module):
        def forward(self, x):
            return torch.stft(x, 16, 8, window=torch.hann_window(16), return_complex=False)

    return Net(), [torch.randn(1, 64)], {}


@pytest.mark.parametrize("make", [attention, graph_net, recurrent, detection, spectrogram], ids=lambda f: f.__name__)
@pytest.mark.parametrize("opset", [16, 20])
def test_a_scripted_module_computes_the_same(make, opset):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    module, inputs, axes = make(torch)
    names = [f"x{i}" for i in range(len(inputs))]
    file = io.BytesIO()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = module.eval()(*inputs)
        dynamic = {names[i]: own for i, own in axes.items()}
        try:
            torch.onnx.export(module, tuple(inputs), file, input_names=names, opset_version=opset, dynamic_axes=dynamic, dynamo=False)
        except torch.onnx.errors.OnnxExporterError as error:
            pytest.skip(f"the exporter says {str(error).splitlines()[0]}")
    found = onnx_backend.run_model(onnx.load_model_from_string(file.getvalue()), [x.numpy() for x in inputs])
    for f, w in zip(found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        np.testing.assert_allclose(f, w.numpy(), rtol=1e-3, atol=1e-5)

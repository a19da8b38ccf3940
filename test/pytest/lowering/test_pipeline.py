"""Pipelines as text and as Python objects."""

from __future__ import annotations

import gc
from dataclasses import dataclass, fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import VerifyException

from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.table import context
from populus.lowering.driver import passes
from populus.lowering.driver.phases import LEVELS
from populus.lowering.driver.pipeline import Pipeline, Timing

RAN: list[str] = []


@dataclass(frozen=True)
class OnnxAPass(ModulePass):
    name = "onnx-a"
    word: str = ""
    ratio: float = 0.5
    sizes: tuple[int, ...] = ()
    strict: bool = False

    def apply(self, ctx, op):
        RAN.append(self.name)
        assert not gc.isenabled()


@dataclass(frozen=True)
class OnnxToPopartPass(OnnxAPass):
    name = "onnx-to-popart"


@dataclass(frozen=True)
class PopopsToPoplarPass(OnnxAPass):
    name = "popops-to-poplar"
    target: str | None = None
    tiles: int | None = None


@dataclass(frozen=True)
class FailPass(ModulePass):
    name = "fail"

    def apply(self, ctx, op):
        raise VerifyException("first\n  second")


PASSES = {p.name: (lambda p=p: p) for p in (OnnxAPass, OnnxToPopartPass, PopopsToPoplarPass, FailPass)}
ALL = Pipeline((OnnxAPass(), OnnxToPopartPass(), PopopsToPoplarPass()))


def parse(text):
    return Pipeline.from_text(text, PASSES)


@pytest.mark.parametrize(
    "text",
    [
        "onnx-a,onnx-to-popart,popops-to-poplar",
        "onnx-a, onnx-to-popart ,popops-to-poplar\n",
        "# why\nonnx-a   # first\n\nonnx-to-popart,\npopops-to-poplar # {not, read}",
    ],
)
def test_commas_lines_and_remarks_separate_passes(text):
    assert parse(text) == ALL


def test_options_may_have_lines_commas_and_hashes_in_them():
    text = 'onnx-a{ word="a # b, {c}"\n   sizes=1, 2   ratio=0.25 strict=true }'
    assert parse(text) == Pipeline((OnnxAPass("a # b, {c}", 0.25, (1, 2), True),))


@given(
    st.text(st.characters(codec="utf-8", exclude_characters='"\\', exclude_categories=["C", "Z"])),
    st.floats(0, allow_infinity=False, allow_nan=False),
    st.lists(st.integers(-5, 5), min_size=2).map(tuple),
    st.booleans(),
)
def test_text_of_a_pipeline_reads_back(word, ratio, sizes, strict):
    pipeline = Pipeline((OnnxAPass(word, ratio, sizes, strict), OnnxToPopartPass()))
    assert parse(str(pipeline)) == pipeline


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("onnx-b", "pipeline: no pass 'onnx-b'; did you mean 'onnx-a'?"),
        ("onnx-a{wrod=x}", "pipeline: onnx-a has no option 'wrod'; did you mean 'word'?"),
        ("onnx-a{ratio=x}", "pipeline: 'onnx-a{ratio=x}' does not fit; onnx-a takes word: str, ratio: float, "),
        ("onnx-a}", "pipeline: cannot read 'onnx-a}'"),
        ("onnx-a{word=a/b}", "pipeline: cannot read 'onnx-a{word=a/b}'"),
        ("onnx-a(x)", "pipeline: cannot read 'onnx-a(x)'"),
        ("onnx-a{size=" + "9" * 5001 + "}", "pipeline: a number of more than 4300 digits is given to a pass"),
    ],
)
def test_a_pipeline_that_cannot_be_is_one_line(text, message):
    with pytest.raises(PopulusError) as caught:
        parse(text)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


def test_a_pipeline_is_edited_by_the_names_of_its_passes():
    new = OnnxAPass("new")
    assert ALL.insert_before("onnx-to-popart", new).passes[1] == new
    assert ALL.insert_after("onnx-to-popart", new).passes[2] == new
    assert ALL.replace("onnx-a", new).passes == (new, *ALL.passes[1:])
    assert ALL.remove("onnx-a").passes == ALL.passes[1:]
    assert ALL.with_options("popops-to-poplar", tiles=4).passes[2] == PopopsToPoplarPass(tiles=4)
    with pytest.raises(PopulusError, match="the pipeline has no pass 'onnx-aa'; did you mean 'onnx-a'?"):
        ALL.remove("onnx-aa")
    with pytest.raises(PopulusError, match="popops-to-poplar has no option 'tilse'; did you mean 'tiles'?"):
        ALL.with_options("popops-to-poplar", tilse=4)


def test_defaults_reach_the_passes_that_have_left_them_open():
    pipeline = ALL.with_defaults(target="gc200", tiles=None)
    assert pipeline.passes == (*ALL.passes[:2], PopopsToPoplarPass(target="gc200"))
    assert pipeline.with_defaults(target="bow") == pipeline


def test_levels_divide_a_pipeline():
    assert [len(ALL.down_to(level)) for level in LEVELS] == [1, 2, 2, 3]
    assert [len(ALL.from_level(level)) for level in LEVELS] == [3, 1, 1, 0]


@pytest.mark.parametrize("name", ["inference", "inference-plain"])
def test_named_pipelines_go_through_every_level(name):
    lengths = [len(Pipeline.named(name).down_to(level)) for level in LEVELS]
    assert lengths == sorted(set(lengths))


def test_run_runs_in_order_and_tells_about_it(tmp_path):
    RAN.clear()
    timings: list[Timing] = []
    told: list[tuple[int, str]] = []
    ALL.run(context(), ModuleOp([]), verify_each=True, dump=tmp_path, timings=timings, progress=lambda i, name: told.append((i, name)))
    assert RAN == ["onnx-a", "onnx-to-popart", "popops-to-poplar"] == [t.name for t in timings]
    assert told == list(enumerate(RAN))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["00-input.mlir", *(f"{i:02}-{name}.mlir" for i, name in enumerate(RAN, 1))]
    assert gc.isenabled()


def test_a_failing_pass_is_named():
    with pytest.raises(PopulusError, match=r"first second \(in fail\)"):
        Pipeline((FailPass(),)).run(context(), ModuleOp([]))
    assert gc.isenabled()


def test_the_page_names_every_pass_and_option():
    page = (Path(__file__).parents[3] / "docs/pipelines.md").read_text()
    for name, made in passes.PASSES.items():
        assert f"`{name}`" in page, name
        row = next((line for line in page.splitlines() if line.startswith("|") and f"`{name}`" in line.split("|")[1]), "")
        for option in {f.name for f in fields(made())} - {"target", "tiles", "fidelity"}:
            assert f"`{option}=" in row, f"{name}: {option}"

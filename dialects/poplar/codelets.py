"""Declarations of codelets: the fields and form of a family, the axes that it sums over, and those that may not be cut.

This table is for the verifier and the planner. Kernels, cycles and flops are in `runtime/codelets`, in the file that a row names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from populus.dialects.poplar import forms
from populus.dialects.poplar.forms import Form, Kind
from populus.dialects.poplar.tile_program import TileCode
from populus.dialects.support.registries import registry


@dataclass(frozen=True)
class Codelet:
    """A codelet's declaration.

    `inputs`: names of `in` fields, a trailing `*` standing for any number (`x*`: x1, x2, ...). `contracted`: axes that it
    sums over, as a pattern; where such an axis is cut, the output has one partial result per part. `whole`: axes that a
    vertex needs entire. `padded`: input windows may overhang, and the kernel is told by how much. `inout`: an input may be
    the output too. `file`: the file of `runtime/codelets` with the kernel; by default that of the codelet's name.
    `form`: how its fields belong together. `params`: the kind of each parameter, by name;
    a trailing `?` stands for one that may be left out.
    `code`: the body of a codelet that was written in Python, which has no file and whose own axes are its form.
    """

    name: str
    inputs: tuple[str, ...]
    output: str
    contracted: str = ""
    whole: str = ""
    padded: bool = False
    inout: bool = False
    file: str = ""
    form: Form = forms.fill
    params: Mapping[str, Kind] = field(default_factory=dict[str, Kind])
    code: TileCode | None = None

    @property
    def module(self) -> str:
        """The file of `runtime/codelets` that implements the codelet, without its suffix."""
        return self.file or self.name

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of `out` fields; only a codelet in Python has several."""
        return (self.output,) if self.code is None else self.code.outputs

    @property
    def is_product(self) -> bool:
        """A sum of products of two operands: `conv` and `matmul`."""
        return bool(self.contracted) and len(self.inputs) == 2

    def is_contracted(self, axis: str) -> bool:
        """Tells whether the codelet sums over an axis."""
        return re.fullmatch(self.contracted, axis) is not None

    def needs_whole(self, axis: str) -> bool:
        """Tells whether an axis may not be cut."""
        return re.fullmatch(self.whole, axis) is not None


_PRODUCT: dict[str, Kind] = {"partials?": ("f16",), "swapped?": "flag"}

CODELETS: dict[str, Codelet] = {
    codelet.name: codelet
    for codelet in (
        Codelet(
            "conv", ("x", "w"), "y", contracted=r"ic|k\d", padded=True, file="contraction", form=forms.conv, params=_PRODUCT
        ),
        Codelet("dynamic_update", ("table", "index", "row"), "table", inout=True, file="slices", form=forms.dynamic_update),
        Codelet("fill", (), "y", form=forms.fill, params={"value": "number"}),
        Codelet("iota", (), "y", file="fill", form=forms.iota, params={"start": "number", "step": "number"}),
        Codelet("map", ("x*",), "y", inout=True, form=forms.map_, params={"expr": "expr"}),
        Codelet("matmul", ("a", "b"), "c", contracted="k", file="contraction", form=forms.matmul, params=_PRODUCT),
        Codelet("multi_slice", ("table", "indices"), "y", file="slices", form=forms.multi_slice),
        Codelet(
            "multi_update",
            ("table", "indices", "updates"),
            "y",
            file="indexed",
            form=forms.multi_update,
            params={"op": ("set", "add", "mul", "min", "max")},
        ),
        Codelet(
            "packed_matmul",
            ("x", "codes", "scale", "zero"),
            "y",
            contracted="k",
            whole="k",
            file="packed_weights",
            form=forms.packed_matmul,
            params={"bits": "number"},
        ),
        Codelet(
            "pool",
            ("x",),
            "y",
            contracted=r"k\d",
            whole=r"k\d",
            padded=True,
            form=forms.pool,
            params={"kind": ("max", "average", "sum", "square_sum"), "after": "ints", "count_padding": "flag"},
        ),
        Codelet(
            "random",
            ("seed",),
            "y",
            file="fill",
            form=forms.random,
            params={"distribution": ("uniform", "normal", "bernoulli"), "a": "number", "b": "number", "stream": "number"},
        ),
        Codelet(
            "reduce",
            ("x",),
            "y",
            contracted=r"r\d*",
            form=forms.reduce,
            params={"op": ("add", "and", "max", "min", "mul", "or", "square_add")},
        ),
        Codelet("softmax", ("x",), "y", contracted="r", whole="r", file="rows", form=forms.rows, params={"log": "flag"}),
        Codelet("top_k", ("x",), "y", whole="k", file="indexed", form=forms.top_k, params={"largest": "flag"}),
        Codelet("whiten", ("x",), "y", contracted="r", whole="r", file="rows", form=forms.rows, params={"epsilon": "number"}),
        Codelet(
            "winograd", ("x", "w"), "y", contracted=r"ic|k\d", whole=r"ic|k\d", padded=True, form=forms.winograd, params={"tile": "number"}
        ),
        Codelet("winograd_input", ("x",), "v", whole=r"k\d", padded=True, file="winograd", form=forms.winograd_input),
        Codelet("winograd_output", ("m",), "y", contracted=r"k\d", whole=r"[kr]\d", file="winograd", form=forms.winograd_output),
    )
}
registry(CODELETS)


def register(code: TileCode) -> Codelet:
    """Makes the codelet known by its symbol, which differs between files and between versions of one file."""
    if code.symbol not in CODELETS:
        CODELETS[code.symbol] = Codelet(
            code.symbol,
            code.inputs,
            code.outputs[0],
            whole="|".join(code.whole),
            form=forms.of_axes(code.axes),
            params=dict.fromkeys(code.scalars, "number"),
            code=code,
        )
    return CODELETS[code.symbol]

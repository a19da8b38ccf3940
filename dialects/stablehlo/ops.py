"""The ops of `stablehlo` and `chlo` as a table: operands, attributes, regions. A row becomes a class.

An operand or result with `*` is any number of them. An attribute is `name:kind`, with `?` if it may be left out.
Source: StableHLO's specification, version 1.13.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IntegerAttr,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
)
from xdsl.ir import Attribute, Block, Operation
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    traits_def,
    var_operand_def,
    var_region_def,
    var_result_def,
)
from xdsl.traits import IsTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from populus.dialects.stablehlo.attributes import ConvolutionDimensions, Named, Word
from populus.dialects.stablehlo.region_rules import verify_regions
from populus.dialects.stablehlo.shape_rules import RULES
from populus.dialects.support.diagnostics import PlainErrors

UNARY = """
abs cbrt ceil convert cosine count_leading_zeros exponential exponential_minus_one floor imag is_finite log log_plus_one logistic
negate not popcnt real round_nearest_afz round_nearest_even rsqrt sign sine sqrt tan tanh
"""
BINARY = """
add and atan2 complex divide maximum minimum multiply or power remainder shift_left shift_right_arithmetic shift_right_logical
subtract xor
"""
WINDOW = "window_dimensions:ints window_strides:ints? padding:table?"
OPS = f"""
after_all | tokens*
batch_norm_grad | operand scale mean variance grad_output | epsilon:float feature_index:int
batch_norm_inference | operand scale offset mean variance | epsilon:float feature_index:int
batch_norm_training | operand scale offset | epsilon:float feature_index:int
bitcast_convert | operand
broadcast | operand | broadcast_sizes:ints
broadcast_in_dim | operand | broadcast_dimensions:ints
case | index | | branches*
cholesky | a | lower:flag?
clamp | min operand max
compare | lhs rhs | comparison_direction:word compare_type:word?
composite | inputs* | name:text composite_attributes:any? decomposition:symbol version:int? | composite_regions*
concatenate | inputs* | dimension:int
constant | | value:any
convolution | lhs rhs | window_strides:ints? padding:table? lhs_dilation:ints? rhs_dilation:ints? window_reversal:bools?
  dimension_numbers:conv feature_group_count:int batch_group_count:int precision_config:any?
create_token |
custom_call | inputs* | call_target_name:text has_side_effect:flag? backend_config:any? api_version:any? called_computations:any?
  operand_layouts:any? result_layouts:any? output_operand_aliases:any?
dot | lhs rhs | precision_config:any?
dot_general | lhs rhs | dot_dimension_numbers:named precision_config:any? algorithm:any?
dynamic_slice | operand start_indices* | slice_sizes:ints
dynamic_update_slice | operand update start_indices*
einsum | lhs rhs | einsum_config:text
fft | operand | fft_type:word fft_length:ints
gather | operand start_indices | dimension_numbers:named slice_sizes:ints indices_are_sorted:flag?
get_dimension_size | operand | dimension:int
get_tuple_element | operand | index:int
if | pred | | true_branch false_branch
iota | | iota_dimension:int
map | inputs* | dimensions:ints | computation
optimization_barrier | operand*
pad | operand padding_value | edge_padding_low:ints edge_padding_high:ints interior_padding:ints
partition_id |
reduce | inputs* | dimensions:ints | body
reduce_precision | operand | exponent_bits:int mantissa_bits:int
reduce_window | inputs* | {WINDOW} base_dilations:ints? window_dilations:ints? | body
replica_id |
reshape | operand
return | results*
reverse | operand | dimensions:ints
rng | a b shape | rng_distribution:word
rng_bit_generator | initial_state | rng_algorithm:word
scatter | inputs* | scatter_dimension_numbers:named indices_are_sorted:flag? unique_indices:flag? | update_computation
select | pred on_true on_false
select_and_scatter | operand source init_value | {WINDOW} | select scatter
set_dimension_size | operand size | dimension:int
slice | operand | start_indices:ints limit_indices:ints strides:ints
sort | inputs* | dimension:int? is_stable:flag? | comparator
torch_index_select | operand index | dim:int batch_dims:int
transpose | operand | permutation:ints
triangular_solve | a b | left_side:flag lower:flag unit_diagonal:flag transpose_a:word
tuple | val*
unary_einsum | operand | einsum_config:text
uniform_dequantize | operand
uniform_quantize | operand
while | operand* | | cond body
dynamic_broadcast_in_dim | operand output_dimensions
  | broadcast_dimensions:ints known_expanding_dimensions:ints? known_nonexpanding_dimensions:ints?
dynamic_conv | lhs rhs padding | window_strides:ints? lhs_dilation:ints? rhs_dilation:ints? window_reversal:bools?
  dimension_numbers:conv feature_group_count:int batch_group_count:int precision_config:any?
dynamic_gather | operand start_indices slice_sizes | dimension_numbers:named indices_are_sorted:flag?
dynamic_iota | output_shape | iota_dimension:int
dynamic_pad | operand padding_value edge_padding_low edge_padding_high interior_padding
dynamic_reshape | operand output_shape
real_dynamic_slice | operand start_indices limit_indices strides
all_gather | operands* | all_gather_dim:int replica_groups:any channel_handle:any? use_global_device_ids:flag?
all_reduce | operands* | replica_groups:any channel_handle:any? use_global_device_ids:flag? | computation
all_to_all | operands* | split_dimension:int concat_dimension:int split_count:int replica_groups:any channel_handle:any?
collective_broadcast | operands* | replica_groups:any channel_handle:any?
collective_permute | operand | source_target_pairs:any channel_handle:any?
cross-replica-sum | operand | replica_groups:any
infeed | token | infeed_config:text? layout:any?
outfeed | inputs* | outfeed_config:text?
recv | token | channel_handle:any is_host_transfer:flag? source_target_pairs:any?
reduce_scatter | operand | scatter_dimension:int replica_groups:any channel_handle:any? use_global_device_ids:flag? | computation
send | inputs* | channel_handle:any is_host_transfer:flag? source_target_pairs:any?
"""
CHLO_UNARY = """
acos acosh asin asin_acos_kernel asinh atan atanh bessel_i1e conj constant_like cosh digamma erf erf_inv erfc is_inf is_neg_inf
is_pos_inf lgamma sinh square tan _asin_acos_kernel
"""
CHLO_BINARY = "next_after polygamma zeta"
CHLO_BROADCAST = """
add and atan2 complex divide maximum minimum multiply next_after or polygamma power remainder shift_left shift_right_arithmetic
shift_right_logical subtract xor zeta
"""
CHLO_OPS = """
broadcast_compare | lhs rhs | comparison_direction:word compare_type:word? broadcast_dimensions:ints?
broadcast_select | pred on_true on_false
top_k | operand | k:int
constant | | value:any
"""


@dataclass(frozen=True)
class Form:
    """A row of the table. `attributes`: name -> kind; `optional`: those that may be left out."""

    operands: tuple[str, ...]
    attributes: dict[str, str]
    optional: frozenset[str]
    regions: tuple[str, ...]

    def problem(self, what: str, names: tuple[str, ...], given: int) -> str | None:
        """Tells why a number of operands or regions is wrong; None if it is right."""
        several = any(n.endswith("*") for n in names)
        least = len(names) - several
        if given == least or (several and given > least):
            return None
        return f"the number of {what} is {given}; {'at least ' if several else ''}{least} expected{': ' if names else ''}{', '.join(names)}"


def numbers(value: object) -> tuple[Any, ...]:
    """Gives the elements of a list attribute, in row-major order."""
    match value:
        case DenseArrayBase():
            return tuple(cast("DenseArrayBase[Any]", value).get_values())
        case DenseIntOrFPElementsAttr():
            return tuple(cast("DenseIntOrFPElementsAttr[Any]", value).get_values())
        case ArrayAttr():
            return tuple(plain(v) for v in value)
        case _:
            raise VerifyException(f"a list of numbers is expected, found {value}")


def plain(value: object) -> Any:
    """Gives the Python value of an attribute: a number, a text, a list; the attribute itself for another."""
    match value:
        case Word():
            return value.word.data
        case IntegerAttr() | FloatAttr():
            return cast("Any", value).value.data
        case StringAttr():
            return value.data
        case SymbolRefAttr():
            return value.string_value()
        case UnitAttr():
            return True
        case DenseArrayBase() | DenseIntOrFPElementsAttr() | ArrayAttr():
            return numbers(cast("object", value))
        case _:
            return value


KINDS: dict[str, tuple[type[Attribute], ...]] = {
    "int": (IntegerAttr,),
    "float": (FloatAttr,),
    "flag": (IntegerAttr, UnitAttr),
    "text": (StringAttr,),
    "symbol": (SymbolRefAttr,),
    "word": (Word,),
    "named": (Named,),
    "conv": (ConvolutionDimensions,),
    "ints": (DenseArrayBase, DenseIntOrFPElementsAttr, ArrayAttr),
    "bools": (DenseArrayBase, DenseIntOrFPElementsAttr, ArrayAttr),
    "table": (DenseIntOrFPElementsAttr,),
    "any": (Attribute,),
}


class HloOp(PlainErrors, IRDLOperation, ABC):
    """The base of all ops of both dialects. `FORM`: its row of the table."""

    FORM: ClassVar[Form]
    inputs = var_operand_def(AnyAttr())
    outputs = var_result_def(AnyAttr())
    bodies = var_region_def()
    traits = traits_def(Pure())

    @property
    def kind(self) -> str:
        """The name without the dialect: `dot_general`."""
        return self.name.partition(".")[2]

    def stated(self, name: str) -> Attribute | None:
        """Gives an attribute, whether the text has it among the properties or among the attributes."""
        return self.properties.get(name, self.attributes.get(name))

    def get(self, name: str, default: Any = None) -> Any:
        """Gives an attribute as a Python value; `default` if it is left out."""
        found = self.stated(name)
        return default if found is None else plain(found)

    def body(self, i: int = 0) -> Block:
        """Gives the only block of a region."""
        return self.regions[i].block

    def verify_(self) -> None:
        form = self.FORM
        for what, names, given in (
            ("operands", form.operands, len(self.operands)),
            ("regions", form.regions, len(self.regions)),
        ):
            if why := form.problem(what, names, given):
                raise VerifyException(why)
        for name, kind in form.attributes.items():
            value = self.stated(name)
            if value is None and name not in form.optional:
                raise VerifyException(f"the attribute '{name}' is missing")
            if value is not None and not isinstance(value, KINDS[kind]):
                raise VerifyException(f"'{name}' is {value}, which is no {kind}")
        for i, region in enumerate(self.regions):
            last = region.blocks[0].last_op if len(region.blocks) == 1 else None
            if last is None or last.name != "stablehlo.return":
                name = form.regions[min(i, len(form.regions) - 1)].rstrip("*")
                raise VerifyException(f"the region '{name}' is one block that ends in stablehlo.return")
        verify_regions(self, form.regions)  # pyright: ignore[reportArgumentType], the file under its other name
        if (rule := RULES.get(self.kind)) is not None:
            rule(self)  # pyright: ignore[reportArgumentType], the file under its other name


def _form(operands: str, attributes: str = "", regions: str = "") -> Form:
    stated = [entry.partition(":") for entry in attributes.split()]
    kinds = {name: kind.rstrip("?") for name, _, kind in stated}
    optional = frozenset(name for name, _, kind in stated if kind.endswith("?"))
    return Form(tuple(operands.split()), kinds, optional, tuple(regions.split()))


def _rows(table: str) -> dict[str, Form]:
    joined = table.strip().replace("\n  ", " ")
    rows = [[part.strip() for part in line.split("|")] for line in joined.splitlines()]
    return {name: _form(*parts) for name, *parts in rows}


def _op(name: str, form: Form) -> type[HloOp]:
    fields: dict[str, Any] = {f"{a}_": opt_prop_def(AnyAttr(), prop_name=a) for a in form.attributes}
    ended = {"traits": traits_def(IsTerminator(), Pure())} if name == "stablehlo.return" else {}
    made = irdl_op_definition(type(name, (HloOp,), {"name": name, "__module__": __name__, **ended, **fields}))
    made.FORM = form
    return made


def _all() -> dict[str, type[HloOp]]:
    one, two = "operand", "lhs rhs"
    accuracy = "result_accuracy:any?"
    forms = {f"stablehlo.{n}": _form(one, accuracy) for n in UNARY.split()}
    forms |= {f"stablehlo.{n}": _form(two) for n in BINARY.split()}
    forms |= {f"stablehlo.{n}": form for n, form in _rows(OPS).items()}
    forms |= {f"chlo.{n}": _form(one, "value:any?") for n in CHLO_UNARY.split()}
    forms |= {f"chlo.{n}": _form(two) for n in CHLO_BINARY.split()}
    forms |= {f"chlo.broadcast_{n}": _form(two, "broadcast_dimensions:ints?") for n in CHLO_BROADCAST.split()}
    forms |= {f"chlo.{n}": form for n, form in _rows(CHLO_OPS).items()}
    return {name: _op(name, form) for name, form in forms.items()}


OP_CLASSES = _all()
ReturnOp = OP_CLASSES["stablehlo.return"]


def ops_of(dialect: str) -> list[type[Operation]]:
    """Lists the op classes of a dialect."""
    return [op for name, op in OP_CLASSES.items() if name.startswith(f"{dialect}.")]

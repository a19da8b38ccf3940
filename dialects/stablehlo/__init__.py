"""The `stablehlo` and `chlo` dialects: programs of XLA, JAX and others, as their texts state them."""

from xdsl.ir import Dialect

from populus.dialects.stablehlo.attributes import ATTRIBUTES
from populus.dialects.stablehlo.ops import ops_of

STABLEHLO = Dialect("stablehlo", ops_of("stablehlo"), [a for a in ATTRIBUTES if a.name.startswith("stablehlo.")])
CHLO = Dialect("chlo", ops_of("chlo"), [a for a in ATTRIBUTES if a.name.startswith("chlo.")])

"""Changes of whole graphs: `autodiff`; loads and stores that are merged."""

from populus.popxl.transforms.autodiff import ExpectedConnection, ExpectedConnectionType, GradGraphInfo, autodiff
from populus.popxl.transforms.exchange import decompose_sum, io_tile_exchange, merge_exchange

__all__ = [
    "ExpectedConnection",
    "ExpectedConnectionType",
    "GradGraphInfo",
    "autodiff",
    "decompose_sum",
    "io_tile_exchange",
    "merge_exchange",
]

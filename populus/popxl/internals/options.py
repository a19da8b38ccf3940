"""`IrView`: an Ir as `popart._internal.ir` shows it, with the session's options."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import ref

from populus.dialects.support.diagnostics import PopulusError
from populus.popart.settings import SessionOptions
from populus.popxl.internals.views import GraphView

if TYPE_CHECKING:
    from populus.popxl.ir import Ir

# What an Ir of PopXL begins with where `SessionOptions` begins with something else.
BEGINNING = {
    "aliasZeroCopy": True,
    "constantWeights": False,
    "enableExplicitMainLoops": True,
    "enableOutlining": False,
    "explicitRecomputation": True,
    "useHostCopyOps": True,
}


class IrOptions(SessionOptions):
    """The options of an Ir's sessions: these keep compiled programs and draw graphs, too."""

    HONOURED: ClassVar[frozenset[str]] = SessionOptions.HONOURED | {
        "cachePath",
        "dotChecks",
        "enableEngineCaching",
        "engineOptions",
        "logDir",
    }


class IrView:
    """An Ir: its graphs, its number and the options of its sessions."""

    def __init__(self, ir: Ir):
        self._ir, self._number = ref(ir), ir.id
        self._options = IrOptions()
        folder = os.environ.get("POPXL_CACHE_DIR") or os.environ.get("POPART_CACHE_DIR")
        cached = {} if folder is None else {"enableEngineCaching": True, "cachePath": folder}
        self._options.__dict__.update({**BEGINNING, **cached})

    @property
    def ir(self) -> Ir:
        """The Ir. Raises PopulusError if it is gone."""
        found = self._ir()
        if found is None:
            raise PopulusError(f"Ir {self._number} is gone; keep the Ir as long as what is inside it")
        return found

    def getId(self) -> int:
        """Gives the number of the Ir."""
        return self._number

    def getSessionOptions(self) -> SessionOptions:
        """Gives the options, to be set."""
        return self._options

    def getMainGraph(self) -> GraphView:
        """Gives the main graph."""
        return GraphView(self.ir.main_graph)

    def getAllGraphs(self) -> list[GraphView]:
        """Gives the graphs, the main one first."""
        return [GraphView(graph) for graph in self.ir.graphs]

    def getGraph(self, name: str) -> GraphView:
        """Gives a graph by its name; the main one for no name. Raises PopulusError if there is none."""
        for graph in self.getAllGraphs():
            if graph.id == name:
                return graph
        raise PopulusError(f"there is no graph '{name}'")

    def setDataFlow(self, flow: Any) -> None:
        """Takes the number of batches of a run from a `popart.DataFlow`."""
        self.ir.num_host_transfers = flow.batchesPerStep()

    def setPatterns(self, patterns: Any) -> None:
        """Accepts a choice of rewrites; Populus has its own."""

    def applyPreAliasPatterns(self, graph: Any) -> None:
        """Accepts the wish to rewrite a graph; passes do so when it is compiled."""

    def applyInplacePattern(self, graph: Any) -> None:
        """Accepts the wish to compute in place; a pass decides that when the graph is compiled."""

    def logIr(self) -> None:
        """Accepts the wish for a log of the graphs; `str(ir.module())` is one."""

    def updateVertices(self) -> None:
        """Accepts the wish to bring marks of ops up to date; there are none to."""

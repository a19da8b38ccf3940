"""Fusion (`popart-fuse`): one walk applies all patterns of `lowering/popart/patterns` and of loaded files."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import RewritePattern

from populus.dialects.support.dead_code import erase_dead
from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.dialects.support.walk import ops_of
from populus.lowering.popart.patterns import PATTERNS
from populus.lowering.popart.rewriting import loaded, rewrite


@dataclass(frozen=True)
class PopartFusePass(ModulePass):
    """Applies patterns until none matches, and erases unread ops.

    `patterns`: the names of the only patterns to apply; empty: all. `without`: names of patterns not to apply.
    `exact`: only patterns that keep results bit for bit. `prune`: also erase ops that were unread before. Raises
    PopulusError for an unknown name. Source: PopART's `Patterns`; patterns that PopART has too keep its names. To rounding.
    """

    name = "popart-fuse"

    patterns: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    exact: bool = False
    prune: bool = True

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        chosen = self.chosen(ctx)
        if self.prune:
            erase_dead(op.body.block, inside=True)
        for inner in ops_of(op):
            for block in (b for region in inner.regions for b in region.blocks if inner is not op):
                rewrite(block, chosen)

    def chosen(self, ctx: Context) -> list[RewritePattern]:
        """Returns the enabled patterns, those of loaded files first. Raises PopulusError for an unknown name."""
        known = {**dict.fromkeys(loaded(ctx)), **PATTERNS}
        for name in (*self.patterns, *self.without):
            if name not in known:
                raise PopulusError(f"there is no pattern '{name}'{did_you_mean(name, known)}")
        names = [n for n in known if (not self.patterns or n in self.patterns) and n not in self.without]
        classes: list[type[RewritePattern]] = [loaded(ctx).get(n) or PATTERNS[n]() for n in names]
        return [c() for c in classes if getattr(c, "EXACT", False) or not self.exact]

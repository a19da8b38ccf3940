"""Exporters of torch: nothing that they say while they work, and one line when they refuse."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import warnings
from collections.abc import Generator

from populus.dialects.support.diagnostics import PopulusError


@contextlib.contextmanager
def quiet() -> Generator[None, None, None]:
    """Discards what torch's exporters print, log and warn of."""
    made = [name for name in logging.root.manager.loggerDict if name.startswith(("torch.", "onnxscript."))]
    levels = [(logger, logger.level) for logger in map(logging.getLogger, ["torch", "torch.onnx", "onnxscript", *made])]
    try:
        for logger, _ in levels:
            logger.setLevel(logging.CRITICAL)
        with contextlib.ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in levels:
            logger.setLevel(level)


def refused(what: str, error: BaseException) -> PopulusError:
    """Gives the innermost reason of an exporter's error, in one line; an error of ours stays as it is."""
    chain: list[BaseException] = [error]
    while (inner := chain[-1].__cause__ or chain[-1].__context__) is not None and inner not in chain:
        chain.append(inner)
    for found in chain:
        if isinstance(found, PopulusError):
            return found
    if found := re.search(r"No ONNX function found for <OpOverload\(op='([^']+)'", " ".join(map(str, chain))):
        return PopulusError(f"torch.onnx cannot write {found[1]}; use other functions in its place")
    text = next((line for e in reversed(chain) for line in str(e).splitlines() if line.strip()), type(error).__name__)
    return PopulusError(f"{what}: {text.strip()}")

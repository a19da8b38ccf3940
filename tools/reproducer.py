"""Reproducers: a module as a failing pass met it, with the rest of the pipeline, in the form of `mlir-opt`."""

from __future__ import annotations

import json
import re
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.driver.files import text_of, write_module
from populus.lowering.driver.pipeline import Pipeline
from populus.tools.mlir_opt import flat_pipeline

RESOURCE = re.compile(r"\{-#\s*external_resources:\s*\{\s*mlir_reproducer:\s*\{(.*?)\}\s*\}\s*#-\}\s*\Z", re.DOTALL)
PIPELINE = re.compile(r'\bpipeline:\s*("(?:[^"\\]|\\.)*")')


def write_reproducer(module: ModuleOp, passes: Pipeline, path: str) -> None:
    """Writes a module, its stored constants beside it, and the passes to run on it. Raises PopulusError if the folder is not writable."""
    pipeline = json.dumps(f"builtin.module({','.join(str(passes).splitlines())})")
    resource = f"\n{{-#\n  external_resources: {{\n    mlir_reproducer: {{\n      pipeline: {pipeline}\n    }}\n  }}\n#-}}\n"
    write_module([module], text_of(module, locations=True) + resource, path)


def without_resource(text: str) -> str:
    """Returns a text without its reproducer, which other runs do not read; lines keep their numbers."""
    return RESOURCE.sub("", text)


def pipeline_of(path: str) -> str:
    """Returns the passes in a reproducer, as `-p` has them. Raises PopulusError for a file without."""
    try:
        text = Path(path).read_text(errors="replace")
    except OSError as error:
        raise PopulusError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    resource = RESOURCE.search(text)
    found = resource and PIPELINE.search(resource[1])
    if not found:
        raise PopulusError(f"{path}: no reproducer, which --mlir-pass-pipeline-crash-reproducer writes, at its end")
    try:
        return flat_pipeline(json.loads(found[1], strict=False))
    except ValueError as error:
        raise PopulusError(f"{path}: the pipeline {found[1][:80]} is no string") from error

"""`populus-opt FILE [-p PIPELINE]`: runs passes on a module (`.mlir`) or a model (`.onnx`) and writes the resulting module."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from io import BytesIO, StringIO
from pathlib import Path
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import DiagnosticException, ParseError
from xdsl.xdsl_opt_main import VersionAction, xDSLOptMain

from populus.dialects.data import Handle, blobs_of, load_blobs, save_blobs
from populus.dialects.poplar.target import PRESETS
from populus.dialects.support.diagnostics import PopulusError, did_you_mean, no_file, verify
from populus.dialects.support.errors import printable
from populus.dialects.support.output_files import check_places, replacing
from populus.dialects.table import DIALECTS
from populus.lowering.driver import extensions
from populus.lowering.driver.content_hash import content_hash
from populus.lowering.driver.files import decode, in_file, parse_message, text_of, weights_beside, write_module
from populus.lowering.driver.legality import verify_legal
from populus.lowering.driver.passes import PASSES
from populus.lowering.driver.phases import PHASES
from populus.lowering.driver.pipeline import Pipeline, Timing
from populus.lowering.stablehlo.importer import needs_jaxlib, read_text
from populus.lowering.stablehlo.jaxlib_reader import generic_text
from populus.tools.command import ArgumentParser, SourceError, UsageError, dims_of, is_file, of_arguments, reporting
from populus.tools.completion import CompletionAction
from populus.tools.formats import TARGETS, WRITERS
from populus.tools.judges import judging
from populus.tools.mlir_opt import TOPICS, Expected, check_expected, dump, expected_errors, flat_pipeline, logging_of, source_line
from populus.tools.reproducer import pipeline_of, without_resource, write_reproducer
from populus.write.nets import model_path


class _Kept(StringIO):
    """A text buffer that survives being closed by xDSL's driver."""

    def close(self) -> None:
        pass


class ListPasses(argparse.Action):
    """Prints the passes with the first lines of their docstrings, and exits."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None):
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, namespace: object, values: object, option_string: str | None = None) -> None:
        for name, load in PASSES.items():
            print(f"{name:24}{(load().__doc__ or '').strip().partition(chr(10))[0]}")
        parser.exit()


class PopulusOpt(xDSLOptMain):
    """xDSL's driver with our frontends, pipelines and messages; large weights go to a separate file."""

    version_format = "populus-opt on xDSL {xdsl_version}"

    def __init__(self, args: Sequence[str]):
        self.available_frontends = {}
        self.available_passes = {}
        self.available_targets = {}
        self.ctx = Context()
        self.modules: list[ModuleOp] = []
        self.blobs: list[Handle] = []
        self.timings: list[Timing] = []
        self.text = _Kept()
        self._line = 0
        self.register_all_dialects()
        self.register_all_frontends()
        self.register_all_passes()
        self.register_all_targets()
        parser = ArgumentParser(prog="populus-opt", description=__doc__)
        self.register_all_arguments(parser)
        # Not values for argparse, which would take the file for one.
        self.judge = next((a.partition("=")[2] for a in args if a in ("--verify-each=run", "--verify-each=prove")), None)
        self.args = parser.parse_args(["--verify-each" if a.startswith("--verify-each=") and self.judge else a for a in args])
        if self.args.input_file is not None:
            self.args.input_file = None if self.args.input_file == "-" else model_path(self.args.input_file)
        self.ctx.allow_unregistered = self.args.allow_unregistered_dialect
        for extension in (*extensions.installed(), *map(extensions.read, self.args.load)):
            extension.register(self.ctx)
            self.available_passes.update(extension.passes)
        if self.args.target not in TARGETS:
            name = self.args.target.partition(",")[0]
            if name in PRESETS:
                where = f"a machine is an option of passes, such as -p 'poplin-to-poplar{{target={name} tiles=64}}'"
                raise UsageError(f"no output format '{self.args.target}'; {where}")
            raise UsageError(f"no output format '{self.args.target}'{did_you_mean(self.args.target, TARGETS)}")
        if self.args.run_reproducer or (self.args.pipeline is not None and is_file(self.args.pipeline)):
            self.passes = self._pipeline()  # what is wrong in a file is no mistake of the arguments
        else:
            with of_arguments():
                self.passes = self._pipeline()

    def register_all_arguments(self, arg_parser: argparse.ArgumentParser) -> None:
        add = arg_parser.add_argument
        add("input_file", nargs="?", help="a .mlir or .onnx file; standard input (.mlir) without one, or for -")
        passes = ", ".join(PASSES)
        add("-p", "--passes", metavar="PIPELINE", help=f"passes as name{{option=value}},name,...: ours ({passes}) or xDSL's")
        add("--pass-pipeline", metavar="PIPELINE", help="passes as mlir-opt has them: 'builtin.module(cse,popops-fuse)'")
        add("--pipeline", metavar="NAME|FILE", help="a named pipeline (inference, inference-plain) or a file with one")
        add("--print-completion", action=CompletionAction, metavar="SHELL", help="print completion for bash, zsh, tcsh or fish, and exit")
        add("--list-passes", action=ListPasses, help="print our passes, one per line, and exit")
        add("--start-at", metavar="PHASE|PASS", help=f"skip the passes before a phase ({', '.join(PHASES)}) or a pass")
        add("--stop-after", metavar="PHASE|PASS", help="skip the passes after a phase or a pass")
        add("--replace-phase", action="append", default=[], metavar="PHASE=PIPELINE", help="replace the passes of a phase, as for -p")
        add("--verify-legal", metavar="TARGET", help="fail unless a target supports every op of the resulting module")
        add("--audit-op", metavar="NAME", help="print the effect of each pass and engine on an op, and exit")
        add("--pass-statistics", action="store_true", help="print to standard error the passes that changed something, and op counts")
        add("--print-pipeline", action="store_true", help="print the passes that would run, and exit")
        add("--load", action="append", default=[], metavar="FILE.py", help="load ops and passes from a Python file")
        add("--dim", action="append", default=[], metavar="NAME=N", help="size of a symbolic dimension of an ONNX model, or LOW..HIGH")
        add("-o", "--output-file", metavar="FILE", help="write here, with locations; stored constants go to a .safetensors file next to it")
        add("--weights", metavar="FILE", help="read stored constants from this file instead of the one next to the input")
        add("--save-weights", metavar="FILE", help="write stored constants to this file")
        add("--dump-dir", metavar="DIR", help="write the module after each pass to a numbered file in this folder")
        add("--verify-each", action="store_true", help="verify the module after each pass; =run: also run it; =prove: prove it")
        add("--prove-rewrites", action="store_true", help="prove each rewrite of a pattern; fail at a wrong one, tell the others to stderr")
        add("--disable-verify", action="store_true", help="do not verify the module before, between and after the passes")
        add("--mlir-print-ir-after-all", "--print-between-passes", action="store_true", help="print the module after each pass, to stderr")
        add("--mlir-print-ir-after-failure", action="store_true", help="print the module that a failing pass leaves, to standard error")
        add("--mlir-print-ir-after-change", action="store_true", help="print the module after each pass that changed it, to stderr")
        add("--mlir-pass-pipeline-crash-reproducer", metavar="FILE", help="if a pass fails, write the module before it and the passes left")
        add("--run-reproducer", action="store_true", help="run the passes that a reproducer has at its end")
        add("--debug-only", metavar="TOPIC", choices=TOPICS, help="log to stderr what a pass does: popart-fuse, each pattern on each op")
        add("--time-passes", action="store_true", help="print the time of each pass to standard error")
        add("--debug", action="store_true", help="show a traceback when something fails")
        add("-f", "--frontend", choices=sorted(self.available_frontends), help="format of the input, regardless of its suffix")
        add("-t", "--target", default="mlir", metavar="FORMAT", help="; ".join(f"{n}: {what}" for n, what in TARGETS.items()))
        add("--split-input-file", action="store_true", help="process each part between `// -----` lines separately")
        add("--print-op-generic", action="store_true", help="print ops in their generic form")
        add("--print-debuginfo", action="store_true", help="print the location of each op")
        add("--allow-unregistered-dialect", action="store_true", help="accept ops of unknown dialects")
        add("--verify-diagnostics", action="store_true", help="expect errors, as `// expected-error {{text}}` says; print others")
        add("-v", "--version", action=VersionAction, version_format=self.version_format)
        arg_parser.set_defaults(syntax_highlight=False, print_no_properties=False)  # options that xDSL's driver reads

    def register_all_dialects(self) -> None:
        super().register_all_dialects()
        for name, dialect in DIALECTS.items():  # already registered if Populus is installed, but not if it runs from its folder
            if name not in self.ctx.registered_dialect_names:
                self.ctx.register_dialect(name, dialect)

    def register_all_passes(self) -> None:
        super().register_all_passes()
        self.available_passes.update(PASSES)

    def register_all_frontends(self) -> None:
        self.available_frontends |= {"mlir": self.parse_mlir, "onnx": self.parse_onnx}

    def parse_mlir(self, io: IO[bytes]) -> ModuleOp:
        name = self.get_input_name()
        if dims_of(self.args.dim):
            raise PopulusError(f"{name} has no symbolic dimensions; --dim is for ONNX models")
        if self.args.weights is not None:
            self.blobs = load_blobs(self.args.weights)
        elif self.args.input_file is not None and not self.blobs:
            self.blobs = weights_beside(self.args.input_file)
        content = io.read()
        text = generic_text(content, name) if needs_jaxlib(content) else decode(content, name)
        text = "\n" * self._line + without_resource(text)  # so that locations in a part have the file's line numbers
        try:
            return read_text(self.ctx, text, name)
        except ParseError as error:
            message = parse_message(error)
            raise SourceError(message, source_line(error)) from error

    def run(self) -> None:
        if self.args.output_file == "-":  # as in mlir-opt
            self.args.output_file = None
        check_places([self.args.output_file, self.args.save_weights, self.args.mlir_pass_pipeline_crash_reproducer])
        chunks, extension = self.prepare_input()
        output = self.prepare_output()
        for i, (chunk, offset) in enumerate(chunks):
            output.write("// -----\n" if i else "")
            with chunk:
                output.write(self._processed(chunk, extension, offset))
            output.flush()

    def _processed(self, chunk: IO[bytes], extension: str, offset: int) -> str:
        """Reads a part of the input, runs the passes, and gives the text of the result.

        Raises DiagnosticException, unless --verify-diagnostics is given and the error is the expected one.
        """
        expected: list[Expected] = []
        if self.args.verify_diagnostics and extension == "mlir":
            content = chunk.read()
            expected, chunk = expected_errors(decode(content, self.get_input_name()), offset), BytesIO(content)
        try:
            module = self.parse_chunk(chunk, extension, offset)
            assert module is not None, extension
            self.apply_passes(module)
            text = self.output_resulting_program(module)
        except DiagnosticException as error:
            if not self.args.verify_diagnostics:
                raise
            if expected:
                check_expected(expected, " ".join(str(error).split()), self.get_input_name())
            else:
                print(*(printable(str(line)) for line in (error, *getattr(error, "__notes__", ()))), sep="\n")
            return ""
        if expected:
            check_expected(expected, None, self.get_input_name())
        return text

    def parse_chunk(self, chunk: IO[bytes], file_extension: str, start_offset: int = 0) -> ModuleOp | None:
        self._line = start_offset
        return super().parse_chunk(chunk, file_extension, start_offset)

    def parse_onnx(self, io: IO[bytes]) -> ModuleOp:
        from populus.lowering.onnx.custom_ops import custom_ops
        from populus.lowering.onnx.importer import import_onnx

        if self.args.input_file is None:
            raise PopulusError("give the path of an ONNX model, because its weights may be in other files of the folder")
        if self.args.weights is not None:
            raise PopulusError(f"{self.args.input_file} states where its weights are; --weights is for modules")
        return import_onnx(self.args.input_file, dims=dims_of(self.args.dim), customs=custom_ops(self.ctx))

    def prepare_input(self) -> tuple[list[tuple[IO[bytes], int]], str]:
        name = self.args.input_file
        if name is not None:
            if not Path(name).is_file():
                raise PopulusError(no_file(name) if not Path(name).exists() else f"{name}: not a file")
            if self.args.frontend is None and Path(name).suffix not in (".mlir", ".onnx"):
                raise PopulusError(f"{name}: neither .mlir nor .onnx; state the format with -f")
        return super().prepare_input()

    def prepare_output(self) -> IO[str]:
        return sys.stdout if self.args.output_file is None else self.text

    def apply_passes(self, prog: ModuleOp) -> None:
        rewrites = "rewrites" if self.args.prove_rewrites else None
        with in_file(self.args.input_file), logging_of(self.args.debug_only), judging(self.judge), judging(rewrites) as judge:
            self._apply_passes(prog)
        for line in judge.lines():
            print(printable(line), file=sys.stderr)

    def _apply_passes(self, prog: ModuleOp) -> None:
        names = [p.name for p in self.passes.passes]
        started: list[str] = []
        changes, reproducer = self.args.mlir_print_ir_after_change, self.args.mlir_pass_pipeline_crash_reproducer
        seen, kept = content_hash(prog) if changes else "", prog

        def progress(i: int, name: str) -> None:
            nonlocal seen, kept
            if started and changes and (now := content_hash(prog)) != seen:
                seen = now
                dump(f"After {started[-1]}", prog, debuginfo=self.args.print_debuginfo)
            elif started and self.args.mlir_print_ir_after_all and not changes:
                dump(f"After {started[-1]}", prog, debuginfo=self.args.print_debuginfo)
            if reproducer is not None:
                kept = prog.clone()
            started.append(name)

        self._verify(prog)
        try:
            self.passes.run(
                self.ctx,
                prog,
                verify_each=self.args.verify_each and not self.args.disable_verify,
                dump=self.args.dump_dir,
                timings=self.timings,
                statistics=self.args.pass_statistics,
                progress=progress,
            )
            progress(len(names), "the end")
            self._verify(prog, names)
        except Exception:
            if self.args.mlir_print_ir_after_failure or self.args.mlir_print_ir_after_all:
                dump(f"After {started[-1]} Failed" if started else "Before the passes Failed", prog, debuginfo=self.args.print_debuginfo)
            if reproducer is not None and 0 < len(started) <= len(names):
                write_reproducer(kept, Pipeline(self.passes.passes[len(started) - 1 :]), reproducer)
                again = " ".join(["--run-reproducer", *(f"--load {file}" for file in self.args.load)])
                line = f"populus-opt: {reproducer} has the module before {started[-1]}, and the passes left for {again}"
                print(printable(line), file=sys.stderr)
            raise
        if self.args.verify_legal is not None:
            verify_legal(prog, self.args.verify_legal)

    def _verify(self, prog: ModuleOp, ran: Sequence[str] = ()) -> None:
        """Verifies the module, unless this is disabled. Raises PopulusError, which lists the passes that ran."""
        if self.args.disable_verify:
            return
        try:
            verify(prog)
        except PopulusError as error:
            raise PopulusError(f"{error}" + (f" (after {', '.join(ran)}; --verify-each says which)" if ran else "")) from error

    def output_resulting_program(self, prog: ModuleOp) -> str:
        self.modules.append(prog)
        if self.args.target in WRITERS:
            text = StringIO()
            WRITERS[self.args.target](prog, text)
            return text.getvalue()
        if self.args.output_file is not None and not self.args.print_op_generic:
            return text_of(prog, locations=True)
        return super().output_resulting_program(prog)

    def finish(self) -> None:
        """Writes the files, once nothing can fail any more."""
        if self.args.output_file is not None:
            write_module(self.modules, self.text.getvalue(), self.args.output_file)
        if self.args.save_weights is not None:
            stored = {key: handle for module in self.modules for key, handle in blobs_of(module).items()}
            with replacing(self.args.save_weights) as path:
                save_blobs(stored, path)
        if self.args.time_passes:
            print(times(self.timings), file=sys.stderr)
        if self.args.pass_statistics:
            print(statistics(self.timings), file=sys.stderr)

    def _pipeline(self) -> Pipeline:
        given = [o for o in ("passes", "pipeline", "pass_pipeline", "run_reproducer") if getattr(self.args, o) not in (None, False)]
        if len(given) > 1:
            options = " and ".join({"passes": "-p"}.get(o, f"--{o.replace('_', '-')}") for o in given)
            raise UsageError(f"{options} are both given; write the passes into one of them")
        if self.args.run_reproducer:
            if self.args.input_file is None:
                raise UsageError("--run-reproducer reads the passes from a file; give its path")
            passes = Pipeline.from_text(pipeline_of(self.args.input_file), self.available_passes, self.args.input_file)
        elif self.args.pipeline is not None:
            passes = Pipeline.read(self.args.pipeline, self.available_passes)
        else:
            text = self.args.passes or "" if self.args.pass_pipeline is None else flat_pipeline(self.args.pass_pipeline)
            passes = Pipeline.from_text(text, self.available_passes, "-p" if self.args.pass_pipeline is None else "--pass-pipeline")
        for text in self.args.replace_phase:
            phase, equals, other = text.partition("=")
            if not equals:
                raise UsageError(f"--replace-phase {text}: expected PHASE=PIPELINE, such as allocate=poplar-map,poplar-allocate")
            passes = passes.replace_phase(phase, Pipeline.from_text(other, self.available_passes, "--replace-phase"))
        if self.args.stop_after is not None:
            passes = passes.until(self.args.stop_after)
        if self.args.start_at is not None:
            passes = passes.since(self.args.start_at)
        passes.check("-p" if self.args.pipeline is None else f"pipeline '{self.args.pipeline}'")
        return passes


def times(timings: Sequence[Timing]) -> str:
    """Formats a table of the passes that ran: seconds, share of the total, ops before and after."""
    total = sum(t.seconds for t in timings)
    width = max([len(t.name) for t in timings], default=4)
    lines = [f"{'pass':{width}}  seconds  share  ops"]
    for t in timings:
        lines.append(f"{t.name:{width}} {t.seconds:8.3f} {t.seconds / max(total, 1e-9):6.1%}  {t.ops_before} -> {t.ops_after}")
    return "\n".join([*lines, f"{'all':{width}} {total:8.3f}"])


def statistics(timings: Sequence[Timing]) -> str:
    """Formats a table of the passes that ran: changed or not, ops before and after."""
    width = max([len(t.name) for t in timings], default=4)
    rows = [f"{t.name:{width}}  {'yes' if t.changed else 'no':7}  {t.ops_before} -> {t.ops_after}" for t in timings]
    return "\n".join([f"{'pass':{width}}  changed  ops", *rows])


def main(argv: list[str] | None = None) -> int:
    """Runs the command; gives 0 on success, and 1 with one line on stderr on failure."""
    args = sys.argv[1:] if argv is None else argv
    return reporting("populus-opt", args, _run)


def _run(args: Sequence[str]) -> int:
    tool = PopulusOpt(args)
    if tool.args.audit_op is not None:
        from populus.tools.audit_op import audit, table

        passes = tool.passes if len(tool.passes) else Pipeline.named("inference", tool.available_passes)
        print(table(audit(tool.ctx, tool.args.audit_op, passes)))
        return 0
    if tool.args.print_pipeline:
        print(tool.passes)
        return 0
    tool.run()
    tool.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())

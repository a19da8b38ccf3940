"""Shared code of the command-line tools: arguments and failures that are reported in one line."""

from __future__ import annotations

import argparse
import errno
import math
import os
import re
import signal
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from functools import partial
from typing import Any, NoReturn

from xdsl.utils.exceptions import ArgSpecParseError, DiagnosticException, ParseError, UnregisteredConstructException

from populus.dialects.support.diagnostics import PopulusError, PopulusWarning, command_line, did_you_mean
from populus.dialects.support.errors import printable
from populus.dialects.support.shapes import is_size
from populus.dialects.support.users_line import is_ours
from populus.lowering.driver.files import parse_message
from populus.write.nets import KNOWN, model_path, net


class Proposed(tuple[str, ...]):
    """The values of an option that completion proposes. Another one is checked by its user, as a loaded file may define it."""

    __slots__ = ()

    def __contains__(self, value: object) -> bool:
        return True


class UsageError(PopulusError):
    """A mistake in the arguments of a command: exit status 2."""


class SourceError(PopulusError):
    """A mistake in a text. `source`: its line, with a caret under the place; printed below the message."""

    def __init__(self, message: str, source: str):
        super().__init__(message)
        self.source = source


class _Help(argparse.HelpFormatter):
    """Help that breaks no name at its hyphens."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return textwrap.fill(" ".join(text.split()), width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


SAME = (("--target", "--machine"),)  # options of some commands that others call otherwise


class ArgumentParser(argparse.ArgumentParser):
    """An argparse parser that raises a UsageError for a mistake, instead of printing the usage; no option has an empty value."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **{"formatter_class": _Help, **options})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        found, rest = super().parse_known_args(args, namespace)
        for action in self._actions:
            value = getattr(found, action.dest, None)
            if action.nargs != argparse.REMAINDER and (value == "" or (isinstance(value, list) and "" in value)):
                self.error(f"argument {'/'.join(action.option_strings) or action.metavar or action.dest}: the value is empty")
        options = [name for action in self._actions for name in action.option_strings]
        for name in (text.partition("=")[0] for text in rest if text.startswith("--")):
            others = [other for pair in SAME if name in pair for other in pair if other in options]
            if near := others or get_close_matches(name, options, 1, 0.75):
                self.error(f"no option '{name}'; did you mean '{near[0]}'?")
        return found, rest

    def _print_message(self, message: str, file: Any = None) -> None:
        """Prints the help; argparse passes over an output that takes none."""
        if message:
            (file or sys.stderr).write(message)
            (file or sys.stderr).flush()

    def error(self, message: str) -> NoReturn:
        if found := re.fullmatch(r"argument (\S+): invalid choice: '?(.*?)'? \(choose from (.*)\)", message):
            where, wrong, choices = found[1], found[2], [c.strip(" '") for c in found[3].split(",")]
            what = "command" if where == "COMMAND" else f"{where} choice"
            message = f"no {what} '{wrong}'{did_you_mean(wrong, choices)}"
        raise UsageError(f"{message} (--help lists the {'commands' if message.startswith('no command') else 'options'})")


@contextmanager
def of_arguments() -> Generator[None, None, None]:
    """Makes a PopulusError of the block one about the arguments of the command: exit status 2."""
    try:
        yield
    except UsageError:
        raise
    except PopulusError as error:
        raise UsageError(str(error)) from error


def is_file(pipeline: str) -> bool:
    """Tells whether the value of --pipeline is the name of a file, whose content, or lack, is no mistake of the arguments."""
    return os.path.exists(pipeline) or "." in pipeline or os.sep in pipeline


def whole(least: int) -> Callable[[str], int]:
    """Makes the type of an option that is a whole number from `least` on."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,18}", text) or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected a whole number from {least} on, found '{text}'")
        return int(text)

    return parse


def known_to(look_up: Callable[[str], object]) -> Callable[[str], str]:
    """Makes the type of an option that is a name: one for which `look_up` raises no PopulusError."""

    def parse(text: str) -> str:
        try:
            look_up(text)
        except PopulusError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
        return text

    return parse


def amount(text: str) -> float:
    """Parses an option that is a finite number from 0 on."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number from 0 on, found '{text}'")
    return found


def group(parser: argparse.ArgumentParser, title: str) -> Callable[..., argparse.Action]:
    """Returns the `add_argument` of a group of options with a title in the help, which is made where there is none yet."""
    found = next((g for g in parser._action_groups if g.title == title), None)  # pyright: ignore[reportPrivateUsage]
    return (found or parser.add_argument_group(title)).add_argument


def add_model(parser: argparse.ArgumentParser, help: str) -> None:
    """Adds the argument MODEL; `--example NAME` is another spelling of it, for nets by name."""
    parser.add_argument("model", nargs="?", action=_Model, metavar="MODEL", help=help)
    parser.add_argument("--example", choices=KNOWN, metavar="NAME", help=f"a net by name as the MODEL: {', '.join(KNOWN)}")
    checks = parser.get_default("checks") or ()
    parser.set_defaults(checks=(*checks, _require_model))


class _Model(argparse.Action):
    """Stores the path that MODEL stands for: a file, or a net by name."""

    def __call__(self, parser: object, namespace: argparse.Namespace, values: Any, option_string: str | None = None) -> None:
        namespace.model = values
        if values is not None:
            namespace.model = path = model_path(values)
            stands_for(path, values)


_TYPED: dict[str, str] = {}  # the names that users typed, by the paths that they stand for


def stands_for(path: str | os.PathLike[str], name: str) -> None:
    """Makes messages say what the user typed in the place of a path."""
    if str(path) != str(name):
        _TYPED[str(path)] = typed(str(name))


def typed(text: str) -> str:
    """Puts the names that the user typed, such as `vgg19`, in the place of the paths that they stand for."""
    for path, name in _TYPED.items():
        text = text.replace(path, name)
    return text


def _require_model(args: argparse.Namespace) -> None:
    """Raises UsageError unless there is either MODEL or --example."""
    if args.model is not None and args.example is not None:
        raise UsageError("MODEL and --example are both given; state one of them")
    if args.model is None and args.example is None:
        raise UsageError("the following arguments are required: MODEL (--help lists the options)")
    if args.example is not None:
        args.model = str(net(args.example))
        _TYPED[args.model] = args.example


def dims_of(texts: Sequence[str]) -> dict[str, int | tuple[int, int]]:
    """Parses `["batch=4", "seq=1..512"]` to `{"batch": 4, "seq": (1, 512)}`.

    Raises UsageError unless each text is NAME=N or NAME=LEAST..GREATEST, with whole numbers.
    """
    dims: dict[str, int | tuple[int, int]] = {}
    for text in texts:
        name, equals, size = text.rpartition("=")
        numbers = size.split("..")
        if not equals or not name or len(numbers) > 2 or not all(is_size(n) for n in numbers):
            raise UsageError(f"--dim {text}: expected NAME=N or NAME=LEAST..GREATEST, such as --dim batch=1 or --dim seq=1..512")
        dims[name] = int(numbers[0]) if len(numbers) == 1 else (int(numbers[0]), int(numbers[1]))
    return dims


def bounds_of(texts: Sequence[str]) -> dict[str, int]:
    """Parses `["loop=64"]` to `{"loop": 64}`. Raises UsageError unless each text is NAME=N."""
    bounds: dict[str, int] = {}
    for text in texts:
        name, equals, most = text.rpartition("=")
        if not equals or not name or not is_size(most):
            raise UsageError(f"--bound {text}: expected NAME=N, the most iterations of the Loop NAME, such as --bound decode=64")
        bounds[name] = int(most)
    return bounds


def buckets_of(text: str) -> list[int]:
    """Parses `"64,128,512"` to `[64, 128, 512]`. Raises UsageError unless these are whole numbers."""
    parts = [part.strip() for part in text.split(",")]
    if not all(is_size(part) for part in parts):
        raise UsageError(f"--buckets {text}: expected N,N,.., such as --buckets 64,128,512")
    return [int(part) for part in parts]


def values_of(texts: Sequence[str]) -> dict[str, Any]:
    """Parses `["sr=16000", "axes=0,1"]` to `{"sr": 16000, "axes": [0, 1]}`.

    Raises UsageError unless each text is NAME=V, where V is a number, true, false, or several of these.
    """
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, given = text.partition("=")
        try:
            found = [_number(part.strip()) for part in given.split(",")]
        except ValueError:
            found = []
        if not equals or not name or not found:
            raise UsageError(f"--value {text}: expected NAME=V with a number, true or false, such as --value sr=16000, or several: 0,1")
        values[name] = found if "," in given else found[0]
    return values


def _number(text: str) -> bool | int | float:
    """Parses a number or boolean. Raises ValueError for another text."""
    if text in ("true", "false"):
        return text == "true"
    if set(text) & set(".en"):
        return float(text)
    if not is_size(text.removeprefix("-")):
        raise ValueError(text)
    return int(text)


def reporting(tool: str, args: Sequence[str], body: Callable[[Sequence[str]], int]) -> int:
    """Runs a tool's body; an exception becomes one line on stderr and exit status 1, or propagates with `--debug`.

    A mistake in the arguments gives 2, and one in a module's text also the line of the text.

    A warning of ours is one line on stderr, too. A closed standard output is refused: a file would get its number. So would it for errors.
    """
    stdout, stderr = (getattr(sys, name) for name in ("stdout", "stderr"))  # None if closed
    if stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if stdout is None:
        print(f"{tool}: standard output is closed; expected a file, a pipe or {os.devnull}", file=sys.stderr)
        return 1
    try:
        if strange := [a for a in args if "\0" in a]:
            raise PopulusError(f"argument {strange[0]!r} has a NUL character, which paths and names must not have")
        if (reconfigure := getattr(sys.stdout, "reconfigure", None)) is not None:
            reconfigure(errors="backslashreplace")  # a stream of ASCII, and a name that is not
        with warnings.catch_warnings():
            warnings.showwarning = partial(_warned, tool, warnings.showwarning)
            with command_line(), _terminable():
                status = body(args)
                sys.stdout.flush()  # which may fail
                return status
    except BrokenPipeError:  # the reader closed the pipe
        sys.stderr.close()
        return 1
    except KeyboardInterrupt:
        print(f"{tool}: interrupted", file=sys.stderr)
        return 130
    except Terminated:
        print(f"{tool}: terminated", file=sys.stderr)
        return 143
    except (Exception, ArgSpecParseError) as error:
        _without_output()
        if "--debug" in args:
            raise
        if not _left_to_others(line_of(tool, error)):
            print(line_of(tool, error), file=sys.stderr)
            if isinstance(error, SourceError) and error.source:
                print(printable(error.source), file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1


def _without_output() -> None:
    """Drops what standard output does not take: Python would try it again when the process ends."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError, ValueError):
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, sys.stdout.fileno())
            os.close(nothing)


def _left_to_others(line: str) -> bool:
    """Tells whether the line of a failure is printed by another rank of `mpiexec`.

    A process that is alone imports nothing for it: memory or files may just be what fails.
    """
    if "populus.runtime.ranks" not in sys.modules and not _launched():
        return False
    from populus.runtime import ranks

    return ranks.failed(line)


def _launched() -> bool:
    """Tells whether a launcher of MPI has started this process."""
    return any(name.endswith(("COMM_WORLD_SIZE", "PMI_SIZE")) for name in os.environ)


class Terminated(BaseException):
    """SIGTERM reached the process."""


@contextmanager
def _terminable() -> Generator[None, None, None]:
    """Makes SIGTERM raise Terminated, so that half-written files are removed. The second one ends the process at once.

    It stays as it is in other threads, where somebody handles it, and for ranks of MPI: they wait outside of Python for each other.
    Python only prints what a handler raises in a destructor or in a hook of a fork. Such a signal, or Ctrl-C, comes again.
    """
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not ours or _launched():
        yield
        return

    def stop(number: int, frame: object) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise Terminated

    def dropped(what: sys.UnraisableHookArgs) -> None:
        number = numbers.get(what.exc_type)
        if number is None:
            other(what)
            return
        if number is signal.SIGTERM:
            signal.signal(number, stop)
        again = threading.Timer(0.01, os.kill, (os.getpid(), number))
        again.daemon = True
        again.start()

    numbers: dict[type[BaseException], signal.Signals] = {Terminated: signal.SIGTERM, KeyboardInterrupt: signal.SIGINT}
    other = sys.unraisablehook
    signal.signal(signal.SIGTERM, stop)
    sys.unraisablehook = dropped
    try:
        yield
    finally:
        sys.unraisablehook = other
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _warned(
    tool: str, other: Callable[..., None], message: Warning | str, category: type[Warning], file: str, line: int, *rest: Any
) -> None:
    if issubclass(category, PopulusWarning):
        place = "" if is_ours(file) else f"{file}:{line}: "  # of a user's program
        print(printable(f"{tool}: {place}{' '.join(str(message).split())}"), file=sys.stderr)
    else:
        other(message, category, file, line, *rest)


def line_of(tool: str, error: BaseException) -> str:
    """Formats any exception as one line for the user. Internal errors are marked as such."""
    match error:
        case ParseError():
            message = parse_message(error)
        case DiagnosticException() | UnregisteredConstructException():
            message = str(error)
        case MemoryError():
            message = f"out of memory {error}"
        case OSError() if error.errno == errno.ENOMEM:
            message = "out of memory"
        case OSError() if error.filename is None and error.errno in _LIMITS:
            message = f"the system refused a write or a file: {os.strerror(error.errno).lower()}"
        case OSError() if error.filename is not None:
            message = f"{error.filename}: {(error.strerror or str(error)).lower()}"
        case _:
            notes = [f" {note}" for note in getattr(error, "__notes__", []) if note.startswith("in the pass ")]
            message = f"internal error{''.join(notes)}: {type(error).__name__}: {error} (--debug shows where)"
    return printable(f"{tool}: {_shortened(typed(' '.join(message.split())))}")


_LIMITS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EMFILE, errno.ENFILE)
LONGEST = 300
"""Characters of a message. A name in a file may have any number of them."""


def _shortened(message: str) -> str:
    """Cuts the middle of names in a long message, and then that of the message."""
    if len(message) > LONGEST:
        message = re.sub("'([^']{40,})'", lambda found: f"'{_ends(found[1], 40)}'", message)
    return _ends(message, LONGEST)


def _ends(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most * 2 // 3]}..{text[-(most // 3) + 2 :]}"

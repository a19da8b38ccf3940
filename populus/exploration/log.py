"""The log of an exploration: a line of JSON for each point, appended whole, so that a run that ends at any moment can be resumed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.output_files import check_places

VERSION = 1
LARGEST = 1 << 30  # bytes of a log to read


class Log:
    """An append-only file of lines. The first states of what space it is; the others have a point each.

    Each line is one write to the end of the file. The last line of a run that was killed may be half of one: it is cut off.
    """

    def __init__(self, path: str | os.PathLike[str], key: str, resume: bool):
        """Opens the log, and reads what it has if `resume`. Raises PopulusError for a log of another space, and for a file in the way."""
        self.path, self.found = Path(path), dict[int, dict[str, Any]]()
        if resume and not self.path.exists():
            raise PopulusError(f"{path}: no such log to resume; without resume, a new one begins")
        check_places([path])
        existing = self.path.exists() and self.path.stat().st_size > 0
        if existing and not resume:
            raise PopulusError(f"{path}: there is a log already; resume it, or give another name")
        head = json.dumps({"explore": VERSION, "key": key}) + "\n"
        begun = self._read(head) if existing else False
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            raise PopulusError(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from error
        if not begun:
            self._write(head)

    def _read(self, head: str) -> bool:
        """Reads the points; cuts off what has no end of line. Gives False if not even the first line is whole."""
        if self.path.stat().st_size > LARGEST:
            raise PopulusError(f"{self.path}: {self.path.stat().st_size} bytes; a log has at most {LARGEST}")
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if not whole and not head.encode().startswith(content):
            raise PopulusError(f"{self.path}: not a log of populus explore")
        if whole:
            self._parse(whole, head)
        if len(whole) < len(content):
            os.truncate(self.path, len(whole))
        return bool(whole)

    def _parse(self, whole: bytes, head: str) -> None:
        first, *lines = whole.splitlines()
        if first.decode("utf-8", "replace") + "\n" != head:
            given = first[:30].decode("utf-8", "replace")
            ours = given.startswith('{"explore"')
            what = "of another space, model, machine or version of populus" if ours else "not a log of populus explore"
            raise PopulusError(f"{self.path}: {what}; give another name for a new log")
        for number, line in enumerate(lines, 2):
            try:
                entry: object = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise PopulusError(f"{self.path}, line {number}: no point of an exploration; the file was changed") from error
            point = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
            if not isinstance(point.get("point"), int) or not ("measures" in point or "why" in point):
                raise PopulusError(f"{self.path}, line {number}: no point of an exploration; the file was changed")
            self.found[point["point"]] = point

    def add(self, point: Mapping[str, Any]) -> None:
        """Appends a point."""
        self._write(json.dumps(point, separators=(",", ":"), sort_keys=True) + "\n")

    def _write(self, line: str) -> None:
        content = line.encode()
        try:
            written = os.write(self._file, content)
        except OSError as error:
            raise PopulusError(f"{self.path}: cannot be written: {(error.strerror or str(error)).lower()}") from error
        if written != len(content):
            raise PopulusError(f"{self.path}: the disk took {written} of {len(content)} bytes")

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)

"""`getLogger`: PopART's loggers by name, with its levels, on Python's own.

Messages go to the standard error. The level is the one that a program sets, on a logger or on all; else that of the variable
`POPART_LOG_LEVEL` of the environment; else `WARN`.
"""

from __future__ import annotations

import logging
import os
import sys

from populus.dialects.support.errors import printable

_LEVELS = {"TRACE": 5, "DEBUG": logging.DEBUG, "INFO": logging.INFO, "WARN": logging.WARNING, "ERR": logging.ERROR,
           "CRITICAL": logging.CRITICAL, "OFF": logging.CRITICAL + 10}  # fmt: skip
_ALL = "populus.popart"


class _StandardError(logging.Handler):
    """Writes to what is the standard error at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a message, its logger and its level."""
        name = record.name.removeprefix(f"{_ALL}.")
        print(printable(f"[{name}] [{record.levelname.lower()}] {record.getMessage()}"), file=sys.stderr)


logging.getLogger(_ALL).addHandler(_StandardError())


class Logger:
    """A logger of one part of the program; `all` is above every other."""

    def __init__(self, name: str):
        self._logger = logging.getLogger(_ALL if name == "all" else f"{_ALL}.{name}")

    def setLevel(self, level: str) -> None:
        """Says from which level on messages are written."""
        self._logger.setLevel(_LEVELS[level.upper()])

    def trace(self, info: str) -> None:
        """Writes a message of the lowest level."""
        self._write(_LEVELS["TRACE"], info)

    def debug(self, info: str) -> None:
        """Writes a message for those who look for a mistake."""
        self._write(logging.DEBUG, info)

    def info(self, info: str) -> None:
        """Writes a message."""
        self._write(logging.INFO, info)

    def warn(self, info: str) -> None:
        """Writes a warning."""
        self._write(logging.WARNING, info)

    def error(self, info: str) -> None:
        """Writes an error."""
        self._write(logging.ERROR, info)

    def critical(self, info: str) -> None:
        """Writes an error after which nothing goes on."""
        self._write(logging.CRITICAL, info)

    def _write(self, level: int, info: str) -> None:
        stated = self._logger.level or logging.getLogger(_ALL).level
        wanted = stated or _LEVELS.get(os.environ.get("POPART_LOG_LEVEL", "WARN").upper(), _LEVELS["WARN"])
        if level >= wanted:
            self._logger.handle(self._logger.makeRecord(self._logger.name, level, "", 0, info, (), None))


def getLogger(name: str = "all") -> Logger:
    """Gives the logger of a part of the program."""
    return Logger(name)

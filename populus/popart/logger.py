"""`getLogger`: PopART's loggers by name, with its levels, on Python's own."""

from __future__ import annotations

import logging

_LEVELS = {"TRACE": 5, "DEBUG": logging.DEBUG, "INFO": logging.INFO, "WARN": logging.WARNING, "ERR": logging.ERROR,
           "CRITICAL": logging.CRITICAL, "OFF": logging.CRITICAL + 10}  # fmt: skip


class Logger:
    """A logger of one part of the program."""

    def __init__(self, name: str):
        self._logger = logging.getLogger(f"populus.popart.{name}")

    def setLevel(self, level: str) -> None:
        """Says from which level on messages are written."""
        self._logger.setLevel(_LEVELS[level.upper()])

    def trace(self, info: str) -> None:
        """Writes a message of the lowest level."""
        self._logger.log(_LEVELS["TRACE"], info)

    def debug(self, info: str) -> None:
        """Writes a message for those who look for a mistake."""
        self._logger.debug(info)

    def info(self, info: str) -> None:
        """Writes a message."""
        self._logger.info(info)

    def warn(self, info: str) -> None:
        """Writes a warning."""
        self._logger.warning(info)

    def error(self, info: str) -> None:
        """Writes an error."""
        self._logger.error(info)


def getLogger(name: str = "all") -> Logger:
    """Gives the logger of a part of the program."""
    return Logger(name)

"""A logger that keeps nothing, for programs that want the names of the package wandb."""

from typing import Any

run, config = None, dict[str, Any]()


class _Run:
    def __getattr__(self, name: str) -> Any:
        return _nothing


def init(*_: Any, **__: Any) -> Any:
    """Gives a run that takes everything."""
    return _Run()


def _nothing(*_: Any, **__: Any) -> None:
    return None


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _nothing

"""`DataLoader`: batches of the size that a call of a model takes, loaded in a thread of their own if asked for."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from queue import Full, Queue
from threading import Event, Thread
from typing import Any, Self, cast

import torch

from populus.dialects.support.diagnostics import PopulusError
from populus.poptorch.enums import DataLoaderMode, SharingStrategy
from populus.poptorch.notes import ignored
from populus.poptorch.options import Options

_END = object()


class _Combined:
    """A sampler of batches that joins `count` batches of another sampler; an incomplete rest is left out if `drop_last`."""

    def __init__(self, sampler: Iterable[Sequence[Any]], count: int, drop_last: bool):
        self._sampler, self._count, self._drop_last = sampler, count, drop_last

    def __iter__(self) -> Iterator[list[Any]]:
        found: list[Any] = []
        taken = 0
        for batch in self._sampler:
            found.extend(batch)
            taken += 1
            if taken == self._count:
                yield found
                found, taken = [], 0
        if found and not self._drop_last:
            yield found

    def __len__(self) -> int:
        number = len(self._sampler)  # pyright: ignore[reportArgumentType], a sampler without a length has none
        return number // self._count if self._drop_last else -(-number // self._count)


class DataLoader(torch.utils.data.DataLoader):
    """PyTorch's loader with batches of `batch_size` times the micro batches of a call (device iterations, gradient accumulation).

    `mode` `Async` loads in a thread, and gives the same batches in the same order. Raises PopulusError for arguments that exclude
    each other.
    """

    def __init__(
        self,
        options: Options,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        num_workers: int = 0,
        drop_last: bool = True,
        persistent_workers: bool | None = None,
        auto_distributed_partitioning: bool = True,
        mode: DataLoaderMode = DataLoaderMode.Sync,
        async_options: Mapping[str, Any] | None = None,
        rebatched_worker_size: int | None = None,
        batch_sampler: Iterable[Sequence[Any]] | None = None,
        **kwargs: Any,
    ):
        if not isinstance(cast("object", options), Options):
            raise PopulusError(f"options is a {type(options).__name__}; poptorch.Options is expected")
        options._freeze()  # pyright: ignore[reportPrivateUsage], which is for models
        self._options = options
        count = options.device_iterations * options.Training.gradient_accumulation * options.replication_factor
        workers = {"num_workers": num_workers, "persistent_workers": num_workers > 0 if persistent_workers is None else persistent_workers}
        self._combined: int | None
        if batch_sampler is not None:
            if batch_size != 1 or shuffle:
                raise PopulusError("`batch_sampler` option is mutually exclusive with batch_size, shuffle.")
            size = getattr(batch_sampler, "batch_size", None)
            self._combined = None if size is None else size * count
            super().__init__(dataset, batch_sampler=_Combined(batch_sampler, count, drop_last), **workers, **kwargs)
        else:
            self._combined = None if batch_size is None else batch_size * count
            iterable = isinstance(dataset, torch.utils.data.IterableDataset)
            ways = {} if iterable else {"shuffle": bool(shuffle)}
            last = drop_last and self._combined is not None
            super().__init__(dataset, batch_size=self._combined, drop_last=last, **ways, **workers, **kwargs)
        self._accessor = None
        if mode != DataLoaderMode.Sync:
            self._accessor = AsynchronousDataAccessor(_Plain(self), **(async_options or {}))

    def __iter__(self) -> Any:
        return super().__iter__() if self._accessor is None else iter(self._accessor)

    @property
    def combinedBatchSize(self) -> int | None:
        """The samples of a call; None if batches are not counted."""
        return self._combined

    @property
    def options(self) -> Options:
        """The options."""
        return self._options

    def terminate(self) -> None:
        """Ends the thread that loads."""
        if self._accessor is not None:
            self._accessor.terminate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.terminate()


class _Plain:
    """A loader's batches without its thread."""

    def __init__(self, loader: DataLoader):
        self._loader = loader

    def __iter__(self) -> Any:
        return torch.utils.data.DataLoader.__iter__(self._loader)

    def __len__(self) -> int:
        return len(self._loader)


class AsynchronousDataAccessor:
    """Loads from a dataset in a thread, up to `buffer_size` elements ahead. An error of the dataset is raised where it is read."""

    def __init__(
        self,
        dataset: Any,
        buffer_size: int = 3,
        miss_sleep_time_in_ms: float = 0.1,
        load_indefinitely: bool = True,
        early_preload: bool = False,
        sharing_strategy: SharingStrategy = SharingStrategy.ForkServer,
        rebatched_size: int | None = None,
    ):
        if rebatched_size is not None:
            ignored("AsynchronousDataAccessor's rebatched_size")
        self._dataset, self._size = dataset, max(1, int(buffer_size))
        self._stopping: list[Event] = []

    def __len__(self) -> int:
        return len(self._dataset)

    def terminate(self) -> None:
        """Ends the threads that load."""
        for event in self._stopping:
            event.set()
        self._stopping.clear()

    def __iter__(self) -> Generator[Any]:
        queue: Queue[Any] = Queue(self._size)
        stop = Event()
        self._stopping.append(stop)
        thread = Thread(target=_load, args=(self._dataset, queue, stop), daemon=True)
        thread.start()
        try:
            while (found := queue.get()) is not _END:
                if isinstance(found, _Failure):
                    raise found.error
                yield found
        finally:
            stop.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.terminate()


class _Failure:
    """An error that a thread hands over."""

    def __init__(self, error: BaseException):
        self.error = error


def _load(dataset: Any, queue: Queue[Any], stop: Event) -> None:
    """Puts the elements of a dataset into a queue, then the end; stops when it is told to."""
    try:
        for element in dataset:
            if not _put(queue, element, stop):
                return
        _put(queue, _END, stop)
    except BaseException as error:
        _put(queue, _Failure(error), stop)


def _put(queue: Queue[Any], element: Any, stop: Event) -> bool:
    while not stop.is_set():
        try:
            queue.put(element, timeout=0.1)
        except Full:
            continue
        return True
    return False

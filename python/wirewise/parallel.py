# SPDX-License-Identifier: Apache-2.0
"""Doing many independent jobs at once: in processes of this machine, or on a Ray cluster.

    with Workers(shared, jobs=4) as workers:
        for index, result in workers.over(work, tasks):
            ...

`work` is a function of a module, called as work(shared, task). Shared data, tasks and results are pickled;
shared data goes to each worker once. Results come as they are ready, each with its task's number: whoever
wants the same result with any number of workers puts them in order.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Any, Generic, TypeVar

from wirewise.errors import InputError, MissingFeatureError, WirewiseError

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")

_shared: Any = None
"""In a worker of this machine: what all its jobs read."""


class Workers(Generic[S]):
    """Processes that share some data, for as long as the block runs.

    jobs : how many; None is one a CPU, and 1 works in this process. waits : the work only waits for programs
    that it starts, so threads will do. ray : the address of a Ray cluster ("local" starts one here, "auto"
    finds the one of this machine), which then decides how many.

    Raises InputError for fewer than one job, or a cluster that does not answer; MissingFeatureError without
    Ray.
    """

    def __init__(
        self, shared: S, *, jobs: int | None = None, waits: bool = False, ray: str | None = None
    ) -> None:
        if jobs is not None and jobs < 1:
            raise InputError(f"{jobs} jobs", "must be 1 or more")
        self._shared = shared
        self._jobs = jobs or os.cpu_count() or 1
        self._pool: Any = None
        self._waits = waits
        self._ray = _Ray(ray, shared) if ray else None

    def __enter__(self) -> Workers[S]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ray:
            self._ray.close()
        if self._pool:
            ending = {"cancel_futures": True} if self._waits else {"kill_workers": kind is not None}
            self._pool.shutdown(wait=True, **ending)

    def over(self, work: Callable[[S, T], R], tasks: Sequence[T]) -> Iterator[tuple[int, R]]:
        """Yields (number of the task, its result) as they are ready.

        Raises whatever the work raises; what has not begun by then is left out.
        """
        if self._ray:
            yield from self._ray.over(work, tasks)
        elif self._jobs == 1:
            for index, task in enumerate(tasks):
                yield index, work(self._shared, task)
        else:
            yield from self._over_processes(work, tasks)

    def _over_processes(self, work: Callable[[S, T], R], tasks: Sequence[T]) -> Iterator[tuple[int, R]]:
        if self._pool is None and self._waits:
            self._pool = ThreadPoolExecutor(self._jobs)
        elif self._pool is None:
            # joblib's processes are started afresh (a forked one would inherit the locks of threads that it
            # does not have), and do not run the caller's script again, as those of the standard library do.
            from joblib.externals.loky import ProcessPoolExecutor

            self._pool = ProcessPoolExecutor(self._jobs, initializer=_begin, initargs=(self._shared,))
        futures: dict[Future[R], int] = {
            self._pool.submit(*((work, self._shared) if self._waits else (_do, work)), task): index
            for index, task in enumerate(tasks)
        }
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool:
            raise WirewiseError(
                "a worker process ended without a result, probably for want of memory; try fewer --jobs"
            ) from None


def _begin(shared: Any) -> None:
    global _shared
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who started them
    _shared = shared


def _do(work: Callable[[Any, T], R], task: T) -> R:
    return work(_shared, task)


class _Ray:
    """The same on a Ray cluster. A job whose machine is lost runs again on another."""

    def __init__(self, address: str, shared: Any) -> None:
        try:
            import ray
        except ImportError as error:
            raise MissingFeatureError(
                f"--ray needs Ray, which cannot be imported ({error}); pip install 'wirewise[ray]'"
            ) from None
        self._library = ray
        try:
            ray.init(
                address=address, log_to_driver=False, logging_level=logging.ERROR, ignore_reinit_error=True
            )
        except (ConnectionError, ValueError, RuntimeError) as error:
            text = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(
                f"--ray {address}", f"cannot be reached: {text}", "give its address, or local"
            ) from None
        self._shared = ray.put(shared)
        self._call = ray.remote(_call)

    def over(self, work: Callable[[Any, T], R], tasks: Sequence[T]) -> Iterator[tuple[int, R]]:
        waiting = {self._call.remote(work, self._shared, task): index for index, task in enumerate(tasks)}
        try:
            while waiting:
                (ready,), _ = self._library.wait(list(waiting), num_returns=1)
                try:
                    yield waiting.pop(ready), self._library.get(ready)
                except self._library.exceptions.RayTaskError as error:
                    raise error.cause from None
        finally:
            for left in waiting:
                self._library.cancel(left, force=True)

    def close(self) -> None:
        self._library.shutdown()


def _call(work: Callable[[Any, Any], Any], shared: Any, task: Any) -> Any:
    return work(shared, task)

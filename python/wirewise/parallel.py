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
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.reduction import ForkingPickler
from types import TracebackType
from typing import Any, Generic, TypeVar

from wirewise import ending
from wirewise.errors import InputError, MissingFeatureError, WirewiseError

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")

_MAIN = "import sys; sys.path[:] = {path!r}; from wirewise.parallel import serve; serve({end}, {parent})"


def processors() -> int:
    """How many CPUs this process may use at a time: those of the machine, less what its affinity or the quota
    of its control group (a container's) leaves out.
    """
    # Late: joblib takes a twentieth of a second, which few commands need.
    from joblib import cpu_count

    return int(cpu_count())


class Workers(Generic[S]):
    """Processes that share some data, for as long as the block runs.

    jobs : how many; None is one for each of `processors()`, and 1 works in this process. waits : the work
    only waits for programs that it starts, so threads will do. ray : the address of a Ray cluster ("local"
    starts one here, "auto" finds the one of this machine), which then decides how many.

    Raises InputError for fewer than one job, or a cluster that does not answer; MissingFeatureError without
    Ray.
    """

    def __init__(
        self, shared: S, *, jobs: int | None = None, waits: bool = False, ray: str | None = None
    ) -> None:
        if jobs is not None and jobs < 1:
            raise InputError(f"{jobs} jobs", "must be 1 or more")
        self._shared = shared
        self._jobs = jobs or processors()
        self._threads: ThreadPoolExecutor | None = None
        self._processes: _Processes | None = None
        self._waits = waits
        self._ray = _Ray(ray, shared) if ray else None

    def __enter__(self) -> Workers[S]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ray:
            self._ray.close()
        if self._threads:
            self._threads.shutdown(wait=True, cancel_futures=True)
        if self._processes:
            self._processes.close()

    def over(self, work: Callable[[S, T], R], tasks: Sequence[T]) -> Iterator[tuple[int, R]]:
        """Yields (number of the task, its result) as they are ready.

        Raises whatever the work raises; what has not begun by then is left out.
        """
        if self._ray:
            yield from self._ray.over(work, tasks)
        elif self._jobs == 1:
            for index, task in enumerate(tasks):
                yield index, work(self._shared, task)
        elif self._waits:
            yield from self._over_threads(work, tasks)
        else:
            if self._processes is None:
                self._processes = _Processes(self._shared, self._jobs)
            yield from self._processes.over(work, tasks)

    def _over_threads(self, work: Callable[[S, T], R], tasks: Sequence[T]) -> Iterator[tuple[int, R]]:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._jobs)
        futures: dict[Future[R], int] = {
            self._threads.submit(work, self._shared, task): index for index, task in enumerate(tasks)
        }
        for future in as_completed(futures):
            yield futures[future], future.result()


class _Processes:
    """Python processes that answer over a pipe, each in a session of its own: a Ctrl-C on the terminal is not
    for them, and what they have started is killed with them.
    """

    def __init__(self, shared: Any, jobs: int) -> None:
        self._shared, self._jobs = shared, jobs
        self._open = ExitStack()
        self._connections: list[Connection] = []

    def _start(self) -> None:
        folder = self._open.enter_context(ending.temporary_folder())
        shared = bytes(ForkingPickler.dumps(self._shared))
        for _ in range(self._jobs):
            ours, theirs = Pipe()
            with theirs, ending.deferred():
                program = _MAIN.format(path=sys.path, end=theirs.fileno(), parent=os.getpid())
                process = subprocess.Popen(
                    [sys.executable, "-c", program],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                    # What a killed one leaves goes with our folder.
                    env={**os.environ, "TMPDIR": str(folder)},
                )
                self._open.callback(_kill, process)
                self._open.enter_context(ours)
                self._connections.append(ours)
        for connection in self._connections:
            with suppress(BrokenPipeError):  # it is seen when it does not answer
                connection.send_bytes(shared)

    def over(self, work: Callable[[Any, T], R], tasks: Sequence[T]) -> Iterator[tuple[int, R]]:
        if not self._connections:
            self._start()
        waiting = iter(enumerate(tasks))
        idle, busy = list(self._connections), dict[Connection, int]()
        try:
            while True:
                while idle and (following := next(waiting, None)):
                    index, task = following
                    with suppress(BrokenPipeError):
                        idle[-1].send((work, task))
                    busy[idle.pop()] = index
                if not busy:
                    return
                for connection in wait(list(busy)):
                    assert isinstance(connection, Connection)
                    result = _received(connection)
                    index = busy.pop(connection)
                    idle.append(connection)
                    yield index, result
        finally:
            if busy:  # nobody waits for what they do
                self.close()

    def close(self) -> None:
        self._connections.clear()
        self._open.close()


def _received(connection: Connection) -> Any:
    try:
        succeeded, result = connection.recv()
    except (EOFError, ConnectionError):
        raise WirewiseError(
            "a worker process ended without a result, probably for want of memory; try fewer --jobs"
        ) from None
    if not succeeded:
        raise result
    return result


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def serve(end: int, parent: int) -> None:
    """What a process does that was started by `_Processes`, until nobody asks it any more."""
    ending.end_with_parent(parent)
    with Connection(end) as connection, suppress(EOFError, ConnectionError):
        shared = ForkingPickler.loads(connection.recv_bytes())
        while True:
            work, task = connection.recv()
            try:
                answer = ForkingPickler.dumps((True, work(shared, task)))
            except Exception as error:
                answer = _failure(error)
            connection.send_bytes(answer)


def _failure(error: Exception) -> Any:
    try:
        return ForkingPickler.dumps((False, error))
    except Exception:  # some errors hold what cannot be pickled
        return ForkingPickler.dumps((False, WirewiseError(f"{type(error).__name__}: {error}")))


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

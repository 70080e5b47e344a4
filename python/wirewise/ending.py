# SPDX-License-Identifier: Apache-2.0
"""How SIGINT, SIGTERM and SIGHUP end the command line: exit code 128 + the signal, one line, nothing left.

The signal raises `Interrupted` in the main thread, so that every `finally` runs. Native code may not return
for minutes; then a second thread does without: it kills the processes that were started, removes temporary
files, and ends this process. `install` is called once, when the program starts; without it (in a program
that imports wirewise) signals are left alone.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

SIGNALS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}
PATIENCE_S = 1.0
"""How long the main thread may take to clean up."""
HELD_S = 60.0
"""The same where cleaning up takes longer, such as removing network namespaces."""
_GRACE_S = 0.2
"""From SIGTERM to SIGKILL, for processes that were started."""


class Interrupted(KeyboardInterrupt):
    """A signal has come. Raised once, in the main thread."""


_installed = False
_came = 0
_deferred = 0
_waiting = False
_held = 0
_temporaries: set[str] = set()
_outputs: set[Path] = set()
_left = threading.Lock()


def install() -> None:
    """Handle the signals that whoever started us does not ignore (`nohup`). Once."""
    global _installed
    if _installed:
        return
    _installed = True
    reader, writer = os.pipe()
    for end in (reader, writer):
        os.set_blocking(end, end == reader)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader,), name="signals", daemon=True).start()
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _on_signal)
    # The first that is registered is the last that runs: all is done, and Python would give up its handlers.
    atexit.register(_ignore)


def _ignore() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def expect(outputs: Iterable[Path]) -> None:
    """What the command is to write, see `complete`."""
    _outputs.update(outputs)


def complete(output: Path) -> None:
    """Call this before an output gets its name. The last one completes the command: from here on signals are
    ignored, so that none reports an interruption beside a whole result.
    """
    if output in _outputs:
        _outputs.remove(output)
        if _installed and not _outputs:
            _ignore()


def came() -> int:
    """The number of the signal that ends this process; 0: none."""
    return _came


def expected() -> None:
    """The signal that came is how this command was to end: its regular end, and exit code, are left. Call it
    within `held`, which lasts from here on.
    """
    global _came, _held
    _ignore()
    _came, _held = 0, _held + 1


def refuse_to_begin() -> None:
    """Raises Interrupted where another thread would start something after a signal."""
    if _came and threading.current_thread() is not threading.main_thread():
        raise Interrupted


def exit_code() -> int:
    return 128 + (_came or signal.SIGINT)


def _on_signal(number: int, frame: FrameType | None) -> None:
    global _came, _waiting
    if _came:
        return
    _came = number
    # What a destructor or another thread says about being interrupted helps nobody.
    sys.unraisablehook = lambda unraisable: None
    threading.excepthook = lambda arguments: None
    for process in _descendants():
        with suppress(OSError):
            os.kill(process, signal.SIGTERM)
    if _deferred:
        _waiting = True
    else:
        raise Interrupted


@contextmanager
def deferred() -> Iterator[None]:
    """In the main thread, the exception waits for the end of the block: what it makes is noted too."""
    global _deferred, _waiting
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _deferred += 1
    try:
        yield
    finally:
        _deferred -= 1
        if _waiting and not _deferred:
            _waiting = False
            raise Interrupted


@contextmanager
def held() -> Iterator[None]:
    """Cleaning up in the block may take longer."""
    global _held
    _held += 1
    try:
        yield
    finally:
        _held -= 1


@contextmanager
def temporary_folder(beside: Path | None = None) -> Iterator[Path]:
    """A folder that is removed at the end of the block, and by a signal."""
    import tempfile

    with deferred():
        folder = tempfile.mkdtemp(prefix="wirewise-" if beside is None else ".wirewise-", dir=beside)
        _temporaries.add(folder)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _temporaries.discard(folder)


def remove_at_end(path: str | Path) -> None:
    """A temporary file that a signal removes, until `keep` is called."""
    _temporaries.add(str(path))


def keep(path: str | Path) -> None:
    _temporaries.discard(str(path))


def leave(message: str = "") -> NoReturn:
    """Ends this process after a signal. message : the line, instead of what the signal is called."""
    _left.acquire()  # whoever comes second waits for the end
    for wait_s, number in ((0.0, signal.SIGTERM), (_GRACE_S, signal.SIGKILL)):
        end, left = time.monotonic() + wait_s, _descendants()
        while left and time.monotonic() < end:
            time.sleep(0.01)
            left = _descendants()
        for process in left:
            with suppress(OSError):
                os.kill(process, number)
    for path in list(_temporaries):
        with suppress(OSError):
            Path(path).unlink() if not Path(path).is_dir() else shutil.rmtree(path, ignore_errors=True)
    clear = "\r\x1b[K\x1b[?25h" if sys.stderr.isatty() else ""
    line = f"{clear}error: {message or SIGNALS.get(signal.Signals(_came or signal.SIGINT))}\n"
    with suppress(OSError):
        os.write(2, line.encode(errors="backslashreplace"))
    os._exit(exit_code())


def _watch(reader: int) -> None:
    """Waits for a signal, then for the main thread, which may not even have noticed it."""
    global _came
    while (number := os.read(reader, 1)[0]) not in SIGNALS:
        pass
    start = time.monotonic()
    while time.monotonic() - start < (HELD_S if _held else PATIENCE_S):
        time.sleep(0.02)
    _came = _came or number
    leave()


def _descendants() -> list[int]:
    """The processes that were started here, by whatever way, and theirs."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError, ValueError):
                about = (entry / "stat").read_bytes()
                state, parent = about.rpartition(b")")[2].split()[:2]
                if state != b"Z":
                    children.setdefault(int(parent), []).append(int(entry.name))
    found = children.get(os.getpid(), [])
    for process in found:
        found += children.get(process, [])
    return found


def end_with_parent(parent: int) -> None:
    """Has this process killed when the thread that started it ends, whatever ends that."""
    from ctypes import CDLL

    CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)

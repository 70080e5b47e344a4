# SPDX-License-Identifier: Apache-2.0
"""Finding and calling the agent, `wirewised`: the only part of wirewise that talks to the kernel."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from wirewise import ending
from wirewise.errors import InputError, MissingFeatureError, RefusedError, ToldError, WirewiseError

_TRACE_FIELDS = (
    "status", "inferred", "class_id", "action", "outcome", "refused", "packets", "xdp_return",
    "described", "flow_hash",
)  # fmt: skip
_ERRORS: dict[int, type[WirewiseError]] = {
    error.exit_code: error for error in (InputError, MissingFeatureError, RefusedError)
}


def find() -> Path:
    """`wirewised`: what the variable WIREWISED names, beside this Python, on PATH, or the last one built in a
    checkout.

    Raises MissingFeatureError.
    """
    if named := os.environ.get("WIREWISED"):
        if Path(named).is_file():
            return Path(named)
        raise MissingFeatureError(f"WIREWISED names {named}, which is no file; name the agent, or unset it")
    checkout = Path(__file__).parents[2]
    candidates = [Path(sys.executable).parent / "wirewised"]
    if on_path := shutil.which("wirewised"):
        candidates.append(Path(on_path))
    built = [checkout / "target" / profile / "wirewised" for profile in ("release", "debug")]
    candidates += sorted((path for path in built if path.is_file()), key=lambda path: -path.stat().st_mtime)
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise MissingFeatureError(
        "wirewised is neither beside wirewise nor on PATH; run `make setup` or `cargo install wirewised`"
    )


def call(
    *arguments: str | Path,
    timeout: float | None = 300,
    within: Sequence[str] = (),
    progress: bool = False,
    asks: bool = True,
) -> dict[str, Any]:
    """Runs a command of the agent with --json and returns its object.

    timeout : seconds. within : a command that runs another, such as `nsenter --net=...`. progress : let the
    agent show it, and its own messages, if stderr is a terminal. asks : False where the agent
    is to refuse instead of asking on the terminal, where its question would not be seen.

    Raises the error that the agent's exit code stands for, with the agent's own message. What the kernel
    refused comes back as an object too when the agent printed one.
    """
    shown = progress and sys.stderr.isatty()
    command, done = _start((*arguments, "--json"), timeout, within, shown=shown, asks=asks)
    if done.returncode in (0, RefusedError.exit_code) and done.stdout.strip():
        try:
            result = json.loads(done.stdout)
        except json.JSONDecodeError as error:
            raise WirewiseError(f"`{shlex.join(command)}` printed no JSON ({error})") from error
        if isinstance(result, dict):
            return result
    raise _error(command, done)


def run(*arguments: str | Path, timeout: float | None = 300) -> None:
    """Runs a command of the agent that writes its result to a file. Errors as in `call`."""
    command, done = _start(arguments, timeout)
    if done.returncode:
        raise _error(command, done)


def become(*arguments: str | Path, files: Mapping[str, bytes]) -> NoReturn:
    """Goes on as a command of the agent, so that signals are the agent's and nothing is left between the two.

    files : option and content of files that it reads; they are in memory only. Raises MissingFeatureError.
    """
    program, given = find(), list(map(str, arguments))
    for name, content in files.items():
        descriptor = os.memfd_create(name.strip("-"))
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        os.set_inheritable(descriptor, True)
        given += [name, f"/proc/self/fd/{descriptor}"]
    sys.stdout.flush()
    try:
        os.execv(program, [str(program), *given])
    except OSError as error:
        raise MissingFeatureError(f"{program}: cannot be run: {error.strerror}") from error


def trace(
    capture: str | Path,
    bundle: str | Path,
    *,
    n_features: int,
    policy: str | Path | None = None,
    mode: str = "observe",
    seed: int | None = None,
    table_size: int | None = None,
    flows: str | Path | None = None,
    packets: str | Path | None = None,
    plane: str | None = None,
    cpus: int = 1,
    object_file: str | Path | None = None,
    observe: Sequence[str] = (),
) -> NDArray[np.void]:
    """What a bundle's object makes of the packets of a capture: a record for each.

    Fields: status, inferred, class_id, action, outcome, refused, packets, xdp_return (uint32, codes of
    abi.h), described, flow_hash (uint32) and described_score (int64), what the actor is told of the packet
    (`struct ww_description`), zero unless the policy asks for `metadata` or `verdicts`; feature (int64,
    n_features) and score (int64), zero where the model did not run. seed : of the
    flow table's hash, None is random. flows : gets the flow table as it is after the last packet, a JSON
    object a line. packets : gets a capture of what is not dropped, as the program leaves it. plane :
    `kernel`, this machine's, or `engine`, the agent's own; None is the kernel where this process may load
    programs. cpus : in the kernel, each packet runs on one of so many CPUs, at random, one after the other.
    object_file : runs instead of the bundle's program, whatever it holds. observe : classes that only
    observe in enforce mode, `scan` or `scan=10s`. Raises MissingFeatureError
    without the privilege.
    """
    options = {
        "--policy": policy, "--mode": mode, "--seed": seed, "--table-size": table_size, "--dump-flows": flows,
        "--write-packets": packets,
        "--plane": plane, "--cpus": cpus, "--object": object_file,
    }  # fmt: skip
    given = [str(part) for name, value in options.items() if value is not None for part in (name, value)]
    given += [f"--observe={name}" for name in observe]
    with ending.temporary_folder() as folder:
        output = folder / "trace"
        run("trace", capture, "--bundle", bundle, *given, "--format", "raw", "-o", output, timeout=None)
        data = output.read_bytes()
    magic, features, scores = struct.unpack_from("<8sII", data)
    record = np.dtype(
        [(name, "<u4") for name in _TRACE_FIELDS]
        + [("described_score", "<i8"), ("feature", "<i8", (features,)), ("score", "<i8", (scores,))]
    )
    if magic != b"WWTRACE2" or features != n_features or (len(data) - 16) % record.itemsize:
        raise WirewiseError(f"the agent's trace of {capture} is not in the format this wirewise reads")
    return np.frombuffer(data, record, offset=16)


def environment() -> dict[str, str]:
    """For an agent that is to end with this process."""
    return {**os.environ, "WIREWISED_PARENT": str(os.getpid())}


def _start(
    arguments: Sequence[str | Path],
    timeout: float | None,
    within: Sequence[str] = (),
    *,
    shown: bool = False,
    asks: bool = True,
) -> tuple[list[str], subprocess.CompletedProcess[str]]:
    ending.refuse_to_begin()
    command = [*within, str(find()), *map(str, arguments)]
    stderr = None if shown else subprocess.PIPE
    try:
        return command, subprocess.run(
            command,
            stdin=None if asks else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            encoding="utf-8",
            env=environment(),
            timeout=timeout,
            check=False,
        )
    except OSError as error:
        raise MissingFeatureError(f"{command[0]}: cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise WirewiseError(f"`{shlex.join(command)}` did not end within {timeout:g} s") from error


def _error(command: list[str], done: subprocess.CompletedProcess[str]) -> WirewiseError:
    """The error that an exit code stands for, with the agent's own message."""
    if done.stderr is None:
        raise ToldError(done.returncode)
    said = filter(None, map(_said, done.stderr.splitlines()))
    message = next(said, f"`{shlex.join(command)}` ended with code {done.returncode}")
    return _ERRORS.get(done.returncode, WirewiseError)(message)


def _said(line: str) -> str | None:
    """The message of a line on standard error: an object with --json, else text; None of other lines."""
    if line.startswith("error: "):
        return line.removeprefix("error: ")
    try:
        return str(json.loads(line)["error"]["message"])
    except (ValueError, TypeError, KeyError):
        return None


def verify(object_file: bytes) -> dict[str, Any]:
    """What the kernel verifier of this machine says about an object: the result of `wirewised verify`.

    Nothing is attached. Raises MissingFeatureError without the privilege to load programs.
    """
    with ending.temporary_folder() as folder:
        path = folder / "program.bpf.o"
        path.write_bytes(object_file)
        return call("verify", "--object", path)

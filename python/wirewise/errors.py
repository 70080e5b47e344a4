# SPDX-License-Identifier: Apache-2.0
"""Errors a user can act on. The command line prints their message on one line and exits with `exit_code`."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from difflib import get_close_matches

from wirewise.text import harmless


class WirewiseError(Exception):
    """Something went wrong that is not covered by a more precise class below."""

    exit_code = 1

    def __str__(self) -> str:
        return harmless(super().__str__())  # also where Python prints it, below a traceback


class InputError(WirewiseError):
    """Bad input or usage: names the input, the rule it broke and the way out.

    `InputError("forest.pkl", "has 200 features, the limit is 128", "train on fewer features")` reads
    `forest.pkl: has 200 features, the limit is 128; train on fewer features`. A lone first argument is the
    whole message.
    """

    exit_code = 2

    def __init__(self, subject: str, rule: str = "", way_out: str = "") -> None:
        message = f"{subject}: {rule}" if rule else subject
        if way_out:
            message += f"; {way_out}"
        super().__init__(" ".join(message.split()))  # one line, whatever the input held
        self.subject, self.rule, self.way_out = subject, rule, way_out

    def __reduce__(self) -> tuple[type[InputError], tuple[str, str, str]]:
        return type(self), (self.subject, self.rule, self.way_out)


class MissingFeatureError(WirewiseError):
    """A privilege, a kernel feature or a tool that the task needs is not here."""

    exit_code = 3


class RefusedError(WirewiseError):
    """The kernel (its verifier) refused what was loaded."""

    exit_code = 4


class UnfinishedError(WirewiseError):
    """A signal ended the work; the message says what was kept."""

    exit_code = 130


class ToldError(WirewiseError):
    """The agent has said on the terminal what was wrong; its exit code is left to pass on."""

    def __init__(self, exit_code: int) -> None:
        super().__init__("the agent said why")
        self.exit_code = exit_code


_SCARCE = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM}


def of_system(error: OSError) -> WirewiseError | None:
    """An error about a file, or about space or memory that is used up, as one to act on; None for others."""
    if error.errno in _SCARCE:
        return WirewiseError(f"{error.filename or 'this machine'}: {error.strerror}")
    if not isinstance(error.filename, str | bytes):  # none, or the number of an open file
        return None
    return InputError(os.fsdecode(error.filename), str(error.strerror), "check its name and permissions")


def choose(name: object, known: Iterable[str]) -> str:
    """The way out where a name is not known: the one that was probably meant, then all there are."""
    names = list(known)
    return did_you_mean(name, names) + f"there are: {', '.join(names)}"


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """A question that names the nearest of the names that are known, and a blank; "" if none is near."""
    near = get_close_matches(str(name).lower(), list(known), n=1)
    return f"did you mean {near[0]!r}? " if near else ""

# SPDX-License-Identifier: Apache-2.0
"""The command line speaks UTF-8 in every locale, as the agent does.

Under a POSIX locale Python may take file names and text for ASCII. Then a capture called `été.pcap` cannot be
named to the libraries that read it, and µ cannot be printed.
"""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper


def ensure() -> None:
    """Starts this process again in Python's UTF-8 mode if its file names are not UTF-8."""
    if sys.getfilesystemencoding() != "utf-8" and not sys.flags.utf8_mode:
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    # PYTHONIOENCODING may still say otherwise.
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.encoding != "utf-8":
        sys.stdout.reconfigure(errors="backslashreplace")

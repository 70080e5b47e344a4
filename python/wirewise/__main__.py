# SPDX-License-Identifier: Apache-2.0
"""`python -m wirewise`: the command line, where its script is not on PATH."""

from wirewise.cli import run

run()

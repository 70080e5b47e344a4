# SPDX-License-Identifier: Apache-2.0
"""`python -m wirewise.demo` is `wirewise demo`."""

import sys

from wirewise.cli import run

sys.argv.insert(1, "demo")
run()

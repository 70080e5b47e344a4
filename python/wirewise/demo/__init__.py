# SPDX-License-Identifier: Apache-2.0
"""The demo: train a forest on packets, attach it to an interface, and watch it drop an attack."""

from wirewise.demo.run import Options, run, show_page

__all__ = ["Options", "run", "show_page"]

# SPDX-License-Identifier: Apache-2.0
"""The report of an evaluation: one page that says whether to enforce, why, and what nobody has seen yet."""

from wirewise.report.figures import charts, comparison_chart
from wirewise.report.page import page

__all__ = ["charts", "comparison_chart", "page"]

# SPDX-License-Identifier: Apache-2.0
"""The steps of the command line as functions, for notebooks: data frames in and out."""

from wirewise.api.attach import Attachment, check, run
from wirewise.api.captures import features, replay
from wirewise.api.explaining import cost, explain
from wirewise.api.judging import judge, write_report
from wirewise.api.models import compile, train
from wirewise.api.searching import search

__all__ = [
    "Attachment",
    "check",
    "compile",
    "cost",
    "explain",
    "features",
    "judge",
    "replay",
    "run",
    "search",
    "train",
    "write_report",
]

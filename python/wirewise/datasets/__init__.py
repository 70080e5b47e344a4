# SPDX-License-Identifier: Apache-2.0
"""Captures, labels, and the feature tables made from them."""

from wirewise.datasets.captures import CapturedPacket, read_capture, read_ethernet, write_capture
from wirewise.datasets.extraction import Rows, Truth, extract_table, find_captures, table_of
from wirewise.datasets.labels import LabelFile, Labels
from wirewise.datasets.manifest import CaptureFolder
from wirewise.datasets.table import Table, build_table

__all__ = [
    "CaptureFolder",
    "CapturedPacket",
    "LabelFile",
    "Labels",
    "Rows",
    "Table",
    "Truth",
    "build_table",
    "extract_table",
    "find_captures",
    "read_capture",
    "read_ethernet",
    "table_of",
    "write_capture",
]

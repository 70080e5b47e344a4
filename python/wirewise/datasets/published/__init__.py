# SPDX-License-Identifier: Apache-2.0
"""Labels as data sets and sensors publish them, read as flows: one module a format, one line in READERS."""

from wirewise.datasets.published import cic, suricata, unsw, zeek
from wirewise.datasets.published.reader import READERS, LabelOptions, Reader, find_label_files

__all__ = ["READERS", "LabelOptions", "Reader", "cic", "find_label_files", "suricata", "unsw", "zeek"]

# SPDX-License-Identifier: Apache-2.0
"""Text in comments of generated sources. C, micro-C, P4 and Verilog share the alphabet that is safe there."""

from __future__ import annotations

import re

from wirewise.feature_sets import FeatureSet
from wirewise.models import Model

# Without *, which ends a comment; \ and ?, which continue a line; and line ends. " ' ` # @ $ & and % begin
# something in one of the languages, or in the tools that search their comments.
_UNSAFE = re.compile(r"[^A-Za-z0-9 _.,:;()\[\]/+=^<>-]")


def comment(text: str) -> str:
    """The text as part of a comment, on one line: of other characters the code point, such as `<U+002A>`.

    Every string that is not the emitter's own goes through here: names of feature sets and features, units,
    families and summaries of models.
    """
    return _UNSAFE.sub(lambda match: f"<U+{ord(match[0]):04X}>", text)


def of_model(model: Model) -> str:
    """Which model sources were generated from, for a comment at their start."""
    return f"model {comment(model.family)} ({model.digest[:12]})"


def of_features(feature_set: FeatureSet) -> str:
    """The feature set that sources were generated from, as a comment."""
    return f"feature set {comment(feature_set.name)} ({feature_set.digest[:12]})"

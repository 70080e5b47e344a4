# SPDX-License-Identifier: Apache-2.0
"""Finding the model that is best on captures it has not seen, within what it may cost."""

from wirewise.tuning.run import Found, Limits, search
from wirewise.tuning.space import METHODS, Settings, Space

__all__ = ["METHODS", "Found", "Limits", "Settings", "Space", "search"]

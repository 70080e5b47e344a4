# SPDX-License-Identifier: Apache-2.0
"""How little an attacker has to change so that a model no longer finds its flows.

`changes` says what can be changed, `rewriting` makes captures of it, and `search` looks for the least
strength, by the verdicts of the bundle's own program on the changed packets.
"""

from wirewise.evaluate.evasion.changes import CHANGES, Change
from wirewise.evaluate.evasion.search import COLUMNS, Evasions, Least, Summary, evasions

__all__ = ["CHANGES", "COLUMNS", "Change", "Evasions", "Least", "Summary", "evasions"]

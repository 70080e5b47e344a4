# SPDX-License-Identifier: Apache-2.0
"""The P4 target: binary networks and tree ensembles to P4_16 (siracusano-n3ic, section 4.2).

sources = emit(model, feature_set, Options(flavour="v1model"))
"""

from __future__ import annotations

from wirewise.targets.p4.options import Options
from wirewise.targets.p4.target import P4, Sources, emit

__all__ = ["P4", "Options", "Sources", "emit"]

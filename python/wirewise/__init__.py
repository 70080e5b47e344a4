# SPDX-License-Identifier: Apache-2.0
"""wirewise: machine learning on the packet path.

The same steps as the command line, for programs and notebooks:

    import wirewise as ww

    table = ww.features("day.pcap", "hara2026", labels="labels.yaml")  # a data frame, a row a packet
    names = ww.PRESETS["hara2026"].feature_names
    estimator = RandomForestClassifier(10, max_depth=10).fit(table[names], table["label"])
    compiled = ww.compile(estimator, "hara2026", table=table)  # import, emit, build, verify, compare
    compiled.write("model.wirewise")
    verdicts = ww.replay("other.pcap", compiled, {"version": 1, "classes": {"attack": "drop"}})
    ww.explain("other.pcap", 17, compiled)
    ww.run("model.wirewise", "eth0", "policy.yaml")  # observes until told to enforce

Names are loaded when first used, and no machine-learning library is imported before an estimator needs it.
All errors a user can act on are `WirewiseError`; its `exit_code` is what the command line ends with.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PLACES = {
    "Attachment": "wirewise.api",
    "Bundle": "wirewise.formats.bundle",
    "Compiled": "wirewise.compiler",
    "Cost": "wirewise.stages",
    "Evaluation": "wirewise.evaluate.evaluation",
    "Explanation": "wirewise.explanation",
    "Extractor": "wirewise.feature_sets",
    "Found": "wirewise.tuning",
    "Feature": "wirewise.feature_sets",
    "FeatureSet": "wirewise.feature_sets",
    "ImportOptions": "wirewise.importers",
    "Importance": "wirewise.evaluate.importance",
    "Imported": "wirewise.importers",
    "InputError": "wirewise.errors",
    "MissingFeatureError": "wirewise.errors",
    "PRESETS": "wirewise.feature_sets",
    "Policy": "wirewise.policy",
    "RefusedError": "wirewise.errors",
    "Report": "wirewise.evaluate",
    "Space": "wirewise.tuning",
    "Table": "wirewise.datasets",
    "Training": "wirewise.evaluate",
    "Tree": "wirewise.models",
    "TreeEnsemble": "wirewise.models",
    "WirewiseError": "wirewise.errors",
    "check": "wirewise.api",
    "compile": "wirewise.api",
    "cost": "wirewise.api",
    "explain": "wirewise.api",
    "features": "wirewise.api",
    "judge": "wirewise.api",
    "import_model": "wirewise.importers",
    "plot": "wirewise.plots",
    "replay": "wirewise.api",
    "run": "wirewise.api",
    "search": "wirewise.api",
    "train": "wirewise.api",
    "write_report": "wirewise.api",
}

__all__ = [
    "PRESETS",
    "Attachment",
    "Bundle",
    "Compiled",
    "Cost",
    "Evaluation",
    "Explanation",
    "Extractor",
    "Feature",
    "FeatureSet",
    "Found",
    "ImportOptions",
    "Importance",
    "Imported",
    "InputError",
    "MissingFeatureError",
    "Policy",
    "RefusedError",
    "Report",
    "Space",
    "Table",
    "Training",
    "Tree",
    "TreeEnsemble",
    "WirewiseError",
    "__version__",
    "check",
    "compile",
    "cost",
    "explain",
    "features",
    "import_model",
    "judge",
    "plot",
    "replay",
    "run",
    "search",
    "train",
    "write_report",
]

if TYPE_CHECKING:
    from wirewise.api import (
        Attachment,
        check,
        compile,
        cost,
        explain,
        features,
        judge,
        replay,
        run,
        search,
        train,
        write_report,
    )
    from wirewise.compiler import Compiled
    from wirewise.datasets import Table
    from wirewise.errors import InputError, MissingFeatureError, RefusedError, WirewiseError
    from wirewise.evaluate import Report, Training
    from wirewise.evaluate.evaluation import Evaluation
    from wirewise.evaluate.importance import Importance
    from wirewise.explanation import Explanation
    from wirewise.feature_sets import PRESETS, Extractor, Feature, FeatureSet
    from wirewise.formats.bundle import Bundle
    from wirewise.importers import Imported, ImportOptions, import_model
    from wirewise.models import Tree, TreeEnsemble
    from wirewise.plots import plot
    from wirewise.policy import Policy
    from wirewise.stages import Cost
    from wirewise.tuning import Found, Space


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'wirewise' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)

# SPDX-License-Identifier: Apache-2.0
"""wirewise: machine learning on the packet path.

The same steps as the command line, for programs:

    import wirewise as ww

    features = ww.FeatureSet.load("hara2026")            # or FeatureSet.from_dict({...}), or a YAML file
    imported = ww.import_model(estimator)                # a fitted estimator, or the path of a saved one
    result = ww.compile(imported, features, name="demo")  # emit, build, verify
    result.bundle.write("demo.wirewise")

    bundle = ww.Bundle.read("demo.wirewise")             # every digest is checked
    classes, scores = bundle.model.predict(rows)        # int64, shape (n, n_features)

Names are loaded when first used, and no machine-learning library is imported before an estimator needs it.
All errors a user can act on are `WirewiseError`; its `exit_code` is what the command line ends with.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PLACES = {
    "Bundle": "wirewise.bundle",
    "Extractor": "wirewise.features",
    "Feature": "wirewise.features",
    "FeatureSet": "wirewise.features",
    "Imported": "wirewise.importers",
    "InputError": "wirewise.errors",
    "MissingFeatureError": "wirewise.errors",
    "PRESETS": "wirewise.features",
    "Policy": "wirewise.policy",
    "RefusedError": "wirewise.errors",
    "Tree": "wirewise.models",
    "TreeEnsemble": "wirewise.models",
    "WirewiseError": "wirewise.errors",
    "compile": "wirewise.compiler",
    "import_model": "wirewise.importers",
}

__all__ = [
    "PRESETS",
    "Bundle",
    "Extractor",
    "Feature",
    "FeatureSet",
    "Imported",
    "InputError",
    "MissingFeatureError",
    "Policy",
    "RefusedError",
    "Tree",
    "TreeEnsemble",
    "WirewiseError",
    "__version__",
    "compile",
    "import_model",
]

if TYPE_CHECKING:
    from wirewise.bundle import Bundle
    from wirewise.compiler import compile
    from wirewise.errors import InputError, MissingFeatureError, RefusedError, WirewiseError
    from wirewise.features import PRESETS, Extractor, Feature, FeatureSet
    from wirewise.importers import Imported, import_model
    from wirewise.models import Tree, TreeEnsemble
    from wirewise.policy import Policy


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'wirewise' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)

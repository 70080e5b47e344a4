# SPDX-License-Identifier: Apache-2.0
"""What a shell may put where the cursor is.

A shell has no place for errors: where something cannot be read, nothing is offered.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import typer

from wirewise.errors import WirewiseError

BUNDLES = (".wirewise",)
MODELS = (".pkl", ".pickle", ".joblib", ".skops", ".onnx", ".json", ".ubj", ".txt", ".bnn")
FEATURE_SETS = (".yaml", ".yml", ".json")


def files(*suffixes: str) -> Callable[[str], list[str]]:
    """Offers files with these endings, and folders on the way to them."""

    def offered(incomplete: str) -> list[str]:
        folder, _, start = incomplete.rpartition("/")
        prefix = incomplete[: len(incomplete) - len(start)]
        try:
            entries = sorted(Path(folder or ("/" if prefix else ".")).iterdir())
        except OSError:
            return []
        wanted = [e for e in entries if e.name.startswith(start) and (start or not e.name.startswith("."))]
        return [
            f"{prefix}{entry.name}{'/' if entry.is_dir() else ''}"
            for entry in wanted
            if entry.is_dir() or entry.name.endswith(suffixes)
        ]

    return offered


_bundle_files = files(*BUNDLES)


def bundles(incomplete: str) -> list[str]:
    """Bundles, and ready models."""
    return [*ready_models(incomplete), *_bundle_files(incomplete)]


def models(incomplete: str) -> list[str]:
    """What `compile` takes: model files, and ready models."""
    return [*ready_models(incomplete), *files(*MODELS)(incomplete)]


def ready_models(incomplete: str) -> list[str]:
    from wirewise.ready import READY

    return [name for name in READY if incomplete and name.startswith(incomplete)]


def presets(incomplete: str) -> list[str]:
    from wirewise.feature_sets import PRESETS

    return [name for name in PRESETS if name.startswith(incomplete)]


def feature_sets(incomplete: str) -> list[str]:
    """Presets, and files that may hold a feature set."""
    return presets(incomplete) + files(*FEATURE_SETS)(incomplete)


def classes_of_running(context: typer.Context, incomplete: str) -> list[str]:
    """The classes of the bundle in --keep-state-of, in its order, as one word."""
    from wirewise.formats.bundle import Bundle

    bundle = context.params.get("keep_state_of")
    if not bundle:
        return []
    try:
        classes = ",".join(Bundle.read(Path(bundle)).manifest.classes)
    except (WirewiseError, OSError):
        return []
    return [classes] if classes.startswith(incomplete) else []

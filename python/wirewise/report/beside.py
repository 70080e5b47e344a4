# SPDX-License-Identifier: Apache-2.0
"""The report of a bundle, looked for beside it: model.html and model.json of model.wirewise.

A bundle does not hold its report: it would then be another file after each evaluation.
"""

from __future__ import annotations

from pathlib import Path

from wirewise.errors import InputError
from wirewise.files import parse_json, read_bytes

_LIMIT = 64 << 20


def find(bundle: Path, model_digest: str) -> tuple[Path, str] | None:
    """The page and its verdict, if there is one of this very model; None of any other."""
    page = bundle.with_suffix(".html")
    if not page.is_file():
        return None
    try:
        said = parse_json(read_bytes(page.with_suffix(".json"), what="report", limit=_LIMIT))
        for one in said.get("models", [said]):
            if one["about"]["model_digest"] == model_digest:
                return page, str(one["verdict"]["decision"])
    except (InputError, ValueError, LookupError, TypeError, AttributeError):
        pass  # a file of that name that is something else
    return None

# SPDX-License-Identifier: Apache-2.0
"""What an ONNX model itself says of rows, by onnxruntime."""

from __future__ import annotations

from typing import Any

from wirewise.importers.lowering import library
from wirewise.importers.request import Request, Rows


def run(model: Any, output: str, x: Rows, fed_as: type[Any], request: Request, way_out: str) -> Any:
    """A graph output for rows (n, n_features). Raises InputError, with the way out, if it cannot run."""
    runtime = library("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # errors only: it warns of declared shapes that it then ignores
    try:
        session = runtime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        (result,) = session.run([output], {session.get_inputs()[0].name: x.astype(fed_as)})
    except Exception as error:  # onnxruntime has no base class of its errors
        raise request.refuse(f"onnxruntime cannot run it ({first_line(error)})", way_out) from None
    return result


def first_line(error: Exception) -> str:
    """The first line of an error's text, its kind if it has none."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)

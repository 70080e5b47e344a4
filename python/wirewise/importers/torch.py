# SPDX-License-Identifier: Apache-2.0
"""PyTorch's nn.Sequential of dense layers.

Only its modules' documented attributes are read; torch itself is imported only to compare (`predict`).
Modules are known by their class names, so that a subclass is read as its parent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from wirewise.importers.lowering import class_names, library
from wirewise.importers.networks import affine_input, import_network
from wirewise.importers.request import Imported, Predict, Request, Rows
from wirewise.quantize import FloatNetwork
from wirewise.quantize.float_network import Floats, Output

_IGNORED = ("Dropout", "Identity", "Flatten")
_ENDS: dict[str, Output] = {"Softmax": "softmax", "LogSoftmax": "softmax", "Sigmoid": "sigmoid"}


def import_sequential(module: Any, request: Request) -> Imported:
    """Linear, ReLU, BatchNorm1d (first, or behind a Linear) and Dropout; Softmax or Sigmoid may end it.

    One output is class 1 above 0 (behind a Sigmoid: above 1/2). Classes are numbered unless named.
    """
    layers: list[tuple[Floats, Floats]] = []
    scaling: tuple[Floats, Floats] | None = None
    open_, output = False, None  # whether the last dense layer has no ReLU yet; the end, once reached
    for name, part in _flat(module, ""):
        kind = next((base.__name__ for base in type(part).__mro__ if base.__name__ in _KNOWN), None)
        _check_attributes(request, name, part, kind)
        if kind in _IGNORED:
            continue
        if output is not None or kind is None:
            raise _unsupported(request, name, part)
        if kind == "Linear":
            weights = _array(part.weight).T
            bias = np.zeros(weights.shape[1]) if part.bias is None else _array(part.bias)
            if open_:  # two dense layers without ReLU between them are one
                before, start = layers.pop()
                weights, bias = before @ weights, start @ weights + bias
            layers.append((weights, bias))
            open_ = True
        elif kind == "ReLU" and open_:
            open_ = False
        elif kind == "BatchNorm1d" and (open_ or not layers) and part.running_var is not None:
            factor, shift = _batch_norm(part)
            if layers:
                layers[-1] = layers[-1][0] * factor, layers[-1][1] * factor + shift
            else:
                before, start = scaling or (np.ones_like(factor), np.zeros_like(factor))
                scaling = before * factor, start * factor + shift
        elif kind in _ENDS and open_ and (kind == "Sigmoid" or layers[-1][1].size > 1):
            output = _ENDS[kind]
        else:
            raise _unsupported(request, name, part)
    if not layers or not open_:
        raise request.refuse("does not end with a Linear layer", "leave out the last ReLU")
    network = FloatNetwork(
        np.zeros(len(layers[0][0])),
        np.ones(len(layers[0][0])),
        tuple(weights for weights, _ in layers),
        tuple(bias for _, bias in layers),
        output or "none",
    )
    if scaling is not None:
        network = affine_input(network, *scaling)
    return import_network(
        network,
        request,
        classes=class_names(request, list(range(network.n_classes))),
        source=f"PyTorch {library('torch').__version__} {type(module).__name__}",
        predict=_predict(module, output),
    )


# Module -> attribute that chooses what it works on, and the values with which that is the row of each packet.
_OVER_ROWS = {
    "Flatten": ("start_dim", (1, -1)),
    "Softmax": ("dim", (1, -1, None)),
    "LogSoftmax": ("dim", (1, -1, None)),
}
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


def _check_attributes(request: Request, name: str, part: Any, kind: str | None) -> None:
    """Raises InputError for attributes with which a module does not do what its class name says."""
    if any(getattr(part, hooks, None) for hooks in _HOOKS):
        raise request.refuse(
            f"its module {name} ({type(part).__name__}) has hooks, which may change what it computes",
            "remove them; for torch.nn.utils' weight_norm and spectral_norm there are functions that do",
        )
    attribute, allowed = _OVER_ROWS.get(kind or "", ("", ()))
    if attribute and getattr(part, attribute) not in allowed:
        raise request.refuse(
            f"its module {name} ({kind}) has {attribute}={getattr(part, attribute)}, which mixes packets",
            f"give it {attribute}=1",
        )


_KNOWN = ("Linear", "ReLU", "BatchNorm1d", *_IGNORED, *_ENDS)


def _flat(module: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """The modules of a Sequential and of Sequentials in it, in order, by name."""
    for name, part in module.named_children():
        if any(base.__name__ == "Sequential" for base in type(part).__mro__):
            yield from _flat(part, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", part


def _array(tensor: Any) -> Floats:
    return np.asarray(tensor.detach().cpu().numpy(), np.float64)


def _batch_norm(part: Any) -> tuple[Floats, Floats]:
    """Factor and shift of a BatchNorm1d as it is used after training."""
    mean, variance = _array(part.running_mean), _array(part.running_var)
    gamma = np.ones_like(mean) if part.weight is None else _array(part.weight)
    beta = np.zeros_like(mean) if part.bias is None else _array(part.bias)
    factor = gamma / np.sqrt(variance + part.eps)
    return factor, beta - mean * factor


def _unsupported(request: Request, name: str, part: Any) -> Exception:
    return request.refuse(
        f"its module {name} ({type(part).__name__}) is not supported there",
        "train a Sequential of Linear and ReLU, with BatchNorm1d first or behind a Linear",
    )


def _predict(module: Any, output: Output | None) -> Predict:
    def predict(x: Rows) -> Any:
        torch = library("torch")
        first = next(module.parameters())
        was_training = module.training
        module.eval()
        try:
            with torch.no_grad():
                result = module(torch.from_numpy(x).to(first)).cpu().numpy()
        finally:
            module.train(was_training)
        if result.shape[1] == 1:
            return (result[:, 0] > (0.5 if output == "sigmoid" else 0)).astype(np.int32)
        return result.argmax(axis=1).astype(np.int32)

    return predict

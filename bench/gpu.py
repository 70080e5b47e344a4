# SPDX-License-Identifier: Apache-2.0
"""A binary network on a CUDA device, by PyTorch (siracusano-n3ic, Figure 3), there and back.

A batch is the network's input bits, a byte each, in page-locked memory. It is copied to the device, the
network runs there as products of +-1, and the classes are copied back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from statistics import median
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirewise.errors import WirewiseError
from wirewise.models import BinaryMlp

CALLS = 200  # a round


def missing() -> str | None:
    """Why there is nothing to measure; None where there is."""
    try:
        torch = import_module("torch")
    except ImportError:
        return "PyTorch is not installed"
    return None if torch.cuda.is_available() else "PyTorch has no CUDA device"


def measure(
    model: BinaryMlp, rows: NDArray[np.int64], sizes: Sequence[int], rounds: int, device: str = "cuda"
) -> list[dict[str, Any]]:
    """A row for each size of a batch, of the whole way and of the copies alone.

    Raises WirewiseError if the device's classes are not the model's.
    """
    torch = import_module("torch")
    bits = np.concatenate([source.encode_rows(rows[:, source.feature]) for source in model.inputs], axis=1)
    network = _network(torch, model, device)
    with torch.inference_mode():
        said = network(torch.from_numpy(bits.astype(np.uint8)).to(device)).cpu().numpy()
    differing = np.flatnonzero(said != model.predict(rows)[0])
    if differing.size:
        raise WirewiseError(f"the network on {device} is not the model: they differ on row {differing[0]}")
    results = []
    for size in sizes:
        given = torch.from_numpy(np.resize(bits, (size, bits.shape[1])).astype(np.uint8))
        given = given.pin_memory() if device == "cuda" else given
        whole = _timed(torch, lambda bits: network(_there(bits, device)).cpu(), given, rounds)
        copies = _timed(torch, lambda bits: _there(bits, device)[:, 0].cpu(), given, rounds)
        for what, taken in (("inference", whole), ("copies alone", copies)):
            ns = median(taken)
            results.append(
                {
                    "batch": size,
                    "what": what,
                    "device": torch.cuda.get_device_name() if device == "cuda" else device,
                    "per_second": round(size * 1e9 / ns),
                    "latency": {
                        "calls": len(taken),
                        "median_ns": ns,
                        "p95_ns": float(np.percentile(taken, 95)),
                        "p99_ns": float(np.percentile(taken, 99)),
                    },
                }
            )
    return results


def _network(torch: Any, model: BinaryMlp, device: str) -> Callable[[Any], Any]:
    """From bits (n, inputs), uint8, to classes (n,). At most 1,024 of +-1 are added up: exact in float32."""
    layers, fan_in = [], model.input_bits
    for layer in model.layers:
        rows = [[1.0 if word >> k & 1 else -1.0 for k in range(fan_in)] for word in layer.weights]
        # agreement = (fan_in + product) / 2, so a threshold or bias counts twice.
        twice = torch.tensor([2.0 * number for number in layer.threshold], dtype=torch.float64)
        layers.append((torch.tensor(rows, device=device).T.contiguous(), twice.to(device), fan_in))
        fan_in = len(layer.weights)

    def run(bits: Any) -> Any:
        signs = bits.to(torch.float32) * 2 - 1
        for weights, twice, inputs in layers[:-1]:
            signs = ((signs @ weights + inputs) >= twice).to(torch.float32) * 2 - 1
        weights, twice, inputs = layers[-1]
        return (signs @ weights + inputs + twice).argmax(dim=1)

    return run


def _there(bits: Any, device: str) -> Any:
    return bits.to(device, non_blocking=True)


def _timed(torch: Any, work: Callable[[Any], Any], given: Any, rounds: int) -> list[int]:
    """Nanoseconds of each call; what it returns is in the host's memory, so it has ended."""
    taken = []
    with torch.inference_mode():
        for _ in range(10):
            work(given)
        for _ in range(rounds * CALLS):
            start = perf_counter_ns()
            work(given)
            taken.append(perf_counter_ns() - start)
    return taken

# SPDX-License-Identifier: Apache-2.0
"""The files of `ww_test_bench`, which sends records and compares results with those of the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wirewise.models import BinaryMlp, Model
from wirewise.targets.verilog.input_code import WORD
from wirewise.targets.verilog.text import library

NAME = "ww_test_bench"


@dataclass(frozen=True)
class Load:
    """A network loaded while records come in: the words of the stream, and the results from then on."""

    words: Sequence[int]
    expected: Sequence[int]


def records(model: Model, features: Sequence[int], rows: NDArray[np.int64]) -> list[int]:
    """Records of rows. features: what a record holds; none: the input bits of the network."""
    if features:
        return [packed(row) for row in rows[:, list(features)].tolist()]
    assert isinstance(model, BinaryMlp)
    bits = np.concatenate([source.encode_rows(rows[:, source.feature]) for source in model.inputs], axis=1)
    return [sum(bit << k for k, bit in enumerate(row)) for row in bits.tolist()]


def results(model: Model, rows: NDArray[np.int64]) -> list[int]:
    """What `m_axis_tdata` says of rows: the class in the lowest 64 bits, then each score."""
    classes, scores = model.predict(rows)
    words = np.concatenate([classes[:, None].astype(np.int64), scores.astype(np.int64)], axis=1)
    return [packed(row) for row in words.tolist()]


def packed(words: Sequence[int]) -> int:
    """64-bit words side by side, the first one lowest."""
    mask = (1 << WORD) - 1
    return sum((word & mask) << WORD * index for index, word in enumerate(words))


def memory(values: Sequence[int], bits: int) -> str:
    """A file for $readmemh: a line for each value."""
    digits = -(-bits // 4)
    return "".join(f"{value:0{digits}x}\n" for value in values)


def test_bench(
    records: Sequence[int],
    expected: Sequence[int],
    *,
    record_bits: int,
    width: int,
    outputs: int,
    loads: bool,
    load: Load | None = None,
) -> dict[str, str]:
    """The files. outputs: scores of a result. loads: whether the model's weights can be loaded."""
    beats, result = -(-record_bits // width), WORD * (1 + outputs)
    parts = [record >> width * beat & (1 << width) - 1 for record in records for beat in range(beats)]
    files = {
        "records.memh": memory(parts, width),
        "expected.memh": memory(expected, result),
    }
    words: Sequence[int] = ()
    if load:
        words = load.words
        files |= {
            "load.memh": memory(words, WORD),
            "expected_loaded.memh": memory(load.expected, result),
        }
    sizes = {
        "WIDTH": width, "BEATS": beats, "RESULT": result, "RECORDS": len(records), "WORDS": len(words),
    }  # fmt: skip
    lines = ["// SPDX-License-Identifier: Apache-2.0", *(f"`define WW_{k} {v}" for k, v in sizes.items())]
    lines += ["`define WW_LOADS"] * loads + ["`define WW_LOADING"] * bool(load)
    return files | {f"{NAME}.vh": "\n".join(lines) + "\n"} | library((NAME,))

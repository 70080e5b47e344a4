# SPDX-License-Identifier: Apache-2.0
"""How networks are cut, and the errors that say what would fit. Nothing is compiled."""

from __future__ import annotations

import numpy as np
import pytest

from wirewise.errors import InputError
from wirewise.feature_sets import PRESETS
from wirewise.models import random_binary_mlp, random_fixed_point_mlp, random_quantized_mlp
from wirewise.targets import ebpf
from wirewise.targets.ebpf import shapes
from wirewise.targets.ebpf.network_plan import plan

LIMIT = shapes.FUNCTION_INSTRUCTIONS


@pytest.mark.parametrize(
    ("sizes", "shape", "programs"),
    [
        ([10, 20, 30], "inline", [[(0, 1, 2)]]),
        ([LIMIT // 2, LIMIT // 2, LIMIT // 2], "functions", [[(0, 1), (2,)]]),
        ([2 * LIMIT, 10], "functions", [[(0,), (1,)]]),
        ([400_000, 400_000], "tail-calls", [[(0,)], [(1,)]]),
    ],
)
def test_the_cheapest_shape_that_fits(
    sizes: list[int], shape: str, programs: list[list[tuple[int, ...]]]
) -> None:
    chosen = plan(sizes, 12, "auto")
    assert chosen.shape == shape
    assert [list(program) for program in chosen.programs] == programs
    assert chosen.instructions > sum(sizes)


def test_every_piece_runs_once_in_order() -> None:
    sizes = np.random.default_rng(1).integers(1, 30_000, 400).tolist()
    for shape in shapes.SHAPES:
        chosen = plan(sizes, 12, shape)
        assert [p for program in chosen.programs for chunk in program for p in chunk] == list(range(400))


def test_what_fits_no_shape_is_refused() -> None:
    with pytest.raises(InputError, match="33 tail calls; the kernel allows 32: train a network with fewer"):
        plan([400_000] * 33, 12, "auto")
    with pytest.raises(
        InputError, match="shape 'loop': is not known; there are: auto, inline, functions, tail-calls"
    ):
        plan([1], 12, "loop")


def test_the_sources_say_what_was_chosen() -> None:
    rng, feature_set = np.random.default_rng(1), PRESETS["hara2023"]
    for model in (random_quantized_mlp(rng), random_fixed_point_mlp(rng), random_binary_mlp(rng)):
        sources = {shape: ebpf.emit(model, feature_set, shape=shape) for shape in shapes.SHAPES}
        assert {shape: one.shape for shape, one in sources.items()} == {
            shape: shape for shape in shapes.SHAPES
        }
        assert "noinline" not in sources["inline"].files["ww_model.h"]
        assert "__noinline int ww_pieces_0" in sources["functions"].files["ww_model.h"]
        assert sources["tail-calls"].tail_calls == ("ww_model_1",)
        assert "ww_model_1" in sources["tail-calls"].files["ww_tail_calls.h"]


def test_equal_models_give_equal_sources() -> None:
    first, second = (
        ebpf.emit(random_quantized_mlp(np.random.default_rng(4)), PRESETS["hara2023"]) for _ in range(2)
    )
    assert first == second

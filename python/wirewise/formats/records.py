# SPDX-License-Identifier: Apache-2.0
"""What the free records of a manifest must have, so that whoever shows them finds it.

`training`, `fidelity`, `accuracy` and `verifier` come from several programs and versions, and may hold more.
A record that is there has what is listed here, of these kinds.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from wirewise.files import describe_validation_error

_MOST = 2**63 - 1
Whole = Annotated[int, Field(ge=-_MOST, le=_MOST)]
Number = Annotated[float, Field(strict=True)] | Whole
_SHARE_KEYS = ("accuracy", "packets", "classes", "confusion")


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True, strict=True)


class Scores(_Part):
    """A class in a report."""

    name: str
    packets: Whole
    precision: Number
    recall: Number
    f1: Number


class Reported(_Part):
    """A report on rows."""

    accuracy: Number
    classes: list[Scores]


class HeldOut(_Part):
    """Estimator and integers on rows that neither has seen."""

    how: str
    packets: Whole
    lost: Number
    estimator: Reported
    model: Reported

    @model_validator(mode="after")
    def _same_classes(self) -> HeldOut:
        if len(self.estimator.classes) != len(self.model.classes):
            raise ValueError("estimator and model do not have the same classes")
        return self


class Clamped(_Part):
    """A feature that is outside the range of its input."""

    feature: str | Whole
    low: Whole
    high: Whole
    below: Whole
    above: Whole


class Saturated(_Part):
    """A layer whose neurons reach the end of their range."""

    layer: Whole
    rows: Whole
    neuron: Whole
    neuron_rows: Whole


class Saturation(_Part):
    """See `wirewise.quantize.saturation`."""

    rows: Whole
    features: list[Clamped]
    layers: list[Saturated]


class Compared(_Part):
    """An operating point for another number of verdicts in a row."""

    after: Whole
    by: Whole
    recall: Number
    loss: Number


class LateMargin(_Part):
    """The margin from some packet of a flow on."""

    feature: Whole
    start: Whole
    by: Whole


class OperatingPoint(_Part):
    """See `wirewise.evaluate.operating_point`."""

    wish: Number
    by: Whole
    benign: Whole
    attack: Whole
    loss: Number
    elsewhere: Number | None
    recall: Number
    loss_before: Number
    recall_before: Number
    how: str
    after: Whole = 1
    compared: list[Compared] | tuple[Compared, ...] = ()
    late: LateMargin | None = None


class OpenSet(_Part):
    """See `wirewise.evaluate.open_set`."""

    rows: Whole
    how: str
    benign: Number | None
    attack: Number | None


class Difference(_Part):
    """A row of which estimator and integers say another class."""

    row: Whole
    model: str
    estimator: str
    features: list[Whole]


class Fidelity(_Part):
    """See `wirewise.evaluate.fidelity`; without an estimator nothing was compared."""

    rows: Whole | None = None
    agree: Whole | None = None
    differences: list[Difference] | None = None
    held_out: HeldOut | None = None
    saturation: Saturation | None = None
    operating_point: OperatingPoint | None = None
    open_set: OpenSet | None = None

    @model_validator(mode="after")
    def _whole(self) -> Fidelity:
        if len({value is None for value in (self.rows, self.agree, self.differences)}) > 1:
            raise ValueError("rows, agree and differences belong together")
        return self


class Verifier(_Part):
    """The kernel verifier's figures for the program."""

    kernel: str
    verified_instructions: Whole
    load_ms: Number


class Confused(_Part):
    """The report of a training, with its confusion matrix."""

    accuracy: Number
    packets: Whole
    classes: list[Scores]
    confusion: list[list[Whole]]

    @model_validator(mode="after")
    def _square(self) -> Confused:
        if {len(self.classes)} != {len(self.confusion), *map(len, self.confusion)}:
            raise ValueError("the confusion matrix does not have the classes")
        return self


class Split(_Part):
    """How a training split its table."""

    table_sha256: str
    test_share: Number
    seed: Whole


def _accuracy(facts: dict[str, Any]) -> dict[str, Any]:
    """Other programs may have recorded other facts."""
    return _check(Confused, facts) if facts.keys() >= set(_SHARE_KEYS) else facts


def _training(facts: dict[str, Any]) -> dict[str, Any]:
    return _check(Split, facts) if "table_sha256" in facts else facts


_Facts = TypeVar("_Facts", bound=dict[str, Any])


def _check(kind: type[BaseModel], facts: _Facts) -> _Facts:
    try:
        kind.model_validate(facts)
    except ValidationError as error:
        raise ValueError(describe_validation_error(error)) from error
    return facts


FidelityFacts = Annotated[dict[str, Any], AfterValidator(lambda facts: _check(Fidelity, facts))]
VerifierFacts = Annotated[dict[str, Any], AfterValidator(lambda facts: _check(Verifier, facts))]
AccuracyFacts = Annotated[dict[str, Any], AfterValidator(_accuracy)]
TrainingFacts = Annotated[dict[str, Any], AfterValidator(_training)]

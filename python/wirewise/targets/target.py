# SPDX-License-Identifier: Apache-2.0
"""What a target is: something that a model and its feature set are lowered to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Generic, TypeVar

from wirewise.errors import InputError
from wirewise.feature_sets import FeatureSet
from wirewise.formats.manifest import Flow, Program
from wirewise.models import Model

Step = Callable[[str], AbstractContextManager[None]]
"""Shows what is done next, while it is done."""


@dataclass(frozen=True)
class Sources:
    """What a target writes. files: name -> text; a name is a path below the folder they are written to."""

    files: dict[str, str]

    def about(self) -> list[tuple[str, str]]:
        """Facts (label, text) for people: what was chosen, what is predicted."""
        return []


@dataclass(frozen=True)
class Made:
    """What becomes of sources in a bundle.

    object_file : the program. tools : name -> version of what made it. unverified : why nobody has checked it
    on this machine; "" if somebody has.
    """

    object_file: bytes
    program: Program
    flow: Flow
    tools: dict[str, str]
    unverified: str


def option(
    default: Any, help: str, *, yes: str | None = None, no: str | None = None, build: bool = False
) -> Any:
    """A field of a target's options. The command line has it by its name, with this help; one with `yes` and
    `no`, its values, as --name and --no-name. build: it is about building, and the sources are the same
    whatever it is.
    """
    return field(default=default, metadata={"help": help, "yes": yes, "no": no, "build": build})


_Options = TypeVar("_Options")
_Sources = TypeVar("_Sources", bound=Sources)


class Target(ABC, Generic[_Options, _Sources]):
    """A target. `wirewise.targets.TARGETS` has them all.

    name : as in `--target NAME`. summary : for people, a few words. options : a frozen dataclass made of
    `option`s, all with defaults; `--target` has them on the command line.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    options: type[_Options]

    @abstractmethod
    def emit(self, model: Model, feature_set: FeatureSet, options: _Options) -> _Sources:
        """The sources. Pure: needs no tool and no privilege.

        Raises InputError where model and feature set do not fit each other, or exceed a limit of the target,
        saying what would fit.
        """

    def choose(self, given: Mapping[str, object], program: Program | None = None) -> _Options:
        """The options, some of them given by name. program : of the bundle whose sources are wanted; what is
        not given is as it was for that. Raises InputError for a name that the target does not have.
        """
        known = [one.name for one in fields(self.options)]  # type: ignore[arg-type]
        for name in given:
            if name not in known:
                raise InputError(
                    f"option {name!r}",
                    f"is none of target {self.name}",
                    f"it has {', '.join(known) or 'no options'}",
                )
        like = self.options_of(program) if program else {}
        return self.options(**{**like, **given})

    def options_of(self, program: Program) -> dict[str, Any]:
        """By name, those options with which the sources of a bundle's program were emitted, if this target
        made it.
        """
        return {}


class ProgramTarget(Target[_Options, _Sources]):
    """A target whose sources become the program of a bundle. Others end with their sources."""

    @abstractmethod
    def build(
        self,
        sources: _Sources,
        model: Model,
        feature_set: FeatureSet,
        classes: Sequence[str],
        options: _Options,
        step: Step,
    ) -> Made:
        """The program. classes : names, index = class id.

        Raises MissingFeatureError without the tools for it, RefusedError if it is refused.
        """

# SPDX-License-Identifier: Apache-2.0
"""A bundle on an interface, by way of the agent, with the same guards as on the command line."""

from __future__ import annotations

from dataclasses import dataclass, field
from os import PathLike
from types import TracebackType
from typing import Any, TypeAlias

import polars as pl

from wirewise import agent
from wirewise.advice import in_python_terms
from wirewise.api.inputs import Document, lasting_document
from wirewise.errors import InputError
from wirewise.frames import Kind, give

BundleFile: TypeAlias = str | PathLike[str]
"""Not as text, which would be looked at before the call: `_run` says what to do with a bundle in memory."""


@dataclass(frozen=True)
class Attachment:
    """What runs on an interface. It outlives this process, unless it is used as a context manager.

    said : what the agent said when it was attached, the object of `wirewised run --json`.
    """

    interface: str
    netns: str | None
    said: dict[str, Any] = field(repr=False)

    def status(self) -> dict[str, Any]:
        """Bundle, policy, mode and plane as they are now: the object of `wirewised status --json`."""
        return self._call("status")

    def counters(self) -> dict[str, Any]:
        """All counters since it was attached: the object of `wirewised stats --json`."""
        return self._call("stats")

    def stats(self, frame: Kind = "polars") -> Any:
        """A row for each class, as a data frame: `class`, `action`, `packets`, `bytes`, packets by outcome
        (`pass`, `drop`, `limited`, `would_drop`, `would_limit`, `established`, `acted`, `would_act`,
        `not_acted`, `ban`, `would_ban`).
        """
        rows = [
            {
                "class": row["name"],
                **{name: row[name] for name in ("action", "packets", "bytes")},
                **{name.replace("-", "_"): found["packets"] for name, found in row["outcomes"].items()},
            }
            for row in self.counters()["classes"]
        ]
        return give(pl.DataFrame(rows), frame)

    def detach(self) -> None:
        """Take it off the interface; every packet passes again."""
        self._call("detach")

    def __enter__(self) -> Attachment:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.detach()

    def _call(self, verb: str) -> dict[str, Any]:
        return agent.call(verb, "--interface", self.interface, *_namespace(self.netns))


@in_python_terms
def run(
    bundle: BundleFile,
    interface: str,
    policy: Document | None = None,
    *,
    mode: str = "observe",
    plane: str | None = None,
    order: str | None = None,
    offloads_off: bool = False,
    yes: bool = False,
    allow_current_session: bool = False,
    replace: bool = False,
    netns: str | None = None,
) -> Attachment:
    """Attach a bundle to an interface, as `wirewised run` does; it needs the same privileges.

    It stays attached when this process ends; in a `with` block it is detached at the block's end. Running
    again with the same bundle changes policy and mode in place.

    - bundle: a file; `wirewised status` names it later on, so it must outlive this call.
    - policy: a policy file, or its contents as a dict, kept in /run/wirewise until the next
      boot, where `wirewised status` finds it.
    - interface: whose packets are judged.
    - mode: "observe", in which every packet passes and drops are only counted; or "enforce".
    - plane: "xdp-native" (in the driver), "xdp-generic", "tc-ingress" or "tc-egress"; None is native. There
      is no silent fallback.
    - order: "first" (the default) or "last" among the programs of others, at TC or in a dispatcher of libxdp;
      there also a run priority, such as "20".
    - offloads_off: switch off what merges packets before the program, until it is detached.
    - yes: enforce a policy that can drop and allows nobody, which is refused otherwise: it may lock you out.
    - allow_current_session: allow the address from which you are logged in over SSH.
    - replace: take the place of another program, or of another bundle.
    - netns: the name or path of a network namespace to enter first.

    Gives an `Attachment`. `check` says what would be done instead.

    Raises InputError for files that do not fit, MissingFeatureError where a privilege is missing, or
    something that driver or kernel would need, RefusedError if the kernel refuses the program.

    """
    options = [("--yes", yes), ("--allow-current-session", allow_current_session), ("--replace", replace)]
    flags = [name for name, wanted in options if wanted]
    flags += ["--order", order] if order else []
    flags += ["--offloads", "off"] if offloads_off else []
    return Attachment(interface, netns, _run(bundle, interface, policy, mode, plane, netns, flags))


@in_python_terms
def check(
    bundle: BundleFile,
    interface: str,
    policy: Document | None = None,
    *,
    mode: str = "observe",
    plane: str | None = None,
    netns: str | None = None,
) -> dict[str, Any]:
    """What `run` would do, and whether it could: the object of `wirewised run --dry-run --json`.

    Nothing is attached. Arguments and errors as of `run`.
    """
    return _run(bundle, interface, policy, mode, plane, netns, ["--dry-run"])


def _run(
    bundle: BundleFile,
    interface: str,
    policy: Document | None,
    mode: str,
    plane: str | None,
    netns: str | None,
    flags: list[str],
) -> dict[str, Any]:
    if not isinstance(bundle, str | PathLike):
        raise InputError(
            f"bundle of type {type(bundle).__name__}", "is no file, and what is attached outlives Python",
            "write the bundle to a file first",
        )  # fmt: skip
    rules = [] if policy is None else ["--policy", str(lasting_document(policy, "policy"))]
    chosen = ["--plane", plane] if plane else []
    return agent.call(
        "run", "--bundle", str(bundle), "--interface", interface, "--mode", mode, *rules, *chosen, *flags,
        *_namespace(netns), asks=False,
    )  # fmt: skip


def _namespace(netns: str | None) -> list[str]:
    return ["--netns", netns] if netns else []

# SPDX-License-Identifier: Apache-2.0
"""Why a packet gets its verdict, and where its time goes."""

from __future__ import annotations

from pathlib import Path

from wirewise import explanation, stages
from wirewise.advice import in_python_terms
from wirewise.api.inputs import AnyBundle, AnyPath, Document, bundle_file, document_file
from wirewise.explanation import Explanation
from wirewise.formats.bundle import Bundle
from wirewise.stages import Cost


@in_python_terms
def explain(
    capture: AnyPath,
    packet: int,
    bundle: AnyBundle,
    policy: Document | None = None,
    *,
    mode: str = "observe",
    plane: str | None = None,
    reference_only: bool = False,
) -> Explanation:
    """Why one packet of a capture gets its verdict: headers, features, scores, the trees' paths, the rule.

    The capture is run up to that packet through the Python reference and through the bundle's program, and
    the two are compared. Nothing is attached.

    - capture: a pcap or pcapng file of Ethernet packets.
    - packet: its number, from 1: the column `packet` of `features` and `replay`.
    - bundle, policy, mode: as in `replay`.
    - plane: "kernel", "kernel-tc" (the same, as a program of TC) or "engine", where the program runs; None is
      the kernel where this process may load programs.
    - reference_only: do not run the program.

    Gives an `Explanation`; its `reference` and `object` are dictionaries with the keys of `wirewise explain
    --json`.

    Raises InputError for a packet that the capture does not have, or files that cannot be read.

    """
    with bundle_file(bundle) as bundle_path, document_file(policy, "policy") as policy_path:
        return explanation.explain(
            Path(capture), packet, bundle_path, policy_path,
            mode=mode, plane=plane, reference_only=reference_only,
        )  # fmt: skip


@in_python_terms
def cost(bundle: AnyBundle, *, measure: bool | None = None) -> Cost:
    """Where the time of a bundle goes: parsing, flow table and features, the model.

    - bundle: the path of one, a `Bundle`, or what `compile` gives.
    - measure: whether to run the programs in this kernel, which takes some seconds and the privilege to load
      them; None is if that is allowed. Nothing is attached.

    Gives a `Cost` with the instructions of each stage, and its ns a packet (packets of one flow) if they were
    measured; a stage that costs less than the noise can come out below 0.

    Raises InputError for what is no bundle, MissingFeatureError without clang, or if it must measure and may
    not.
    """
    with bundle_file(bundle) as path:
        return stages.cost(Bundle.read(path), measure=measure)

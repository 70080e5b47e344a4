# SPDX-License-Identifier: Apache-2.0
"""The action `dscp`: the reference of ww_write_dscp in bpf/act/steer.h."""

from __future__ import annotations

from wirewise.feature_sets.packet import parse_link

_IPV4, _IPV6 = 0x0800, 0x86DD


def with_dscp(frame: bytes, dscp: int) -> bytes:
    """The frame with another DSCP in its outermost IP header, and the same ECN.

    The checksum of IPv4 is updated, not made anew (RFC 1624, equation 3), so one that was wrong stays so.
    """
    link = parse_link(frame)
    assert link is not None  # nothing else is classified
    kind, at = link.network_type, link.offset
    changed = bytearray(frame)
    word = int.from_bytes(frame[at : at + 2], "big")
    if kind == _IPV4:
        after = (word & ~0x00FC) | dscp << 2
        checksum = int.from_bytes(frame[at + 10 : at + 12], "big")
        total = (~checksum & 0xFFFF) + (~word & 0xFFFF) + after
        while total > 0xFFFF:
            total = (total >> 16) + (total & 0xFFFF)
        changed[at + 10 : at + 12] = (~total & 0xFFFF).to_bytes(2, "big")
    else:
        assert kind == _IPV6  # nothing else is classified
        after = (word & ~0x0FC0) | dscp << 6
    changed[at : at + 2] = after.to_bytes(2, "big")
    return bytes(changed)

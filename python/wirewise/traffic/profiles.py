# SPDX-License-Identifier: Apache-2.0
"""Kinds of traffic, and profiles: what a mix of them stands for. `wirewise traffic --list` shows both.

A kind is one line in KINDS_BY_NAME; a profile one in PROFILES.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random

from wirewise.errors import InputError, choose
from wirewise.registry import Registry

from . import attacks, automation, benign, intrusions, mobile, reflection, sessions
from .hosts import Recorder

BENIGN = "benign"
Script = Callable[[Recorder, Random, int, float], None]


@dataclass(frozen=True)
class Kind:
    """One kind of traffic. label : what a classifier is to say of it. script : plays one conversation from a
    start in seconds; None: a whole flood is drawn at once (attacks.syn_flood).
    """

    name: str
    label: str
    doc: str
    script: Script | None


def _kind(name: str, doc: str, script: Script | None, label: str | None = None) -> Kind:
    return KINDS_BY_NAME.add(Kind(name, name if label is None else label, doc, script))


KINDS_BY_NAME: Registry[Kind] = Registry("kind of traffic", lambda kind: kind.name)
# Their numbers are in rows, and seed what is drawn: the order stays.
_kind("web", "HTTPS and HTTP: pages, idle connections, chats, failures", benign.web, BENIGN)
_kind("dns", "questions and answers of resolvers and name servers", benign.dns, BENIGN)
_kind("ntp", "hosts setting their clocks", benign.ntp, BENIGN)
_kind("quic", "HTTP/3 and calls", benign.quic, BENIGN)
_kind("bulk", "backups, mirrors, uploads", benign.bulk, BENIGN)
_kind("syn-flood", "SYNs from spoofed addresses, in waves of four tools", None)
_kind("udp-amplification", "reflectors of five protocols", attacks.udp_amplification)
_kind("port-scan", "SYN, connect, stateless, odd flags, UDP", attacks.port_scan)
_kind("slow-http", "Slowloris, slow bodies, slow reading", attacks.slow_http)
for _name, _family in reflection.FAMILIES.items():
    _kind(_name, _family.doc, partial(reflection.reflection, family=_family))
_kind("syn", "SYNs of bots with real stacks", reflection.syn_connections)
_kind("udp", "datagrams of bots to fixed or random ports", reflection.udp_flood)
_kind("tcp-flags", "floods of ACK, SYN-ACK, RST, FIN or PSH-ACK without a connection", intrusions.other_flags)
_kind("botnet", "an inside host that asks its controller for orders", intrusions.botnet)
_kind("brute-force", "logins by SSH and FTP", intrusions.brute_force)
_kind("dos", "HTTP requests without end, or as slow as can be", intrusions.dos)
_kind("infiltration", "a download, then a shell to the outside", intrusions.infiltration)
_kind("web-attack", "passwords, scripts and SQL tried in forms", intrusions.web_attack)
_kind("urllc", "control loops of 1 to 10 ms, in GTP-U", mobile.urllc)
_kind("embb", "video in segments, in GTP-U", mobile.embb)
_kind("ping", "echo requests of monitoring and of people, and answers", benign.ping, BENIGN)
_kind(
    "icmp-flood",
    "ICMP echoes, answers or errors without end, some from forged addresses",
    attacks.icmp_flood,
)
_kind("host-scan", "echo, SYN or UDP to host after host", attacks.host_scan)
_kind("call", "calls: datagrams every 10 to 60 ms, both ways", sessions.call, "interactive")
_kind("shell", "shells and remote desktops: keys, and what they show", sessions.shell, "interactive")
_kind("transfer", "files and backups over TCP or QUIC", sessions.transfer, "bulk")
_kind("video", "video in segments over TCP or QUIC", sessions.video)
_kind(
    "many-reflectors",
    "amplification by up to a thousand servers that answer once or twice",
    reflection.many_reflectors,
    "udp-amplification",
)
_kind(
    "tcp-reflection",
    "SYN-ACKs and resets of servers to a host that never asked them",
    reflection.tcp_reflection,
)
_kind(
    "automation",
    "programs that ask again and again: calls of an API, checks, scrapes, polls, look-ups",
    automation.automation,
    BENIGN,
)
ALL_KINDS = tuple(KINDS_BY_NAME)


@dataclass(frozen=True)
class Profile:
    """A mix of kinds: relative shares of the packets towards the protected network."""

    name: str
    doc: str
    mix: Mapping[str, float]


PROFILES: Registry[Profile] = Registry("profile of traffic", lambda profile: profile.name)


def _profile(name: str, doc: str, **mix: float) -> Profile:
    return PROFILES.add(Profile(name, doc, {kind.replace("_", "-"): share for kind, share in mix.items()}))


_OFFICE = {"web": 0.35, "dns": 0.08, "ntp": 0.02, "quic": 0.25, "bulk": 0.30}


def _office(part: float) -> Mapping[str, float]:
    """The mix of a small network in ordinary use, as a part of another mix."""
    return {kind: share * part for kind, share in _OFFICE.items()}


DEMO = _profile(
    "demo", "what `make demo` sends: a small network, a SYN flood, amplification, scans, slow HTTP",
    web=0.20, dns=0.05, ntp=0.01, quic=0.14, bulk=0.20, syn_flood=0.20, udp_amplification=0.12,
    port_scan=0.065, slow_http=0.015,
)  # fmt: skip
_profile("benign", "a small network in ordinary use", **_OFFICE)
_profile("benign-web", "visitors of web sites, and little else", web=0.60, dns=0.05, ntp=0.01, quic=0.34)
_profile("benign-bulk", "backups and mirrors by night", bulk=0.90, dns=0.03, ntp=0.02, web=0.05)
_profile(
    "hara2023", "seven classes: normal, botnet, brute force, DoS, infiltration, scans, web attacks",
    **_office(0.5), botnet=0.05, brute_force=0.09, dos=0.15,
    infiltration=0.05, port_scan=0.10, web_attack=0.06,
)  # fmt: skip
_profile(
    "cic-ddos2019", "the families of CIC-DDoS2019 (SYN, UDP, DNS, LDAP, NTP, SSDP, ...) and benign",
    **_office(0.45),
    **dict.fromkeys([name.replace("-", "_") for name in reflection.FAMILIES], 0.05), syn=0.05, udp=0.05,
)  # fmt: skip
_profile(
    "floods", "TCP floods alone: SYNs, spoofed and not, and other flags, among visitors",
    web=0.4, syn_flood=0.2, syn=0.2, tcp_flags=0.2,
)  # fmt: skip
_profile(
    "denial", "floods of SYNs, UDP and ICMP, amplification, scans of ports and hosts, in ordinary use",
    **_office(0.45), ping=0.01,
    **dict.fromkeys([name.replace("-", "_") for name in reflection.FAMILIES], 0.01), udp_amplification=0.06,
    syn_flood=0.12, syn=0.05, udp=0.07, icmp_flood=0.06, port_scan=0.07, host_scan=0.07,
)  # fmt: skip
# Without floods of UDP and ICMP, whose packets look like those of a call or a download: a model that learns
# them finds fewer kinds of attacks.
_profile(
    "many-sources", "floods of SYNs, amplification by up to a thousand servers, scans, in ordinary use",
    **_office(0.45), ping=0.01, syn_flood=0.16, syn=0.06,
    udp_amplification=0.06, many_reflectors=0.10, tcp_reflection=0.07, port_scan=0.08, host_scan=0.08,
)  # fmt: skip
_profile(
    "steering", "sessions by what they need: interactive, bulk and video",
    call=0.3, shell=0.1, transfer=0.3, video=0.3,
)  # fmt: skip
_profile("galvao2026", "URLLC and eMBB of galvao2026, in GTP-U tunnels to a UPF", urllc=0.5, embb=0.5)


def mix_of(name: str) -> Mapping[str, float]:
    """The mix of a profile, or of one kind alone. Raises InputError, which names what there is."""
    if name in PROFILES:
        return PROFILES[name].mix
    if name in KINDS_BY_NAME:
        return {name: 1.0}
    raise InputError(
        f"traffic {name!r}", "is neither a profile nor a kind", choose(name, [*PROFILES, *ALL_KINDS])
    )


def check_mix(mix: Mapping[str, float]) -> None:
    """Raises InputError for an unknown kind, or shares that are none."""
    if unknown := sorted(set(mix) - set(ALL_KINDS)):
        raise InputError(f"traffic mix: unknown kind {unknown[0]!r}; {choose(unknown[0], ALL_KINDS)}")
    if min(mix.values(), default=0) < 0 or not 0 < sum(mix.values()) < float("inf"):
        raise InputError("traffic mix: shares must not be negative, and their sum must be positive")

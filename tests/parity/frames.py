# SPDX-License-Identifier: Apache-2.0
"""Packets for parity tests: valid ones of all that the parser knows, and what is left of them after damage.

Everything is drawn from one `random.Random`, so a seed gives the packets back.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

VLAN_TYPES = (0x8100, 0x88A8, 0x9100)
IPV4, IPV6, TRANSPARENT, PPPOE = 0x0800, 0x86DD, 0x6558, 0x8864
PPP = {IPV4: 0x0021, IPV6: 0x0057}
EXTENSIONS = (0, 43, 44, 51, 60, 135, 139, 140)
TCP, UDP, UDP_LITE, SCTP, DCCP, ICMP, ICMP6 = 6, 17, 136, 132, 33, 1, 58
SYN = 0x02
PROTOCOLS = (TCP,) * 6 + (UDP,) * 5 + (UDP_LITE, SCTP, DCCP, ICMP, ICMP6, 2, 50, 59, 89)
PORTS = (22, 53, 80, 443, 2152, 4789, 8080, 65535)
DHCP = ((67, 68), (68, 67), (67, 67), (546, 547), (547, 546), (547, 547), (68, 68))
# Some of them essential to a host with the right code or hop limit (gate.h).
ICMP_TYPES = (0, 2, 3, 8, 128, 132, 133, 135, 137, 138, 255)

TimedFrame = tuple[int, bytes]


# -- valid packets, from the inside out


def ethernet(network: bytes, ether_type: int, tags: Sequence[tuple[int, int]] = ()) -> bytes:
    """tags: (EtherType, VLAN id), outermost first."""
    types = [*(kind for kind, _ in tags), ether_type]
    head = b"\x02\0\0\0\0\x01\x02\0\0\0\0\x02" + struct.pack(">H", types[0])
    for (_, vlan), inner in zip(tags, types[1:], strict=True):
        head += struct.pack(">HH", vlan | 0xE000, inner)
    return head + network


def pppoe(
    network: bytes,
    ether_type: int,
    *,
    length: int | None = None,
    protocol: int | None = None,
    session: int = 1,
    version_and_type: int = 0x11,
    code: int = 0,
) -> bytes:
    """A PPPoE session's header around an IP packet of that EtherType. length: that it claims."""
    kind = PPP[ether_type] if protocol is None else protocol
    claimed = len(network) + 2 if length is None else length
    return struct.pack(">BBHHH", version_and_type, code, session, claimed & 0xFFFF, kind) + network


def ipv4(
    source: bytes,
    destination: bytes,
    protocol: int,
    payload: bytes,
    *,
    options: bytes = b"",
    fragment: int = 0,
    ttl: int = 64,
    tos: int = 0,
    length: int | None = None,
) -> bytes:
    """fragment: the 16-bit word of flags and offset. length: the total length it claims."""
    words = 5 + len(options) // 4
    total = words * 4 + len(payload) if length is None else length
    fixed = (0x40 | words, tos, total & 0xFFFF, 1, fragment, ttl, protocol, 0)
    return struct.pack(">BBHHHBBH", *fixed) + source + destination + options + payload


def ipv6(
    source: bytes,
    destination: bytes,
    protocol: int,
    payload: bytes,
    *,
    extensions: Sequence[tuple[int, bytes]] = (),
    ttl: int = 64,
    tos: int = 0,
    length: int | None = None,
) -> bytes:
    """extensions: (type, header without its first byte), outermost first."""
    kinds = [*(kind for kind, _ in extensions), protocol]
    chain = b"".join(bytes([after]) + rest for (_, rest), after in zip(extensions, kinds[1:], strict=True))
    total = len(chain) + len(payload) if length is None else length
    head = struct.pack(">IHBB", 6 << 28 | tos << 20 | 0x12345, total & 0xFFFF, kinds[0], ttl)
    return head + source + destination + chain + payload


def tcp(
    source: int,
    destination: int,
    flags: int,
    window: int = 1024,
    options: bytes = b"",
    numbers: tuple[int, int] = (1, 2),
) -> bytes:
    """numbers: of sequence and acknowledgement."""
    words = 5 + len(options) // 4
    return struct.pack(">HHIIBBHHH", source, destination, *numbers, words << 4, flags, window, 0, 0) + options


def udp(source: int, destination: int, length: int = 8) -> bytes:
    """length: of the header and the payload behind it."""
    return struct.pack(">HHHH", source, destination, length & 0xFFFF, 0)


def dns(name: bytes, kind: int = 1, questions: int = 1, *, back: bool = False) -> bytes:
    """A message. name: with the lengths of its labels. kind: of the question, such as 1, A."""
    head = struct.pack(">6H", 7, 0x8180 if back else 0x0100, questions, 0, 0, 0)
    return head + name + struct.pack(">HH", kind, 1)


def jumbo(payload: int, *, before: bytes = b"") -> tuple[int, bytes]:
    """A hop-by-hop header, as `ipv6` takes extensions, with the option that gives a jumbogram's length.

    before: options in front of it.
    """
    options = before + b"\xc2\x04" + struct.pack(">I", payload & 0xFFFFFFFF)
    padding = -(2 + len(options)) % 8
    return 0, bytes([(2 + len(options) + padding) // 8 - 1]) + options + bytes(padding)


# -- drawn


def _bytes(random: Random, size: int) -> bytes:
    return random.getrandbits(8 * size).to_bytes(size, "big") if size else b""


@dataclass
class Fuzzer:
    """Draws packets of a few hosts, so that flows have many packets and the flow table runs full.

    times_ns: durations that mean something to the test (windows, timeouts); gaps fall on and beside them.
    damage: share of packets that are cut, changed or made up. strangers: share of packets with addresses of
    their own. jumps: share of packets whose time is far away from the one before.
    """

    random: Random
    times_ns: Sequence[int] = (500_000_000,)
    damage: float = 0.12
    strangers: float = 0.05
    jumps: float = 0.05
    hosts: int = 4
    now_ns: int = 1_700_000_000 * 10**9

    def packets(self, count: int) -> list[TimedFrame]:
        """Times are not negative; frames have at most 2048 bytes."""
        random = self.random
        flows = [self._flow() for _ in range(random.randint(2, 24))]
        build = flows[0]
        result = []
        for _ in range(count):
            if random.random() < 0.6:
                build = random.choice(flows)
                if random.random() < self.strangers:
                    build = self._flow()
                elif random.random() < 0.02:
                    flows[random.randrange(len(flows))] = build = self._flow()
            frame = build()
            if random.random() < self.damage:
                frame = self._damage(frame)
            self.now_ns = max(0, self.now_ns + self._gap())
            result.append((self.now_ns, frame[:2048]))
        return result

    def _gap(self) -> int:
        random = self.random
        if random.random() >= self.jumps:
            return random.choice(
                (0, 1, 999, 1000, 50_000, random.randrange(3_000_000), random.randrange(30_000_000))
            )
        kind = random.random()
        if kind < 0.6:
            return max(
                0, random.choice(self.times_ns) * random.choice((1, 1, 1, 2, 3)) + random.randint(-1, 1)
            )
        if kind < 0.8:
            return random.randrange(random.choice(self.times_ns) + 1)
        if kind < 0.9:  # beyond the 2^32 microseconds of an inter-arrival time
            return (1 << 32) * 1000 + random.choice((-1000, -1, 0, 1, 10**12))
        return -random.choice((1, 1000, random.choice(self.times_ns), 10**10))

    def _flow(self) -> Callable[[], bytes]:
        """One flow: what stays the same is drawn now, what changes with each packet when it is called."""
        random = self.random
        version = 4 if random.random() < 0.6 else 6
        pair = [self._address(version), self._address(version)]
        ports = [random.choice((*PORTS, random.randrange(65536))), random.choice(PORTS)]
        protocol = random.choice(PROTOCOLS)
        if protocol == UDP and random.random() < 0.1:
            ports = list(random.choice(DHCP))
        tags: list[tuple[int, int]] = []
        while random.random() < 0.15 and len(tags) < 3:
            tags.append((random.choice(VLAN_TYPES), random.choice((0, 1, 2, 4095, random.randrange(4096)))))
        in_session = random.random() < 0.12
        both_ways = random.random() < 0.4
        wild = random.random() < 0.25
        tunnel = (
            random.choice((self._gtp, self._vxlan, self._gre, self._ip_in_ip))
            if random.random() < 0.3
            else None
        )
        outer = [self._address(4), self._address(4)], [self._address(6), self._address(6)]

        def build() -> bytes:
            back = both_ways and random.random() < 0.5
            source, destination = (1, 0) if back else (0, 1)
            network = self._network(
                version, pair[source], pair[destination], ports[source], ports[destination], protocol, wild
            )
            ether_type = IPV4 if version == 4 else IPV6
            if tunnel:
                carrier = 4 if random.random() < 0.7 else 6
                ends = outer[carrier == 6]
                network = tunnel(network, ether_type, carrier, ends[0], ends[1], wild)
                ether_type = IPV4 if carrier == 4 else IPV6
            # Of one flow in several VLANs, too.
            here = [(kind, vlan ^ (random.random() < 0.1)) for kind, vlan in tags]
            if in_session:
                network, ether_type = self._pppoe(network, ether_type, wild), PPPOE
            # What a card adds to short frames, and what some devices leave behind any.
            padding = _bytes(random, random.choice((1, 7, 18, 46))) if random.random() < 0.2 else b""
            return ethernet(network, ether_type, here) + padding

        return build

    def _pppoe(self, network: bytes, ether_type: int, wild: bool) -> bytes:
        """wild: now and then something other than IP, or than a session, or a length that does not fit."""
        random = self.random
        at, fixed = (2, 0) if ether_type == IPV4 else (4, 40)
        claimed = fixed + int.from_bytes(network[at : at + 2], "big") + 2
        if not wild:
            return pppoe(network, ether_type, length=claimed, session=random.getrandbits(16))
        return pppoe(
            network,
            ether_type,
            length=claimed + random.choice((0, 0, 0, 0, -1, 1, -claimed, 1 - claimed, 2 - claimed)),
            protocol=random.choice((None, None, None, None, 0xC021, 0x2145)),
            version_and_type=random.choice((0x11,) * 6 + (0x21, 0x12)),
            code=random.choice((0,) * 6 + (0x09,)),
        )

    def _address(self, version: int) -> bytes:
        random = self.random
        stranger = random.random() < 0.1
        if version == 4:
            return _bytes(random, 4) if stranger else bytes([10, 0, 0, random.randrange(self.hosts)])
        if stranger:
            return _bytes(random, 16)
        return (
            b"\x20\x01\x0d\xb8"
            + bytes(7)
            + bytes([random.randrange(2), 0, 0, 0, random.randrange(self.hosts)])
        )

    def _network(
        self,
        version: int,
        source: bytes,
        destination: bytes,
        from_port: int,
        to_port: int,
        protocol: int,
        wild: bool,
    ) -> bytes:
        random = self.random
        # Bytes of all kinds that payload fields tell apart, and of both sides of their bounds.
        kinds = (0, 1, 0x1F, 0x20, 0x41, 0x7E, 0x7F, 0x80, 0xFF)
        payload = bytes(random.choice(kinds) for _ in range(random.randrange(24)))
        if protocol == UDP and 53 in (from_port, to_port) and random.random() < 0.7:
            payload = self._asking() + payload
        transport = self._transport(protocol, from_port, to_port, payload) + payload
        return self._ip(version, source, destination, protocol, transport, wild)

    def _asking(self) -> bytes:
        """A DNS message, of few names so that some are the same, or what is almost one."""
        random = self.random
        sizes = [random.choice((1, 2, 3, 6)) for _ in range(random.randrange(5))]
        if random.random() < 0.1:
            sizes += random.choice(([63], [63, 63, 63, 59], [1] * random.randint(120, 130), [64], [192]))
        name = b"".join(bytes([size]) + random.choice((b"a", b"A", b"b")) * size for size in sizes)
        return dns(name + bytes(1), random.choice((1, 1, 16, 28, 65535)), random.random() > 0.03)

    def _transport(self, protocol: int, source: int, destination: int, payload: bytes) -> bytes:
        random = self.random
        if protocol == TCP:
            options = bytes(4 * random.randrange(11)) if random.random() < 0.3 else b""
            flags, window = random.getrandbits(8), random.getrandbits(16)
            # A segment without SYN completes the handshake of any SYN-ACK, or comes some bytes later.
            later = 22_000 * (window & 7)
            # Around what it sends, numbers go round.
            around = (0, 0, 0, 0, 0, 2**31, 2**31, 2**32)[window >> 11 & 7] - (window >> 6 & 31)
            first = (2 + later + around) % 2**32 if around > 0 else 2 + later
            numbers = (1, 2) if flags & SYN else (first, 2 + (window >> 3 & 3) * later)
            header = tcp(source, destination, flags, window, options, numbers)
            if random.random() < 0.03:
                header = header[:12] + bytes([random.randrange(16) << 4]) + header[13:]
            return header
        if protocol == UDP:
            return udp(source, destination, self._length(8, 8 + len(payload)))
        if protocol == UDP_LITE:
            return udp(source, destination, random.getrandbits(16))
        if protocol in (SCTP, DCCP):
            return struct.pack(">HHII", source, destination, 0, 0)
        if protocol in (ICMP, ICMP6):
            return struct.pack(">BBHI", random.choice(ICMP_TYPES), random.randrange(5), 0, 0)
        return _bytes(random, 8)

    def _length(self, header: int, right: int) -> int:
        """A length as a header of so many bytes gives it: right, or a lie."""
        random = self.random
        if random.random() < 0.9:
            return right
        lies = (0, header - 1, header, header + 7, right - 1, right + 1, right + 100, random.randrange(65536))
        return max(0, random.choice(lies))

    def _ip(
        self, version: int, source: bytes, destination: bytes, protocol: int, payload: bytes, wild: bool
    ) -> bytes:
        """wild: with options or extension headers, fragments, and more lengths that do not fit the frame."""
        random = self.random
        ttl, tos = random.choice((1, 63, 64, 128, 255)), random.choice((0, 0, 4, 184, 255))
        length = None
        if random.random() < 0.15:  # as of a frame that was cut
            length = random.choice((1500, 65535, random.randrange(60, 9000)))
        elif random.random() < 0.3:
            length = self._length(*((20, 20 + len(payload)) if version == 4 else (1, len(payload))))
        if version == 4:
            options, fragment = b"", 0x4000
            if wild:
                options = _bytes(random, 4 * random.randrange(11)) if random.random() < 0.5 else b""
                fragment = random.choice((0, 0x4000, 0x8000, 0x2000, 0x2001, 0x1FFF, 0x00B9))
                length = random.choice((length, random.randrange(65536)))
            return ipv4(
                source, destination, protocol, payload,
                options=options, fragment=fragment, ttl=ttl, tos=tos, length=length,
            )  # fmt: skip
        extensions = []
        if wild:
            length = random.choice((length, random.randrange(65536)))
            extensions = [self._extension() for _ in range(random.choice((0, 1, 1, 2, 3, 7, 8, 9)))]
            if random.random() < 0.2:
                before = random.choice((b"", b"", b"\0" * 3, b"\x05\x02\0\0" + b"\x01\0", b"\0" * 8))
                payload_length = random.choice((65535, 65536, 70_000, 1 << 20, (1 << 32) - 1))
                extensions.insert(0, jumbo(payload_length, before=before))
                length = random.choice((0, 0, 0, length))
        return ipv6(
            source, destination, protocol, payload, extensions=extensions, ttl=ttl, tos=tos, length=length
        )

    def _extension(self) -> tuple[int, bytes]:
        random = self.random
        kind = random.choice(EXTENSIONS)
        if kind == 44:
            offset = random.choice((0, 0, 0, 0, 185 << 3, 7)) | random.randrange(2)
            return kind, struct.pack(">BHI", random.getrandbits(8), offset, random.getrandbits(32))
        units = random.choice((0, 0, 0, 1, 2, 5, 30))
        size = (units + 2) * 4 if kind == 51 else (units + 1) * 8
        if kind == 51 and size < 8:
            size = 8
        return kind, bytes([units]) + bytes(size - 2)

    # -- tunnels: an IP packet around a header around the packet

    def _gtp(
        self, inner: bytes, ether_type: int, carrier: int, source: bytes, destination: bytes, wild: bool
    ) -> bytes:
        random = self.random
        flags, message, options = 0x30, 255, b""
        if random.random() < 0.4:
            flags |= random.randrange(8)
        if wild and random.random() < 0.3:
            flags, message = random.getrandbits(8), random.choice((1, 254, 255))
        if flags & 7:
            kinds = [random.choice((0x85, 0xC0, 0x40)) for _ in range(random.choice((1, 1, 2, 4, 5)))]
            options = struct.pack(">HBB", 7, 0, kinds[0] if flags & 4 or random.random() < 0.2 else 0)
            if flags & 4:
                for kind in (*kinds[1:], 0):
                    words = random.choice((1, 1, 2, 4, 0 if wild else 1))
                    options += (
                        (bytes([words]) + self._session(max(0, words * 4 - 2)) + bytes([kind]))
                        if words
                        else b"\0\0\0\0"
                    )
        teid = random.choice((1, 2, 0xFFFFFFFF, random.getrandbits(32)))
        length = self._length(0, len(options) + len(inner)) & 0xFFFF
        message_bytes = struct.pack(">BBHI", flags, message, length, teid) + options + inner
        port = 2152 if random.random() < 0.95 else 2153
        return self._in_udp(carrier, source, destination, (2152, port), message_bytes, wild)

    def _in_udp(
        self,
        carrier: int,
        source: bytes,
        destination: bytes,
        ports: tuple[int, int],
        payload: bytes,
        wild: bool,
    ) -> bytes:
        head = udp(*ports, self._length(8, 8 + len(payload)))
        return self._ip(carrier, source, destination, UDP, head + payload, wild)

    def _session(self, size: int) -> bytes:
        """Content of a GTP-U extension header: a PDU session container's, more often than not."""
        random = self.random
        first = random.choice((0x00, 0x10, 0x10, 0x20, random.getrandbits(8)))
        return (bytes([first, random.getrandbits(8)]) + _bytes(random, size))[:size]

    def _vxlan(
        self, inner: bytes, ether_type: int, carrier: int, source: bytes, destination: bytes, wild: bool
    ) -> bytes:
        random = self.random
        flags = 0x08 if random.random() < 0.95 else 0
        tags = [(random.choice(VLAN_TYPES), 7)] * random.choice((0, 0, 0, 1, 2, 3))
        if random.random() < 0.1:
            inner, ether_type = self._pppoe(inner, ether_type, wild), PPPOE
        frame = ethernet(inner, ether_type if random.random() < 0.95 else 0x0806, tags)
        header = bytes([flags, 0, 0, 0]) + _bytes(random, 4)
        return self._in_udp(carrier, source, destination, (4789, 4789), header + frame, wild)

    def _gre(
        self, inner: bytes, ether_type: int, carrier: int, source: bytes, destination: bytes, wild: bool
    ) -> bytes:
        random = self.random
        flags = random.choice((0, 0x2000, 0x8000, 0x1000, 0xB000, 0x3000))
        if wild:
            flags |= random.choice((0, 0, 1, 7, 0x4000, 0x0F00))
        optional = sum(flags >> bit & 1 for bit in (15, 13, 12))
        if random.random() < 0.3:
            inner, ether_type = ethernet(inner, ether_type), TRANSPARENT
        elif random.random() < 0.05:
            ether_type = 0x880B
        header = struct.pack(">HH", flags, ether_type) + _bytes(random, 4 * optional)
        return self._ip(carrier, source, destination, 47, header + inner, wild)

    def _ip_in_ip(
        self, inner: bytes, ether_type: int, carrier: int, source: bytes, destination: bytes, wild: bool
    ) -> bytes:
        protocol = 4 if ether_type == IPV4 else 41
        if self.random.random() < 0.05:
            protocol = 45 - protocol  # says one version, carries the other
        return self._ip(carrier, source, destination, protocol, inner, wild)

    # -- damage

    def _damage(self, frame: bytes) -> bytes:
        random = self.random
        kind = random.random()
        if kind < 0.4:
            return frame[: random.randrange(len(frame) + 1)]
        if kind < 0.5:
            return _bytes(random, random.randrange(80))
        changed = bytearray(frame)
        for _ in range(random.randint(1, 3)):
            # Fields that lengths and kinds are read from lie in front, and are hit more often there.
            end = random.choice((24, 64, len(changed)))
            at = random.randrange(12, max(13, min(end, len(changed))))
            if at >= len(changed):
                break
            if kind < 0.75:
                changed[at] ^= 1 << random.randrange(8)
            else:
                changed[at] = random.choice((0, 1, 0x45, 0x60, 0xFF, random.getrandbits(8)))
        return bytes(changed)

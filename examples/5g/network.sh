#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The user plane of a 5G network in namespaces: devices (ue), base station (gnb), user plane function (upf), data network (dn).
#
#   ue eth0 -- radio gnb n3 -- n3 upf n6 -- eth0 dn
#
#   sudo ./network.sh up             make them; gnb.py and upf.py carry the packets
#   sudo ./network.sh on upf CMD...  run a command in one of them
#   sudo ./network.sh limit 20mbit   N6 sends so much a second, and has a short queue of three priorities
#   sudo ./network.sh unlimit        and again as fast as it can
#   sudo ./network.sh down           end what runs there, and remove them
set -euo pipefail
spaces="5g-ue 5g-gnb 5g-upf 5g-dn"
devices=16      # of each slice
queue=200       # packets that wait for N6, in each of the three bands

# Not `ip netns exec`, which would hide the BPF file system.
on() {
    local space=$1
    shift
    nsenter --net="/run/netns/5g-$space" -- "$@"
}

down() {
    for space in $spaces; do
        if [ -e "/run/netns/$space" ]; then
            ip netns pids "$space" | xargs -r kill
            ip netns delete "$space"
        fi
    done
}

wire() { # wire SPACE NAME SPACE NAME
    ip link add "$2" netns "5g-$1" type veth peer name "$4" netns "5g-$3"
    for end in "$1 $2" "$3 $4"; do
        set -- $end
        # Packets as they are on a wire: none merged, all with their checksums.
        on "$1" ethtool -K "$2" tx off gro off >/dev/null
        on "$1" ip link set "$2" up
    done
}

address() { # address SPACE NAME ADDRESS...
    local space=$1 name=$2
    shift 2
    for each in "$@"; do
        case $each in
        *:*) on "$space" ip address add "$each" dev "$name" nodad ;;
        *) on "$space" ip address add "$each" dev "$name" ;;
        esac
    done
}

up() {
    down
    trap down ERR
    for space in $spaces; do
        ip netns add "$space"
        nsenter --net="/run/netns/$space" -- sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0 \
            net.ipv6.conf.default.accept_ra=0 net.ipv6.conf.default.router_solicitations=0
    done
    on upf sysctl -qw net.ipv6.conf.default.disable_ipv6=1 # N3 is IPv4; N6 gets it below
    wire ue eth0 gnb radio
    wire gnb n3 upf n3
    on upf sysctl -qw net.ipv6.conf.default.disable_ipv6=0
    wire upf n6 dn eth0
    on gnb sysctl -qw net.ipv6.conf.n3.disable_ipv6=1

    # What devices send goes to gnb.py by `tunnels`; what is in a tunnel is at most 1,400 bytes long.
    address gnb radio 10.60.0.254/16 2001:db8:60::fffe/48
    on gnb ip tuntap add dev tunnels mode tun
    on gnb ip link set tunnels txqueuelen 5000 up
    on gnb sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
    on gnb ip route add default dev tunnels
    on gnb ip -6 route add default dev tunnels
    for number in $(seq 1 $devices); do
        for slice in 1 2; do
            printf 'address add 10.60.%d.%d/16 dev eth0\n' "$slice" "$number"
            printf 'address add 2001:db8:60:%d::%x/48 dev eth0 nodad\n' "$slice" "$number"
        done
    done | on ue ip -batch -
    on ue ip route add default via 10.60.0.254 mtu 1400
    on ue ip -6 route add default via 2001:db8:60::fffe mtu 1400

    address gnb n3 10.200.0.1/24
    address upf n3 10.200.0.2/24
    address upf n6 10.201.0.1/24 2001:db8:201::1/64
    address dn eth0 10.201.0.2/24 2001:db8:201::2/64
    # Known before N6 has a queue, in which the question would wait or be lost.
    mac=$(on dn ip -oneline link show eth0 | sed 's/.* link\/ether \([^ ]*\) .*/\1/')
    for neighbour in 10.201.0.2 2001:db8:201::2; do
        on upf ip neighbour replace "$neighbour" lladdr "$mac" dev n6
    done
    # For what is taken out of its tunnel before upf.py sees it.
    on upf sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
}

case "${1:-}" in
up) up ;;
down) down ;;
on)
    shift
    on "$@"
    ;;
limit)
    on upf ip link set n6 txqueuelen $queue
    on upf tc qdisc replace dev n6 root handle 1: tbf rate "$2" burst 3200 limit 1000000
    # Three bands by the packet's priority, as interfaces have by default; 6 is in the first, 0 in the second.
    on upf tc qdisc add dev n6 parent 1:1 handle 10: pfifo_fast
    ;;
unlimit) on upf tc qdisc del dev n6 root ;;
*)
    sed -n '3,11s/^# \?//p' "$0" >&2
    exit 2
    ;;
esac

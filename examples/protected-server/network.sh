#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two hosts on one machine, joined by a wire: a web server, and the world outside from where visitors and a flood come.
#
#   network.sh up                  make both, and start the server
#   network.sh server COMMAND...   run a command on the server (it has eth0)
#   network.sh world COMMAND...    run a command outside
#   network.sh down                stop the server, and remove both
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
server=ww-shop-server world=ww-shop-world

# Not `ip netns exec`, which would hide the BPF file system.
on() {
    local host=$1
    shift
    nsenter --net="/run/netns/$host" -- "$@"
}

down() {
    if ip netns list | grep -q "^$server\b"; then
        on "$server" "${WIREWISED:-wirewised}" detach --interface eth0 >/dev/null 2>&1 || true
        # The server, and whatever else was started there.
        ip netns pids "$server" | xargs -r kill
    fi
    for host in "$server" "$world"; do
        if ip netns list | grep -q "^$host\b"; then ip netns delete "$host"; fi
    done
}

case "${1:-}" in
up)
    down
    trap down ERR
    ip netns add "$server"
    ip netns add "$world"
    ip link add eth0 netns "$server" type veth peer name eth0 netns "$world"
    for host in "$server" "$world"; do
        on "$host" sysctl -qw net.ipv6.conf.all.disable_ipv6=1
        # A card makes checksums; a pair of virtual ones leaves them out.
        on "$host" ethtool -K eth0 tx off >/dev/null
    done
    on "$server" ip address add 10.80.0.1/16 dev eth0
    on "$world" ip address add 10.80.0.2/16 dev eth0
    on "$server" ip link set eth0 up
    on "$world" ip link set eth0 up
    # Addresses that nobody has: otherwise the server would ask for each of them before it answers.
    on "$server" ip route add 10.81.0.0/16 via 10.80.0.2
    # What a challenge needs: listeners that take cookies.
    on "$server" sysctl -qw net.ipv4.tcp_syncookies=2
    on "$server" python3 "$here/traffic.py" serve >/dev/null 2>&1 &
    on "$world" python3 "$here/traffic.py" wait
    ;;
server | world)
    host=ww-shop-$1
    shift
    on "$host" "$@"
    ;;
down) down ;;
*)
    sed -n '3,8s/^# \?//p' "$0" >&2
    exit 2
    ;;
esac

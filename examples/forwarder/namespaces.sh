#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes three network namespaces in a row, or removes them: client c0 - r0 router r1 - s0 server.
set -eu

up() {
	for name in client router server; do
		ip netns add $name
		ip -n $name link set lo up
	done
	ip link add c0 address 02:00:00:00:00:01 netns client type veth \
		peer name r0 address 02:00:00:00:00:02 netns router
	ip link add r1 netns router type veth peer name s0 netns server
	join client c0 10.9.0.1/24 2001:db8:9::1/64
	join router r0 10.9.0.2/24 2001:db8:9::2/64
	join router r1 10.8.0.1/24 2001:db8:8::1/64
	join server s0 10.8.0.2/24 2001:db8:8::2/64
	# The addresses that are served, and that the traffic of this example goes to.
	ip -n router route add 192.0.2.0/24 via 10.8.0.2
	ip -n router route add 2001:db8:c000::/48 via 2001:db8:8::2
	ip netns exec router sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
}

join() {
	ip netns exec "$1" sysctl -qw net.ipv6.conf.all.accept_dad=0 "net.ipv6.conf.$2.accept_dad=0"
	ip -n "$1" link set "$2" up
	ip -n "$1" addr add "$3" dev "$2"
	ip -n "$1" addr add "$4" dev "$2" nodad
}

down() {
	for name in client router server; do
		ip netns delete $name
	done
}

case ${1:-} in
up | down) "$1" ;;
*)
	echo "usage: $0 up|down" >&2
	exit 2
	;;
esac

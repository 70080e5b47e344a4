#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A client, a balancer and three web servers in network namespaces of their own.
#
#   sudo ./network.sh up      makes them: lb-client -- lb -- lb-switch -- lb-server1, lb-server2, lb-server3
#   sudo ./network.sh down    ends the servers and removes all of it
set -e

service=10.7.0.100 # of the balancer's network; every server has it too, on its loopback interface
namespaces="lb-client lb lb-switch lb-server1 lb-server2 lb-server3"

down() {
	for namespace in $namespaces; do
		if ip netns pids "$namespace" >/dev/null 2>&1; then
			for process in $(ip netns pids "$namespace"); do kill "$process"; done
			ip netns delete "$namespace"
		fi
	done
}

on() { # on NAMESPACE COMMAND...: runs it there
	ip netns exec "$@"
}

up() {
	trap 'down' ERR
	for namespace in $namespaces; do
		ip netns add "$namespace"
		on "$namespace" sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
		on "$namespace" ip link set lo up
	done
	ip link add eth0 netns lb-client type veth peer name clients netns lb
	ip link add servers netns lb type veth peer name balancer netns lb-switch
	on lb-client ip addr add 10.7.0.2/24 dev eth0
	on lb ip addr add 10.7.0.1/24 dev clients
	on lb ip addr add 10.8.0.1/24 dev servers
	on lb sysctl -qw net.ipv4.ip_forward=1
	on lb-switch ip link add switch type bridge
	on lb-switch ip link set switch up
	on lb-switch ip link set balancer master switch up
	on lb-client ip link set eth0 up
	on lb ip link set clients up
	on lb ip link set servers up
	# Clients find the balancer under the service's address, which it has not itself: it would take answers for forged.
	on lb ip route add "$service"/32 dev servers
	on lb ip neigh add proxy "$service" dev clients
	for number in 1 2 3; do
		server=lb-server$number
		ip link add eth0 netns "$server" type veth peer name port$number netns lb-switch
		on lb-switch ip link set port$number master switch up
		# The service's address is its own, but it does not say so to anybody: the balancer does.
		on "$server" sysctl -qw net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2
		on "$server" ip addr add "$service"/32 dev lo
		on "$server" ip addr add 10.8.0.1$number/24 dev eth0
		on "$server" ip link set eth0 up
		on "$server" ip route add default via 10.8.0.1
		serve $number
	done
}

serve() { # serve NUMBER: a web server that says which one it is
	local folder
	folder=$(mktemp -d)
	echo "server $1" >"$folder/index.html"
	(cd "$folder" && exec ip netns exec "lb-server$1" python3 -m http.server 80 >/dev/null 2>&1 </dev/null) &
}

case $1 in
up) up ;;
down) down ;;
stop) for process in $(ip netns pids "lb-server$2"); do kill "$process"; done ;;
start) serve "$2" ;;
*) sed -n '3,6s/^# *//p' "$0" && exit 2 ;;
esac

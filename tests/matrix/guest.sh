#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# What runs in the virtual machine: its first process, with busybox, the agent, `frames` and nothing else. The steps are
# in /steps; what comes of each goes to the second serial port, which `machine.py` reads.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t bpf bpf /sys/fs/bpf
stty -F /dev/ttyS1 raw -echo
exec 3>/dev/ttyS1

step() { # NAME COMMAND...: runs a command, tells its name, output, messages, exit code, and the time when it began and ended
    name=$1
    shift
    read -r began _ </proc/uptime
    echo "@begin $name" >&3
    "$@" >/tmp/output 2>/tmp/messages </dev/null
    code=$?
    read -r ended _ </proc/uptime
    { cat /tmp/output; echo; echo "@messages"; cat /tmp/messages; echo; echo "@end $code $began $ended"; } >&3
}

verify() { # --object or --bundle, FILE; keeps what the verifier said in the end of a refusal
    agent verify "$@" --json && return
    code=$?
    for log in /tmp/wirewised-verifier-*; do [ -e "$log" ] && tail -n 300 "$log" >&2 && rm "$log"; done
    return $code
}

agent() { timeout "$LIMIT_S" wirewised "$@"; }

insert() { # the modules, in their order
    for module in /modules/*; do insmod "$module" || return; done
}

wire() { # a veth pair that is silent by itself; listeners, if there were any, would take cookies
    echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6
    echo 2 >/proc/sys/net/ipv4/tcp_syncookies
    ip link set lo up
    ip link add ww0 type veth || return
    ip link set veth0 name ww1 && ip link set ww0 arp off up && ip link set ww1 arp off up
}

trace_sum() { # PLANE CAPTURE BUNDLE: digest of all that the program makes of each packet
    agent trace "$2" --bundle "$3" --plane "$1" --seed 1 --format raw -o /tmp/trace && sha256sum </tmp/trace
}

foreground() { # attaches, and stays: until the counters were shown for the first time
    : >/tmp/shown
    wirewised run "$@" --foreground --json >/tmp/shown 2>&1 </dev/null &
    echo $! >/tmp/foreground
    waited=0
    while [ ! -s /tmp/shown ] && [ "$waited" -lt "$LIMIT_S" ]; do
        sleep 1
        waited=$((waited + 1))
    done
    head -n 1 /tmp/shown
}

killed() { # the agent in the foreground, which cannot tidy up
    kill -9 "$(cat /tmp/foreground)" || return
    while kill -0 "$(cat /tmp/foreground)" 2>/dev/null; do sleep 0.1; done
}

tool() { # one of xdp-tools, on the libraries of its own Debian
    chmod +x /files/ld-linux-x86-64.so.2
    program=$1
    shift
    LIBXDP_OBJECT_PATH=/files /files/ld-linux-x86-64.so.2 --library-path /files "/files/$program" "$@"
}

centiseconds() {
    read -r now _ </proc/uptime
    echo "${now%.*}${now#*.}"
}

kills() { # COUNT CAPTURE INTERFACE BUNDLE SECOND OPTION...: joins, swaps and leaves, until COUNT of them were killed midway; a sender goes on meanwhile
    count=$1 capture=$2 interface=$3 bundle=$4 second=$5
    shift 5
    act() { # becomes the agent, so that the agent is what is killed
        case $1 in
            0) shift && exec wirewised run --bundle "$bundle" --interface "$interface" "$@" ;;
            1) exec wirewised swap --bundle "$second" --interface "$interface" ;;
            2) exec wirewised detach --interface "$interface" ;;
        esac
    }
    began=$(centiseconds)
    (act 0 "$@") >/dev/null 2>&1
    longest=$(($(centiseconds) - began + 1))
    : >/tmp/killing
    while [ -e /tmp/killing ]; do frames ww1 "$interface" "$capture"; done &
    sender=$!
    turn=1 killed=0
    while [ "$killed" -lt "$count" ] && [ "$turn" -le $((10 * count)) ]; do
        act $((turn % 3)) "$@" >/dev/null 2>&1 &
        delay=$(($(od -An -N2 -tu2 /dev/urandom) % longest))
        sleep "$((delay / 100)).$(printf %02d $((delay % 100)))"
        kill -9 $! 2>/dev/null
        wait $!
        [ $? -eq 137 ] && killed=$((killed + 1))
        turn=$((turn + 1))
    done
    rm /tmp/killing
    wait $sender
    echo "{\"killed\": $killed, \"turns\": $((turn - 1))}"
}

no_dispatcher() { # neither attached nor pinned
    ! ip link show ww0 | grep xdp && ! ls /sys/fs/bpf/xdp | grep . >&2
}

untouched() { # nothing is left of an attachment
    [ ! -e /sys/fs/bpf/wirewise ] || { find /sys/fs/bpf/wirewise >&2; return 1; }
}

. /steps
echo "@done" >&3
sleep 1
reboot -f

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what this machine lacks to run wirewise from a checkout. Quick and silent when nothing is to do.
#
#   scripts/setup.sh demo    what it takes to build and run, without the service (wirewised-serve)
#   scripts/setup.sh serve   the same, with the service
#   scripts/setup.sh dev     and to test, lint and import every kind of model (default)
#
# Debian 12, Ubuntu 22.04 and 24.04: system packages come from apt (as root or with sudo). Elsewhere the
# packages that apt would have installed are named and left to you.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C.UTF-8 # the folder may have accents, in any locale

level=${1:-dev}
# First of `a|b` that the distribution has.
packages=(
    "clang-19|clang" "llvm-19|llvm" libbpf-dev libelf-dev zlib1g-dev linux-libc-dev
    build-essential pkg-config iproute2 ethtool procps util-linux python3-venv
)
optional=()
case $level in
    demo | serve) extra="" ;;
    dev)
        extra=dev
        # Two compilers: every shape must load with the oldest and the newest supported one.
        packages+=("clang-14|clang" "clang-format-19|clang-format")
        # Virtual machines with kernels of Debian.
        packages+=(qemu-system-x86 debian-archive-keyring)
        # Other people's XDP programs: tests beside them are skipped without.
        optional+=(xdp-tools)
        # Simulates the Verilog that the target of this name writes.
        packages+=(iverilog)
        # Goes by the mark of a class in tests.
        packages+=(nftables)
        # systemd-analyze and systemd-socket-activate try the units.
        packages+=(systemd)
        # A test looks at the report in it. Ubuntu has it as a snap only: left out there, and the test is skipped.
        optional+=(chromium)
        ;;
    *) echo "usage: scripts/setup.sh [demo|serve|dev]" >&2; exit 2 ;;
esac

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit "${code:-3}"; }

# The Makefile of libbpf, which libbpf-sys carries, and the shells that it starts take a path apart at these. What is
# built already runs anywhere.
buildable_here() {
    local apart=':#%$;|&<>()*?\`'\''"'
    case $PWD in
        *[[:space:]"$apart"]*)
            code=2 fail "$PWD: a path with a space, or one of $apart, cannot be built in; move the folder to another place"
            ;;
    esac
}
[ -f .venv/.wirewise-programs ] || buildable_here

# Runs a command; shows its output only if it fails.
quietly() {
    local log
    log=$(mktemp)
    if ! "$@" >"$log" 2>&1; then
        tail -n 40 "$log" >&2
        rm -f "$log"
        code=1 fail "failed: $*"
    fi
    rm -f "$log"
}

# --- System packages ---------------------------------------------------------------------------
installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
available() { [ -n "$(apt-cache madison "$1" 2>/dev/null)" ]; }

missing=()
if command -v dpkg-query >/dev/null; then
    for entry in "${packages[@]}"; do
        found=""
        for name in ${entry//|/ }; do installed "$name" && found=1 && break; done
        [ -n "$found" ] || missing+=("$entry")
    done
    for name in ${optional[@]+"${optional[@]}"}; do
        installed "$name" || ! available "$name" || missing+=("$name")
    done
else
    for tool in clang llvm-strip cc pkg-config ip ethtool; do
        command -v "$tool" >/dev/null || fail "$tool is missing and this is not Debian or Ubuntu: install the counterparts of: ${packages[*]}"
    done
fi
# A Python of another origin (pyenv, ...) brings its own venv.
if python3 -c 'import ensurepip, venv' 2>/dev/null; then
    missing=("${missing[@]/python3-venv/}")
fi
wanted=()
for entry in "${missing[@]}"; do [ -z "$entry" ] || wanted+=("$entry"); done

if [ ${#wanted[@]} -gt 0 ]; then
    as_root=()
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || fail "these packages are missing and neither root nor sudo is at hand: ${wanted[*]}"
        as_root=(sudo)
    fi
    say "updating the package lists"
    quietly "${as_root[@]}" apt-get update -qq
    names=()
    for entry in "${wanted[@]}"; do
        chosen=""
        for name in ${entry//|/ }; do available "$name" && chosen=$name && break; done
        [ -n "$chosen" ] || fail "no package ${entry//|/ or } in this distribution; wirewise is made for Debian 12 and Ubuntu 22.04 or 24.04"
        names+=("$chosen")
    done
    say "installing ${names[*]}"
    quietly "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${names[@]}"
fi

# Servers of others that tests start: Prometheus evaluates contrib/prometheus, CrowdSec decides what `deny sync` follows and hears of bans,
# GoBGP announces bans, nfdump collects what `ipfix` exports. Unpacked, not installed: the packages would start them.
unpacked() (
    rm -rf "build/tools/$1" && mkdir -p "build/tools/$1" && cd "build/tools/$1" &&
        apt-get download "$1" && dpkg-deb --extract "$1"_*.deb . && rm "$1"_*.deb
)
update=(apt-get update -qq)
[ "$(id -u)" = 0 ] || update=(sudo "${update[@]}")
for name in prometheus crowdsec gobgpd nfdump; do
    if [ "$level" = dev ] && [ ! -x "build/tools/$name/usr/bin/$name" ] && command -v apt-get >/dev/null; then
        say "unpacking $name"
        { unpacked "$name" || { "${update[@]}" && unpacked "$name"; }; } >/dev/null 2>&1 ||
            say "no $name to be had: the tests that need it are skipped"
    fi
done

# --- Rust toolchain ----------------------------------------------------------------------------
needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
get_rust="get one with 'sudo apt-get install rustup && rustup default stable' (Ubuntu 24.04) or as https://rustup.rs says"
command -v cargo >/dev/null || fail "no Rust toolchain found (cargo); $get_rust"
have=$(rustc --version | awk '{print $2}')
if [ "$(printf '%s\n%s\n' "$needed" "$have" | sort -V | head -n 1)" != "$needed" ]; then
    fail "Rust $have is too old, $needed or newer is needed; $get_rust"
fi

# --- Virtual environment, wirewise and wirewised -------------------------------------------------
python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || fail "Python 3.10 or newer is needed, this is $(python3 --version)"
if [ ! -x .venv/bin/python ]; then
    say "creating .venv"
    quietly python3 -m venv .venv
fi

pip() { PATH="$PWD/.venv/bin:$PATH" .venv/bin/python -m pip "$@" --quiet --disable-pip-version-check; }

# With the service, which is made of all that the agent is made of, and of half as many crates more. One that is
# there already does not stay older than the agent.
service=$([ "$level" = demo ] && [ ! -e .venv/bin/wirewised-serve ] || echo yes)
program=(-p wirewised --bin wirewised)
[ -z "$service" ] || program=(-p wirewise-serve --bin wirewised-serve)
compile=(cargo rustc --locked --quiet --release "${program[@]}" -- -C target-feature=+crt-static)
install_service() { [ -z "$service" ] || install target/release/wirewised-serve .venv/bin/; }

digest() { cat "$@" | sha256sum | cut -d ' ' -f 1; }
# What the installed Python dependencies and the installed programs depend on. The Python code itself is
# used in place, so that changing it needs no new installation.
want_python="${extra:-demo} $(digest pyproject.toml)"
mapfile -t sources < <(find crates bpf python/wirewise.data -type f -not -path '*/target/*' -not -path '*/fuzz/*' | sort)
want_programs=$(digest Cargo.toml .cargo/config.toml Cargo.lock pyproject.toml "${sources[@]}")
stamp_python=.venv/.wirewise-python stamp_programs=.venv/.wirewise-programs

current=$(cat "$stamp_python" 2>/dev/null || true)
# What dev installed is enough for the others.
if [ "$current" != "$want_python" ] && [ "$current" != "dev ${want_python#* }" ]; then
    buildable_here
    say "installing Python packages (${extra:-demo}) and building wirewised"
    # At the same time: one waits for the network and for files, the other for the processor. When pip builds the
    # agent, at most its last crate is left to compile.
    log=$(mktemp) wanted_python=$(mktemp)
    "${compile[@]}" >"$log" 2>&1 &
    build=$!
    trap 'kill "$build" 2>/dev/null || true; rm -f "$log" "$wanted_python"' EXIT
    .venv/bin/python scripts/requirements.py $extra >"$wanted_python"
    quietly pip install "maturin>=1.8,<2" --requirement "$wanted_python"
    if ! wait "$build"; then
        tail -n 40 "$log" >&2
        code=1 fail "failed: ${compile[*]}"
    fi
    trap - EXIT
    rm -f "$log" "$wanted_python"
    quietly pip install --no-build-isolation --editable ".${extra:+[$extra]}"
    install_service
    echo "$want_python" >"$stamp_python"
    echo "$want_programs" >"$stamp_programs"
elif [ "$(cat "$stamp_programs" 2>/dev/null || true)" != "$want_programs" ] ||
    { [ -n "$service" ] && [ ! -e .venv/bin/wirewised-serve ]; }; then
    buildable_here
    say "building wirewised"
    quietly "${compile[@]}"
    quietly pip install --no-build-isolation --no-deps --editable .
    install_service
    echo "$want_programs" >"$stamp_programs"
fi

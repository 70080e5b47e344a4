#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs `make demo` as on a machine that was just set up and has nothing else: in new mount and network namespaces
# with empty /run and /tmp, a /sys in which nothing is mounted, no way to other machines, HOME unset, a POSIX
# locale, umask 077 and no terminal; from a copy of the checkout in an oddly named folder.
#
#   scripts/fresh-machine.sh [FILE]     FILE: a wirewised to try instead of the one that set-up installed
#
# The copy has every tracked file and a new virtual environment. What would be downloaded and built for minutes is
# not made again: the Python packages are read from the checkout's environment (read-only, at another path; the
# checkout itself is out of sight), and wirewised is a copy. System packages and Rust are this machine's: that
# set-up installs all it needs shows only where it runs on a bare system.
set -euo pipefail
fail() { printf 'error: fresh machine: %s\n' "$*" >&2; exit 1; }

if [ "${1:-}" != inside ]; then
    agent=$(realpath -- "${1:-"$(dirname "$0")/../.venv/bin/wirewised"}")
    cd "$(dirname "$0")/.."
    scripts/setup.sh demo
    copy=$(mktemp -d)
    trap 'rm -rf "$copy"' EXIT
    git ls-files -z | tar --create --null --files-from - | tar --extract --directory "$copy"
    cp "$agent" "$copy/wirewised"
    python=$(.venv/bin/python -c 'import sys; print(sys._base_executable)')
    as_root=()
    [ "$(id -u)" = 0 ] || as_root=(sudo)
    # Set-up asks Rust for its version, which rustup looks for in the home.
    "${as_root[@]}" env -i PATH="$PATH" LC_ALL=POSIX PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 \
        RUSTUP_HOME="${RUSTUP_HOME:-$HOME/.rustup}" CARGO_HOME="${CARGO_HOME:-$HOME/.cargo}" \
        unshare --mount --net bash scripts/fresh-machine.sh inside "$PWD" "$copy" "$python"
    exit
fi

# In the namespaces, as root.
checkout=$2 copy=$3 python=$4
umask 077
mount -t tmpfs none /mnt
mkdir /mnt/checkout
mount --bind "$checkout" /mnt/checkout
mount -o remount,bind,ro /mnt/checkout
mount -t tmpfs none /srv
folder="/srv/été à wirewise"
cp -r "$copy" "$folder"
cd "$folder"
mount -t sysfs sysfs /sys
[ ! -d "$checkout" ] || mount -t tmpfs none "$checkout"
mount -t tmpfs -o mode=1777 none /tmp
mount -t tmpfs none /run

LC_ALL=C.UTF-8 "$python" -m venv --without-pip .venv
cp /mnt/checkout/.venv/.wirewise-* .venv
# As pip does: the programs beside Python, and a path file that leads to the code.
mv wirewised .venv/bin
install --mode 755 python/wirewise.data/scripts/wirewise .venv/bin
for packages in .venv/lib/python*/site-packages; do
    printf '%s\n' "$folder/python" "/mnt/checkout/$packages" >"$packages/wirewise.pth"
done

ready=yes
.venv/bin/wirewised doctor || ready=no
make demo </dev/null 2>&1 | tee /mnt/output
[ "$ready" = yes ] || fail "doctor found errors, but the demo ran"
[ -s build/demo/report.json ] || fail "no report"
# Written to a pipe, so nothing has to fit.
cut=$(grep '…' /mnt/output || true)
[ -z "$cut" ] || fail "cut: $cut"
left=$(find /tmp /run/netns /sys/fs/bpf/wirewise -mindepth 1 -not -path "$checkout" 2>/dev/null || true)
[ -z "$left" ] || fail "left behind: $left"
echo "fresh machine: the demo ran, and left nothing behind"

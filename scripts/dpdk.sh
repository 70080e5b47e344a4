#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a build with DPDK needs: Debian's packages to run, and of libdpdk-dev only the headers, in build/dpdk. The package itself depends on
# every library of DPDK, and through rdma-core on a newer systemd. Prints what PKG_CONFIG_PATH has to be.
set -euo pipefail
cd "$(dirname "$0")/.."
sdk=$PWD/build/dpdk
multi=$(gcc -print-multiarch)

apt-get install -y --no-install-recommends pkg-config librte-ethdev23 librte-mempool-ring23 librte-bus-vdev23 \
    librte-net-null23 librte-net-pcap23 librte-net-af-packet23 librte-net-af-xdp23 librte-net-tap23 >&2
mkdir -p "$sdk/debs" "$sdk/lib" "$sdk/pkgconfig"
(cd "$sdk/debs" && apt-get download libdpdk-dev libbsd-dev) >&2
for package in "$sdk"/debs/*.deb; do
    dpkg -x "$package" "$sdk"
done
# The package's own links point beside themselves; these point at the libraries installed.
for library in eal ethdev mempool mbuf ring net kvargs telemetry meter; do
    ln -sf "/usr/lib/$multi/librte_$library.so.23" "$sdk/lib/librte_$library.so"
done
cat > "$sdk/pkgconfig/libdpdk.pc" <<PC
Name: DPDK
Description: the parts of DPDK that wirewise needs
Version: 22.11.11
Cflags: -I"$sdk/usr/include/$multi/dpdk" -I"$sdk/usr/include/dpdk" -I"$sdk/usr/include" -include rte_config.h
Libs: -L"$sdk/lib"
PC
echo "$sdk/pkgconfig"

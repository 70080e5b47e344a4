// SPDX-License-Identifier: Apache-2.0
//! The data path as this agent's release has it: what a bundle's own sources are compiled with.

use crate::signature::sha256;

/// Flags of clang that decide what comes out, one a line.
pub const FLAGS: &str = include_str!("../../../bpf/clang.flags");

macro_rules! files {
    ($($name:literal),+ $(,)?) => { &[$(($name, include_str!(concat!("../../../bpf/", $name)))),+] };
}

/// All of `bpf/`, in the order of names.
pub const FILES: &[(&str, &str)] = files![
    "wirewise/abi.h",
    "wirewise/arith.h",
    "wirewise/bench.h",
    "wirewise/claim.h",
    "wirewise/clock.h",
    "wirewise/flow.h",
    "wirewise/flow_table.h",
    "wirewise/gate.h",
    "wirewise/maps.h",
    "wirewise/network.h",
    "wirewise/packet.h",
    "wirewise/parse.h",
    "wirewise/shadow.h",
    "wirewise/tail.h",
    "wirewise/trace.h",
    "wirewise/tunnel.h",
    "wirewise/verdict.h",
    "xdp.bpf.c",
];

/// SHA-256 of the lines that `sha256sum` writes of them; a bundle's manifest has it under `tools`.
pub fn digest() -> String {
    let lines = FILES.iter().map(|(name, text)| format!("{}  {name}\n", sha256(text.as_bytes())));
    sha256(lines.collect::<String>().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn no_file_is_left_out() {
        let bpf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf");
        let names = |folder: &str| {
            let files = std::fs::read_dir(bpf.join(folder)).unwrap();
            files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
        };
        let mut there: BTreeSet<_> =
            names("wirewise").iter().map(|name| format!("wirewise/{name}")).collect();
        there.extend(names(".").into_iter().filter(|name| name.ends_with(".c")));
        let ours: Vec<_> = FILES.iter().map(|(name, _)| (*name).to_string()).collect();
        assert_eq!(there.into_iter().collect::<Vec<_>>(), ours);
    }
}

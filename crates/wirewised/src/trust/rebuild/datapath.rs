// SPDX-License-Identifier: Apache-2.0
//! The data path as this agent's release has it: what a bundle's own sources are compiled with.

use crate::bundle::signature::sha256;

/// Flags of clang that decide what comes out, one a line.
pub const FLAGS: &str = include_str!("../../../../../bpf/clang.flags");

/// Those in `bpf/` that a bundle is compiled from, in the order of names; build.rs lists them.
pub const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/datapath_files.rs"));

/// SHA-256 of the lines that `sha256sum` writes of them; a bundle's manifest has it under `tools`.
pub fn digest() -> String {
    let lines = FILES.iter().map(|(name, text)| format!("{}  {name}\n", sha256(text.as_bytes())));
    sha256(lines.collect::<String>().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_points_and_headers_are_carried_in_the_order_of_names() {
        let names: Vec<_> = FILES.iter().map(|(name, _)| *name).collect();
        assert!(
            names.is_sorted() && names.contains(&"main.bpf.c") && names.contains(&"frame/hook.h"),
            "{names:?}"
        );
        for (name, text) in FILES {
            assert!(text.contains("SPDX-License-Identifier"), "{name}");
        }
    }
}

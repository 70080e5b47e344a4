// SPDX-License-Identifier: Apache-2.0
//! What a directory of pins is called. A BPF file system takes no dot in a name, and what an interface may be called is wide: up to 15
//! bytes without slash, colon or white space. So a colon begins all that is not part of such a name:
//! `:2e` a byte, `:i5n3` which of several interfaces of one name, `::new` a directory beside.

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Begins what is added to the name of an interface's directory for those beside it. No name holds it: an escape has digits
/// after its colon.
pub const BESIDE: &str = "::";

/// The directory's name for an interface. No other interface has it.
pub fn encode(interface: &[u8]) -> String {
    let mut name = String::new();
    for byte in interface {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') {
            name.push(char::from(*byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(name, ":{byte:02x}");
        }
    }
    name
}

/// The interface's name of a directory's; `None` if it was not made by `encode`.
pub fn decode(directory: &str) -> Option<Vec<u8>> {
    let name = directory.split_once(":i").map_or(directory, |(name, _)| name);
    let mut bytes = Vec::new();
    let mut rest = name.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b':' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    (encode(&bytes) == name).then_some(bytes)
}

/// A directory for another interface of the same name. An index and the number of a namespace mean one interface for as long as the
/// machine runs.
pub fn apart(directory: &Path, index: u32, namespace: u64) -> PathBuf {
    let mut name = directory.as_os_str().to_os_string();
    name.push(format!(":i{index}n{namespace}"));
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What the kernel takes for a name: `dev_valid_name` in net/core/dev.c.
    fn names() -> impl Strategy<Value = Vec<u8>> {
        let legal = |byte: &u8| !matches!(byte, 0 | b'/' | b':' | b' ' | 9..=13 | 160);
        let byte = prop_oneof![Just(b'.'), Just(b'i'), Just(b'2'), Just(b'e'), any::<u8>()];
        prop::collection::vec(byte.prop_filter("legal", legal), 1..=15)
            .prop_filter("not a directory", |name| !matches!(&name[..], b"." | b".."))
    }

    proptest! {
        #[test]
        fn every_name_comes_back_and_no_two_are_one(one in names(), other in names(), index: u32, namespace: u64) {
            let directory = encode(&one);
            prop_assert!(!directory.contains(['.', '/']) && !directory.contains(BESIDE), "{directory}");
            prop_assert_eq!(decode(&directory), Some(one.clone()));
            prop_assert_eq!(directory == encode(&other), one == other);
            let apart = apart(Path::new(&directory), index, namespace).into_os_string().into_string().unwrap();
            prop_assert_ne!(&apart, &encode(&other));
            prop_assert!(!apart.contains(BESIDE));
            prop_assert_eq!(decode(&apart), Some(one));
        }

        #[test]
        fn any_other_name_is_refused_or_its_own(name in "[a-z0-9:]{0,20}") {
            if let Some(bytes) = decode(&name) {
                prop_assert_eq!(encode(&bytes), name.split_once(":i").map_or(&*name, |(name, _)| name));
            }
        }
    }

    #[test]
    fn usual_names_stay_readable() {
        for (interface, directory) in [
            ("eth0", "eth0"),
            ("eth0.100", "eth0:2e100"),
            ("..x", ":2e:2ex"),
            ("0000:01:00.0", "0000:3a01:3a00:2e0"),
        ] {
            assert_eq!(encode(interface.as_bytes()), directory);
        }
        assert_eq!(decode("eth0:100"), Some(b"eth0\x100".to_vec()));
        assert_eq!(decode("eth0:5"), None);
    }
}

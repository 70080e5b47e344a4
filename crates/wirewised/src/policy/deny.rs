// SPDX-License-Identifier: Apache-2.0
//! The deny list of a policy, and files of prefixes as they are published.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;

use crate::abi;
use crate::error::{Error, Result};
use crate::files;
use crate::policy::file::FileOrList;
use crate::policy::values::{Port, Prefix};

/// Enough for as many prefixes as the tables hold, each with a comment.
const MAX_FILE_BYTES: u64 = 512 << 20;
/// Where a comment begins: `#` in most lists, `;` in Spamhaus's.
const COMMENTS: [char; 2] = ['#', ';'];

/// Who is dropped before anything is computed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deny {
    pub prefixes: BTreeSet<Prefix>,
    /// Destination ports.
    pub ports: BTreeSet<Port>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DenyFile {
    prefixes: Option<FileOrList<Prefix>>,
    ports: Option<Vec<Port>>,
}

/// That of a policy. folder : in which a file is looked for.
pub(super) fn of_policy(file: DenyFile, folder: Option<&Path>) -> std::result::Result<Deny, String> {
    let prefixes = match file.prefixes {
        None => BTreeSet::new(),
        Some(FileOrList::Listed(list)) => list.into_iter().collect(),
        Some(FileOrList::Named(name)) => {
            let path = folder.map_or_else(|| Path::new(&name).to_path_buf(), |folder| folder.join(&name));
            load(&path).map_err(|error| format!("deny: prefixes: {error}"))?
        }
    };
    Ok(Deny { prefixes, ports: file.ports.unwrap_or_default().into_iter().collect() })
}

/// Reads a file of prefixes.
pub fn load(path: &Path) -> Result<BTreeSet<Prefix>> {
    let name = path.display();
    let bytes = files::read(path, MAX_FILE_BYTES)?;
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        Error::input(format_args!("{name}: not UTF-8 text (byte {})", error.valid_up_to()))
    })?;
    parse(text).map_err(|message| Error::input(format_args!("{name}: {message}")))
}

/// Reads the text of a file of prefixes: one or none a line, then perhaps a comment. The error names the line, without the file's name.
pub fn parse(text: &str) -> std::result::Result<BTreeSet<Prefix>, String> {
    let mut prefixes = BTreeSet::new();
    for (line, number) in text.lines().zip(1..) {
        let prefix = line.split(COMMENTS).next().unwrap_or_default().trim();
        if !prefix.is_empty() {
            let prefix = prefix.parse().map_err(|message| format!("line {number}: {message}"))?;
            prefixes.insert(prefix);
        }
    }
    check_room(&prefixes)?;
    Ok(prefixes)
}

fn check_room(prefixes: &BTreeSet<Prefix>) -> std::result::Result<(), String> {
    let v4 = prefixes.iter().filter(|prefix| prefix.address.is_ipv4()).count();
    for (count, version) in [(v4, 4), (prefixes.len() - v4, 6)] {
        if count > abi::DENY_PREFIXES as usize {
            return Err(format!(
                "{count} prefixes of IPv{version} are too many; at most {}: join neighbouring prefixes",
                abi::DENY_PREFIXES
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_they_are_published() {
        let spamhaus = "; Spamhaus DROP List\n; Last-Modified: today\n1.10.16.0/20 ; SBL256894\r\n2001:db8::/32 ; SBL1\n";
        let firehol = "#\n# firehol_level1\n#\n0.0.0.0/8\n  192.0.2.7\n0.0.0.0/8\n\n";
        let read = |text: &str| parse(text).unwrap().iter().map(Prefix::to_string).collect::<Vec<_>>();
        assert_eq!(read(spamhaus), ["1.10.16.0/20", "2001:db8::/32"]);
        assert_eq!(read(firehol), ["0.0.0.0/8", "192.0.2.7/32"]);
        assert_eq!(read(""), [""; 0]);
    }

    #[test]
    fn a_line_that_is_no_prefix_is_named() {
        let refused = parse("10.0.0.0/8\n# none\nexample.org # a name\n").unwrap_err();
        assert!(refused.starts_with("line 3: 'example.org' is not a prefix"), "{refused}");
        let refused = parse("10.0.0.1/8").unwrap_err();
        assert!(refused.contains("line 1") && refused.contains("10.0.0.0/8"), "{refused}");
    }
}

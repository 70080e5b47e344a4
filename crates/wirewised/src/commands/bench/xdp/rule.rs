// SPDX-License-Identifier: Apache-2.0
//! Rules of the kernel's packet filter, to compare with: in this thread's network namespace, by `nft`.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::error::{Error, Result};

/// Ends with the value.
pub struct Rule(());

/// Whether there is an `nft`.
pub fn can() -> bool {
    let nft = Command::new("nft").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    nft.is_ok_and(|status| status.success())
}

impl Rule {
    /// hook : with its priority, such as `prerouting priority raw`. rule : what it says.
    pub fn add(hook: &str, rule: &str) -> Result<Self> {
        feed(&format!("table inet ww_bench {{\nchain c {{\ntype filter hook {hook};\n{rule}\n}}\n}}\n"))?;
        Ok(Self(()))
    }
}

impl Drop for Rule {
    fn drop(&mut self) {
        // The namespace ends with this process anyway.
        let _ = feed("delete table inet ww_bench\n");
    }
}

fn feed(text: &str) -> Result<()> {
    let failed = |what: &dyn std::fmt::Display| Error::other(format!("nft: {what}"));
    let mut nft = Command::new("nft");
    let nft = nft.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut nft = nft.spawn().map_err(|error| failed(&error))?;
    if let Some(mut stdin) = nft.stdin.take() {
        stdin.write_all(text.as_bytes()).map_err(|error| failed(&error))?;
    }
    let ended = nft.wait_with_output().map_err(|error| failed(&error))?;
    match ended.status.success() {
        true => Ok(()),
        false => Err(failed(&String::from_utf8_lossy(&ended.stderr).lines().next().unwrap_or_default())),
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Which attachment a command is about.

use crate::attachment::Attachment;
use crate::attachment::pins::{Lock, Root, RootArgs};
use crate::attachment::succession;
use crate::error::Result;

/// The options of every command on one attachment.
#[derive(Debug, clap::Args)]
pub struct AttachmentArgs {
    /// Which interface; not needed if only one is attached
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,

    #[command(flatten)]
    root: RootArgs,
}

impl AttachmentArgs {
    pub fn root(&self) -> Result<Root> {
        self.root.root()
    }

    pub fn find(&self) -> Result<Attachment> {
        Attachment::find(&self.root()?, self.interface.as_deref())
    }

    /// As `find`, with the lock that keeps it so, and tidied up unless it is a dry run. check: what else must hold first.
    pub fn find_locked(
        &self,
        dry_run: bool,
        check: impl FnOnce(&Root) -> Result<()>,
    ) -> Result<(Lock, Attachment)> {
        let root = self.root()?;
        // Taking the lock makes the directory, which a command that finds nothing attached must not.
        self.find()?;
        check(&root)?;
        let lock = root.lock()?;
        if !dry_run {
            succession::tidy_all(&root)?;
        }
        let found = self.find()?;
        found.require_here()?;
        Ok((lock, found))
    }
}

/// The same attachment at every call, wherever it is and whatever its interface is called, for commands that keep looking.
pub fn keep_finding(root: &Root, first: &Attachment) -> impl Fn() -> Result<Attachment> + use<> {
    let (root, directory, interface) = (root.clone(), first.directory.clone(), first.interface.clone());
    move || match Attachment::open(&directory) {
        Ok(found) if found.link.is_some() => Ok(found),
        _ => Attachment::find(&root, Some(&interface)),
    }
}

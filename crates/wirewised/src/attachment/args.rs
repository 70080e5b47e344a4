// SPDX-License-Identifier: Apache-2.0
//! Which attachment a command is about.

use crate::attachment::interfaces;
use crate::attachment::pins::{Lock, Root, RootArgs};
use crate::attachment::succession;
use crate::attachment::{Attachment, Whereabouts};
use crate::error::{Error, Result};

/// The options of every command on one attachment.
#[derive(Debug, Clone, clap::Args)]
pub struct AttachmentArgs {
    /// Which interface; not needed if only one is attached. `stats`, `swap` and `rollback` take several: eth0,eth1 or eth*
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,

    #[command(flatten)]
    root: RootArgs,
}

impl AttachmentArgs {
    pub fn root(&self) -> Result<Root> {
        self.root.root()
    }

    pub fn root_args(&self) -> &RootArgs {
        &self.root
    }

    /// The only one that is meant.
    pub fn find(&self) -> Result<Attachment> {
        let root = self.root()?;
        match &self.names(&root)?[..] {
            [] => Attachment::find(&root, None),
            [interface] => Attachment::find(&root, Some(interface)),
            several => Err(Error::input(format!(
                "--interface means several interfaces ({}), and this command looks at one",
                several.join(", ")
            ))),
        }
    }

    /// These options, once for each interface that is meant.
    pub fn each(&self) -> Result<Vec<Self>> {
        let names = self.names(&self.root()?)?;
        if names.is_empty() {
            return Ok(vec![self.clone()]);
        }
        Ok(names.into_iter().map(|name| Self { interface: Some(name), root: self.root.clone() }).collect())
    }

    /// Empty: none is named.
    fn names(&self, root: &Root) -> Result<Vec<String>> {
        self.interface.as_deref().map_or(Ok(Vec::new()), |text| attached(root, text))
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

/// The options of a command that changes something of one attachment, in place.
#[derive(Debug, clap::Args)]
pub struct ChangeArgs {
    /// Only say what would change
    #[arg(long)]
    pub dry_run: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub which: AttachmentArgs,
}

impl ChangeArgs {
    /// As that of `AttachmentArgs`.
    pub fn find_locked(&self) -> Result<(Lock, Attachment)> {
        self.which.find_locked(self.dry_run, |_| Ok(()))
    }

    /// What a line about the change ends with.
    pub fn note(&self) -> &'static str {
        if self.dry_run { " (dry run: nothing was changed)" } else { "" }
    }
}

/// The interfaces that `text` means, of those in this network namespace that something is attached to, or was.
pub fn attached(root: &Root, text: &str) -> Result<Vec<String>> {
    interfaces::expand(text, || {
        let all = Attachment::all(root)?;
        let here = all.attachments.into_iter().filter(|it| it.whereabouts != Whereabouts::Elsewhere);
        let unreadable = all.unreadable.into_iter().map(|it| it.interface);
        Ok(here.map(|it| it.interface).chain(unreadable).collect())
    })
}

/// The same attachment at every call, wherever it is and whatever its interface is called, for commands that keep looking.
pub fn keep_finding(root: &Root, first: &Attachment) -> impl Fn() -> Result<Attachment> + use<> {
    let (root, directory, interface) = (root.clone(), first.directory.clone(), first.interface.clone());
    move || match Attachment::open(&directory) {
        Ok(found) if found.link.is_some() => Ok(found),
        _ => Attachment::find(&root, Some(&interface)),
    }
}

// SPDX-License-Identifier: Apache-2.0
//! `wirewised keygen`.

use std::path::PathBuf;

use serde_json::json;

use crate::error::Result;
use crate::text::output;
use crate::trust::keys;

const EXAMPLES: &str = "\
Example:
  wirewised keygen release.key
      writes release.key, which only you may read, and release.pub
  wirewised sign model.wirewise --key release.key
  sudo install -D -m 644 release.pub /etc/wirewise/keys/release.pub
      on every machine that is to trust what release.key signs";

/// Make a key that signs bundles, and the public key that checks what it signed.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Where the private key goes; the public key goes beside it, with the extension .pub. Neither may exist
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let (public, fingerprint) = keys::generate(&args.file)?;
    if args.json {
        return output::print_json(&json!({
            "private_key": args.file, "public_key": public, "fingerprint": fingerprint,
        }));
    }
    println!("private key  {} (keep it to yourself)", args.file.display());
    println!("public key   {}", public.display());
    println!("fingerprint  {fingerprint}");
    Ok(())
}

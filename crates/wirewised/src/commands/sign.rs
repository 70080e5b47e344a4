// SPDX-License-Identifier: Apache-2.0
//! `wirewised sign`.

use std::path::PathBuf;

use serde_json::json;

use crate::bundle::signature;
use crate::bundle::{self, Bundle};
use crate::error::{Error, Result};
use crate::files::place::OutputPath;
use crate::files::whole_file::{WholeFile, commit_all};
use crate::text::output;
use crate::trust::keys;

const EXAMPLES: &str = "\
Examples:
  wirewised sign model.wirewise --key release.key
  wirewised sign model.wirewise --key release.key -o signed.wirewise
  wirewised verify --bundle model.wirewise --require-signature
A signature that is there already is replaced. `wirewised keygen` makes keys.";

/// Sign a bundle, so that others can tell that it came from you and was not changed since.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Bundle made by `wirewise compile`
    #[arg(value_name = "BUNDLE")]
    bundle: PathBuf,

    /// Private key made by `wirewised keygen`
    #[arg(long, value_name = "FILE")]
    key: PathBuf,

    /// Where the signed bundle goes [default: the bundle's own place]
    #[arg(short, long, value_name = "FILE", value_parser = OutputPath::parser(),
          value_hint = clap::ValueHint::FilePath)]
    output: Option<OutputPath>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let bytes = bundle::read_file(&args.bundle)?;
    let named = |message: String| Error::input(format!("{}: {message}", args.bundle.display()));
    let unsigned = Bundle::from_bytes(&bytes).map_err(named)?;
    unsigned.check_program().map_err(named)?;
    let key = keys::read_private(&args.key)?;
    let document = signature::sign(&key, &unsigned.statement);
    let signed = bundle::with_signature(&bytes, document.as_bytes()).map_err(named)?;
    // As everybody will read it.
    let Bundle { signer, digest, .. } = Bundle::from_bytes(&signed).map_err(named)?;
    let (output, mut file) = match &args.output {
        Some(output) => (&**output, WholeFile::create(output)?),
        None => (args.bundle.as_path(), WholeFile::rewrite(&args.bundle)?),
    };
    file.write_all(&signed)?;
    commit_all([file])?;
    let fingerprint = signer.map(|signer| signer.fingerprint);
    if args.json {
        return output::print_json(&json!({
            "bundle": output, "digest": digest, "fingerprint": fingerprint, "replaced": unsigned.signer,
        }));
    }
    let replaced = if unsigned.signer.is_some() { ", in place of the signature it had" } else { "" };
    println!("{}: signed by the key {}{replaced}", output.display(), fingerprint.unwrap_or_default());
    Ok(())
}

// SPDX-License-Identifier: Apache-2.0
//! Ready models, `@flood`: they come with `wirewise`, which compiles their bundles.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::bundle::manifest::Manifest;
use crate::error::{Error, Kind, Result};
use crate::files::json::{self, Limits};

const SIGN: &str = "@";
const MAKER: &str = "wirewise";
const ANSWER: Limits = Limits { bytes: 1 << 16, depth: 4, elements: 64 };

/// The file of a bundle; of a ready model's name, the one that `wirewise` compiles, beside this program or else on PATH.
pub fn bundle_file(path: &Path) -> Result<PathBuf> {
    match path.to_str() {
        Some(name) if name.starts_with(SIGN) => compiled(name),
        _ => Ok(path.to_path_buf()),
    }
}

/// Which ready model a bundle is of.
pub fn name(manifest: &Manifest) -> Option<&str> {
    manifest.training.as_ref()?.get("ready")?.get("name")?.as_str()
}

fn compiled(name: &str) -> Result<PathBuf> {
    let beside = std::env::current_exe().ok().map(|program| program.with_file_name(MAKER));
    let maker = beside.filter(|maker| maker.is_file()).unwrap_or_else(|| MAKER.into());
    let mut command = Command::new(maker);
    command.args(["models", name, "--compile", "--json"]).stdin(Stdio::null());
    let done = command.output().map_err(|error| {
        Error::missing(format!(
            "{name}: is compiled by `{MAKER}`, which cannot be run ({error}); `{MAKER} compile {name} -o FILE` where it is installed \
             makes a bundle, for --bundle FILE here"
        ))
    })?;
    if !done.status.success() {
        let said: Option<Value> = json::from_slice(&done.stderr, &ANSWER).ok();
        let message = said.as_ref().and_then(|said| said["error"]["message"].as_str()).map(str::to_string);
        let message = message.unwrap_or_else(|| String::from_utf8_lossy(&done.stderr).into_owned());
        return Err(Error::new(kind(done.status.code()), format!("{MAKER}: {message}")));
    }
    let answer: Value =
        json::from_slice(&done.stdout, &ANSWER).map_err(|error| Error::other(format!("{MAKER}: {error}")))?;
    let file = answer["bundle"].as_str().filter(|file| Path::new(file).is_absolute());
    file.map(PathBuf::from).ok_or_else(|| {
        Error::other(format!("{MAKER}: is of another version, for it names no bundle of {name}"))
    })
}

/// The kind of error that an exit code of `wirewise` means: both programs have the same codes.
fn kind(code: Option<i32>) -> Kind {
    [Kind::Input, Kind::Missing, Kind::Refused]
        .into_iter()
        .find(|kind| code == Some(kind.exit_code().into()))
        .unwrap_or(Kind::Other)
}

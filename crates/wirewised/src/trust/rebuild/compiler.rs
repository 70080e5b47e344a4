// SPDX-License-Identifier: Apache-2.0
//! clang on sources that nobody has read.

use std::io::{self, Read};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::ending;
use crate::error::{Error, Result};
use crate::trust::rebuild::datapath;
use crate::trust::rebuild::landlock::{self, Ruleset};

/// `nobody`, on every Linux.
const NOBODY: u32 = 65_534;
const PATIENCE: Duration = Duration::from_secs(300);
const MEMORY: u64 = 8 << 30;
/// Of an object, and of what clang says.
const MAX_OUTPUT: u64 = 64 << 20;

pub struct Compiler {
    name: String,
    pub version: String,
    as_nobody: bool,
}

impl Compiler {
    /// clang of the major version that the manifest names.
    pub fn find(input: &str, stated: &str) -> Result<Self> {
        let major = stated.split('.').next().filter(|major| major.parse::<u32>().is_ok());
        let Some(major) = major else {
            return Err(Error::input(format!(
                "{input}: its manifest names no version of clang, but {stated:?}"
            )));
        };
        // SAFETY: the call has no arguments and cannot fail.
        let as_nobody = unsafe { libc::geteuid() } == 0;
        for name in [format!("clang-{major}"), "clang".to_string()] {
            let Ok(output) = Command::new(&name).arg("--version").output() else { continue };
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let version = text.split("version ").nth(1).and_then(|rest| rest.split_whitespace().next());
            let Some(version) = version.filter(|version| version.split('.').next() == Some(major)) else {
                continue;
            };
            return Ok(Self { name, version: version.to_string(), as_nobody });
        }
        Err(Error::missing(format!(
            "{input}: was compiled by clang {stated}, and there is no clang {major} here to compile it again: \
             `apt-get install clang-{major}`"
        )))
    }

    /// Lets the compiler read a folder.
    pub fn admit(&self, folder: &Path) -> Result<()> {
        if !self.as_nobody {
            return Ok(());
        }
        chown(folder, None, Some(NOBODY))
            .map_err(|error| Error::other(format!("{}: {error}", folder.display())))
    }

    /// What clang may read: itself, the system's headers, and the sources.
    fn files(&self, sources: &Path) -> Result<Ruleset> {
        let Some(files) = Ruleset::new() else {
            return Err(Error::missing(
                "Landlock (Linux 5.13) is missing or off in this kernel, so clang could read any file for a stranger's sources: \
                 rebuild on another machine",
            ));
        };
        let allow = || {
            for path in landlock::SYSTEM.iter().map(Path::new).chain([sources]) {
                files.allow_reading(path)?;
            }
            for path in landlock::parts_of(&self.name) {
                files.allow_reading(&path)?;
            }
            files.allow_writing(Path::new("/dev/null"))
        };
        allow().map_err(|error: io::Error| Error::other(format!("Landlock: {error}")))?;
        Ok(files)
    }

    /// The object. meaning : of the manifest.
    pub fn compile(&self, input: &str, source: &Path, split: u32, meaning: &[u8]) -> Result<Vec<u8>> {
        let meaning: Vec<_> = meaning.iter().map(u8::to_string).collect();
        let folder = source.parent().unwrap_or(Path::new("/"));
        let mut command = Command::new(&self.name);
        command
            .args(datapath::FLAGS.lines())
            .args(["-w", "-fno-crash-diagnostics", "-ferror-limit=1"])
            .arg(format!("-DWW_SPLIT={split}"))
            .arg(format!("-DWW_MEANING={}", meaning.join(",")))
            .arg(format!("-I{}", folder.display()))
            .args(system_includes().iter().map(|path| format!("-isystem{}", path.display())))
            .arg("-c")
            .arg(source)
            .args(["-o", "-"])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if self.as_nobody {
            command.uid(NOBODY).gid(NOBODY);
        }
        let parent = std::process::id();
        let files = self.files(folder)?;
        // SAFETY: between fork and exec it only makes system calls, which are async-signal-safe.
        unsafe { command.pre_exec(move || confine(parent, &files)) };
        let mut child = command.spawn().map_err(|error| Error::missing(format!("{}: {error}", self.name)))?;
        let (object, said) = (collect(child.stdout.take()), collect(child.stderr.take()));
        let done = wait(&mut child);
        let (object, said) = (object.join().unwrap_or_default(), said.join().unwrap_or_default());
        match done {
            Ok(true) => Ok(object),
            Ok(false) => Err(refused(input, &format!("{} {}", self.name, self.version), &said)),
            Err(error) => Err(Error::other(format!("{}: {error}", self.name))),
        }
    }
}

/// Where the UAPI headers' asm/ lies: the multiarch folder, which `-target bpf` does not search.
fn system_includes() -> Vec<PathBuf> {
    let found = glob::glob("/usr/include/*-linux-gnu").into_iter().flatten().flatten();
    found.filter(|path| path.join("asm").is_dir()).collect()
}

/// No new privilege, no file to write, none to read but these, no core; an end to time and memory, and with us.
fn confine(parent: u32, files: &Ruleset) -> io::Result<()> {
    ending::end_with(parent)?;
    let limits = [
        (libc::RLIMIT_CPU, PATIENCE.as_secs()),
        (libc::RLIMIT_AS, MEMORY),
        (libc::RLIMIT_FSIZE, 0),
        (libc::RLIMIT_CORE, 0),
    ];
    for (resource, most) in limits {
        let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: the structure lives during the call.
        if unsafe { libc::setrlimit(resource, &limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: takes numbers only.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    files.enter()
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            let _ = pipe.take(MAX_OUTPUT).read_to_end(&mut bytes);
        }
        bytes
    })
}

/// Whether it succeeded; it is killed when its time is over.
fn wait(child: &mut Child) -> io::Result<bool> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if ending::came() {
            child.kill()?;
            child.wait()?;
            return Err(io::Error::from(io::ErrorKind::Interrupted));
        }
        if start.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            return Err(io::Error::other(format!("took longer than {} s", PATIENCE.as_secs())));
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn refused(input: &str, clang: &str, said: &[u8]) -> Error {
    let said = String::from_utf8_lossy(said);
    let first = said.lines().find(|line| line.contains("error")).unwrap_or("no reason given");
    if ["bpf/bpf_helpers.h", "bpf/bpf_endian.h", "linux/", "asm/"].iter().any(|header| first.contains(header))
        && first.contains("file not found")
    {
        return Error::missing(format!("{clang}: {first}; `apt-get install libbpf-dev linux-libc-dev`"));
    }
    Error::input(format!("{input}: its sources do not compile with {clang}: {first}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_needs::{Need, skip};

    /// What `generated.rs` refuses, given to clang all the same.
    #[test]
    fn clang_reads_nothing_but_its_own_and_the_sources() {
        let majors = (14..25).rev().map(|major: u32| major.to_string());
        let Some(compiler) = majors.into_iter().find_map(|major| Compiler::find("test", &major).ok()) else {
            skip(Need::Clang, "no clang");
            return;
        };
        if Ruleset::new().is_none() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        compiler.admit(folder.path()).unwrap();
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        // Anybody may read it, so that nothing but Landlock keeps it from clang.
        let elsewhere = tempfile::tempdir().unwrap();
        std::fs::set_permissions(elsewhere.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        let secret = elsewhere.path().join("secret");
        std::fs::write(&secret, "int a_secret;\n").unwrap();
        let source = folder.path().join("x.c");
        let compile = |text: String| {
            std::fs::write(&source, text).unwrap();
            compiler.compile("test", &source, 0, &[])
        };
        let harmless = compile("#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\nint x;\n".to_string());
        assert!(harmless.is_ok(), "{:?}", harmless.err());
        let path = secret.display();
        for text in [
            format!("#include \"{path}\"\n"),
            format!("asm(\".incbin \\\"{path}\\\"\");\n"),
            format!("asm(\".include \\\"{path}\\\"\");\n"),
            format!("const char x[] = {{\n#embed \"{path}\"\n}};\n"),
            format!("#if __has_include(\"{path}\")\nint x;\n#else\n#error no\n#endif\n"),
        ] {
            match compile(text.clone()) {
                Err(error) => assert!(!error.to_string().contains("a_secret"), "{error}"),
                Ok(object) => {
                    assert!(!object.windows(8).any(|bytes| bytes == b"a_secret"), "{text}");
                    assert!(text.starts_with("#if"), "{text} compiled");
                }
            }
        }
    }
}

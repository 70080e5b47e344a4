// SPDX-License-Identifier: Apache-2.0
//! Commands that only read, for who may not read maps: the service runs them in their place, where its control socket lets them in. HTTP
//! as the service speaks it, without a library for it: one request, one answer until the end.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::stop::{RESPONSE, Stop};
use crate::views::terminal;
pub use crate::views::terminal::COLUMNS;

/// Names the control socket, where it is not in its usual place.
const SOCKET: &str = "WIREWISE_SOCKET";
pub const USUAL_SOCKET: &str = "/run/wirewise/control.sock";
/// Where the service runs commands; `words` and `columns` are in its query.
pub const PATH: &str = "/api/v1/command";
/// The longest head of an answer.
const HEAD: u64 = 16 << 10;
/// The longest error.
const BODY: u64 = 64 << 10;

/// What a command says, an object a line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    Output(String),
    Error(String),
    /// The last.
    ExitCode(u8),
}

/// Has the service run a command, if it is there; `None`: it is not.
pub fn ask(words: &[OsString]) -> Option<Result<ExitCode>> {
    let path = std::env::var_os(SOCKET).map_or_else(|| PathBuf::from(USUAL_SOCKET), PathBuf::from);
    match UnixStream::connect(&path) {
        Ok(stream) => Some(follow(stream, &path, words)),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Some(Err(Error::missing(format!(
            "reading what runs needs root, or to be in the group of {} (`socket: {{group: wirewise}}` of the service)",
            path.display()
        )))),
        Err(_) => None,
    }
}

fn follow(mut stream: UnixStream, path: &Path, words: &[OsString]) -> Result<ExitCode> {
    let failed = |error: io::Error| Error::other(format!("{}: {error}", path.display()));
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let words = serde_json::to_string(&words).map_err(|error| Error::other(error.to_string()))?;
    let columns = terminal::width().map_or(String::new(), |columns| format!("&columns={columns}"));
    // HTTP/1.0: the answer is not cut into chunks, and ends with the connection.
    let request =
        format!("GET {PATH}?words={}{columns} HTTP/1.0\r\nHost: localhost\r\n\r\n", percent_encoded(&words));
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut answer = BufReader::new(stream);
    let status = head(&mut answer).map_err(failed)?;
    if status != 200 {
        let mut body = String::new();
        answer.take(BODY).read_to_string(&mut body).map_err(failed)?;
        let said: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
        let why = said["error"]["message"].as_str().map_or(format!("status {status}"), str::to_string);
        return Err(Error::input(format!("the service at {} refuses: {why}", path.display())));
    }
    let stop = Stop::on_signals()?;
    answer.get_ref().set_read_timeout(Some(RESPONSE)).map_err(failed)?;
    let mut line = Vec::new();
    while !stop.asked() {
        match answer.read_until(b'\n', &mut line) {
            Ok(0) => return Err(failed(io::Error::new(ErrorKind::UnexpectedEof, "the service ended"))),
            Ok(_) => {}
            // What was read of the line stays in it.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(error) => return Err(failed(error)),
        }
        let said = serde_json::from_slice(&line)
            .map_err(|error| Error::other(format!("{}: {error}", path.display())))?;
        line.clear();
        let written = match said {
            Said::Output(text) => io::stdout().write_all(text.as_bytes()),
            Said::Error(text) => io::stderr().write_all(text.as_bytes()),
            Said::ExitCode(code) => return Ok(ExitCode::from(code)),
        };
        written.map_err(|error| Error::other(format!("standard output: {error}")))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads an answer up to its body, and says its status.
fn head(answer: &mut impl BufRead) -> io::Result<u16> {
    let mut head = answer.take(HEAD);
    let mut first = String::new();
    head.read_line(&mut first)?;
    let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
    let mut line = String::new();
    while head.read_line(&mut line)? > 0 {
        if line.trim_end().is_empty() {
            return status.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "answers no HTTP"));
        }
        line.clear();
    }
    Err(io::Error::new(ErrorKind::InvalidData, "answers no HTTP"))
}

fn percent_encoded(text: &str) -> String {
    let one = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_head() {
        let status = |text: &str| head(&mut text.as_bytes());
        assert_eq!(status("HTTP/1.0 200 OK\r\ncontent-type: a\r\n\r\nbody").unwrap(), 200);
        for text in ["", "HTTP/1.0 200 OK\r\n", "SSH-2.0-OpenSSH_9.2\r\n\r\n", &"a: b\r\n".repeat(9000)] {
            assert!(status(text).is_err(), "{text:.20}");
        }
    }

    #[test]
    fn words_arrive_as_they_are() {
        assert_eq!(percent_encoded(r#"["a b","ä"]"#), "%5B%22a%20b%22%2C%22%C3%A4%22%5D");
    }
}

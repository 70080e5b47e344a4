// SPDX-License-Identifier: Apache-2.0
//! What outputs that send events by HTTP have in common: a client that runs in the output's own thread, and what is sent again when.

use std::io;
use std::path::Path;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, Response, StatusCode, Url};
use tokio::runtime::Runtime;
use wirewised::error::{Error, Result};

use super::RETRY;
use crate::requests::{self, because, is_in_clear};

const ANSWER: Duration = Duration::from_secs(30);
/// The longest pause before an event is sent again.
const LONGEST: Duration = Duration::from_secs(64);

pub struct Poster {
    client: Client,
    runtime: Runtime,
}

impl Poster {
    /// ca_file : certificates to trust beside those of the system.
    pub fn new(ca_file: Option<&Path>) -> Result<Self> {
        let builder = requests::client(concat!("wirewise/", env!("CARGO_PKG_VERSION")), ANSWER);
        let client = requests::trusting(builder, ca_file)?.build();
        let client = client.map_err(|error| Error::other(because(&error)))?;
        Ok(Self { client, runtime: super::runtime()? })
    }

    /// Sends JSON. authorization : that header, if there is one.
    pub fn post(&self, url: &Url, authorization: Option<&HeaderValue>, json: String) -> io::Result<Response> {
        let mut request = self.client.post(url.clone()).header(CONTENT_TYPE, "application/json");
        if let Some(value) = authorization {
            request = request.header(AUTHORIZATION, value);
        }
        // In the runtime from its first step on: a request begins its own clock.
        let answer = self.runtime.block_on(async { request.body(json).send().await });
        answer.map_err(|error| io::Error::other(because(&error)))
    }

    /// The body of an answer, with at most `most` bytes.
    pub fn body(&self, answer: Response, most: usize) -> io::Result<Vec<u8>> {
        let body = self.runtime.block_on(requests::body(answer, most));
        body.map_err(|error| io::Error::other(because(&error)))?
            .ok_or_else(|| io::Error::other(format!("answers with more than {most} bytes")))
    }
}

/// Refuses an address that requests cannot go to, or that a secret must not. key : where the secret is, if there is one.
pub fn check(url: &Url, key: &str, has_secret: bool) -> std::result::Result<(), String> {
    requests::check(url)?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(format!("has a name or a password; a secret goes into `{key}`"));
    }
    if has_secret && is_in_clear(url) {
        return Err(format!("would send what is in `{key}` over the network as it is; write https://"));
    }
    Ok(())
}

/// Turns a status other than success into an error.
pub fn taken(status: StatusCode) -> io::Result<()> {
    if status.is_success() {
        return Ok(());
    }
    let kind = if is_for_now(status) { io::ErrorKind::Other } else { io::ErrorKind::InvalidInput };
    Err(io::Error::new(kind, format!("answers {status}")))
}

pub fn may_pass(error: &io::Error) -> bool {
    error.kind() != io::ErrorKind::InvalidInput
}

pub fn pause(tries: u32) -> Duration {
    RETRY.saturating_mul(1 << tries.min(6)).min(LONGEST)
}

/// Whether the same request may be taken later.
fn is_for_now(status: StatusCode) -> bool {
    status.is_server_error()
        || matches!(
            status,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS | StatusCode::TOO_EARLY
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_taken_later_is_sent_again() {
        let later = |status: u16| is_for_now(StatusCode::from_u16(status).unwrap());
        assert!([408, 425, 429, 500, 503].into_iter().all(later));
        assert!(![301, 400, 401, 404, 413].into_iter().any(later));
    }

    #[test]
    fn a_token_goes_to_nobody_who_could_read_along() {
        let refused = |url: &str, has_token| check(&url.parse().unwrap(), "token_file", has_token).is_err();
        assert!(refused("http://192.0.2.1/hook", true) && !refused("http://192.0.2.1/hook", false));
        assert!(!refused("https://192.0.2.1/hook", true) && !refused("http://127.0.0.1:8080/hook", true));
        assert!(refused("ftp://192.0.2.1/", false) && refused("https://a:b@192.0.2.1/", false));
    }
}

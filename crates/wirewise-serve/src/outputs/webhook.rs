// SPDX-License-Identifier: Apache-2.0
//! Events as HTTP requests, one for each.

use std::io;
use std::path::Path;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, StatusCode, Url};
use tokio::runtime::{Builder, Runtime};
use wirewised::error::{Error, Result};

use super::{RETRY, Sent, Sink};
use crate::requests::{self, because, is_in_clear, secret};

const ANSWER: Duration = Duration::from_secs(30);
/// The longest pause before an event is sent again.
const LONGEST: Duration = Duration::from_secs(64);

pub struct Webhook {
    url: Url,
    token: Option<HeaderValue>,
    client: Client,
    /// Runs requests in the output's own thread.
    runtime: Runtime,
}

impl Webhook {
    pub fn new(url: Url, token_file: Option<&Path>) -> Result<Self> {
        let read = |file| secret(file, "Bearer ", "holds no token: one line of printable characters");
        let token = token_file.map(read).transpose()?;
        let client = requests::client(concat!("wirewise/", env!("CARGO_PKG_VERSION")), ANSWER).build();
        let client = client.map_err(|error| Error::other(because(&error)))?;
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(|error| Error::other(&error))?;
        Ok(Self { url, token, client, runtime })
    }
}

/// Refuses an address that requests cannot go to, or that a token must not.
pub fn check(url: &Url, has_token: bool) -> std::result::Result<(), String> {
    requests::check(url)?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("has a name or a password; a token goes into `token_file`".to_string());
    }
    if has_token && is_in_clear(url) {
        return Err("would send the token over the network as it is; write https://".to_string());
    }
    Ok(())
}

impl Sink for Webhook {
    fn send(&mut self, sent: &Sent) -> io::Result<()> {
        let mut request = self.client.post(self.url.clone()).header(CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        // Whatever else the answer says is not read.
        // In the runtime from its first step on: a request begins its own clock.
        let answer = self.runtime.block_on(async { request.body(sent.json.clone()).send().await });
        let status = answer.map_err(|error| io::Error::other(because(&error)))?.status();
        if status.is_success() {
            return Ok(());
        }
        let kind = if is_for_now(status) { io::ErrorKind::Other } else { io::ErrorKind::InvalidInput };
        Err(io::Error::new(kind, format!("answers {status}")))
    }

    fn may_pass(&self, error: &io::Error) -> bool {
        error.kind() != io::ErrorKind::InvalidInput
    }

    fn pause(&self, tries: u32) -> Duration {
        RETRY.saturating_mul(1 << tries.min(6)).min(LONGEST)
    }
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
        let refused = |url: &str, has_token| check(&url.parse().unwrap(), has_token).is_err();
        assert!(refused("http://192.0.2.1/hook", true) && !refused("http://192.0.2.1/hook", false));
        assert!(!refused("https://192.0.2.1/hook", true) && !refused("http://127.0.0.1:8080/hook", true));
        assert!(refused("ftp://192.0.2.1/", false) && refused("https://a:b@192.0.2.1/", false));
    }
}

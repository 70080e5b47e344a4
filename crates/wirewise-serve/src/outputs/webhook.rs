// SPDX-License-Identifier: Apache-2.0
//! Events as HTTP requests, one for each.

use std::io;
use std::path::Path;
use std::time::Duration;

use reqwest::Url;
use reqwest::header::HeaderValue;
use wirewised::error::Result;

use super::post::{self, Poster};
use super::{Sent, Sink};
use crate::requests::secret;

pub struct Webhook {
    url: Url,
    token: Option<HeaderValue>,
    poster: Poster,
}

impl Webhook {
    pub fn new(url: Url, token_file: Option<&Path>) -> Result<Self> {
        let read = |file| secret(file, "Bearer ", "holds no token: one line of printable characters");
        let token = token_file.map(read).transpose()?;
        Ok(Self { url, token, poster: Poster::new(None)? })
    }
}

impl Sink for Webhook {
    fn send(&mut self, sent: &Sent) -> io::Result<()> {
        // Whatever else the answer says is not read.
        let answer = self.poster.post(&self.url, self.token.as_ref(), sent.json.clone())?;
        post::taken(answer.status())
    }

    fn may_pass(&self, error: &io::Error) -> bool {
        post::may_pass(error)
    }

    fn pause(&self, tries: u32) -> Duration {
        post::pause(tries)
    }
}

// SPDX-License-Identifier: Apache-2.0
//! What requests to other people's HTTP servers have in common: who may hear the secret that they carry, and what is said when they fail.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use reqwest::header::HeaderValue;
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, ClientBuilder, Response, Url};
use wirewised::error::{Error, Result};
use wirewised::files;

const CONNECT: Duration = Duration::from_secs(5);
const MAX_SECRET: u64 = 4096;
const MAX_CERTIFICATES: u64 = 1 << 20;

/// answer : how long a whole answer may take.
pub fn client(user_agent: &str, answer: Duration) -> ClientBuilder {
    Client::builder()
        .user_agent(user_agent)
        .connect_timeout(CONNECT)
        .timeout(answer)
        // What is sent is for one address, and for no other that an answer or the environment names.
        .redirect(Policy::none())
        .no_proxy()
}

/// Also trusts the certificates of a file, beside those that the system trusts.
pub fn trusting(builder: ClientBuilder, ca_file: Option<&Path>) -> Result<ClientBuilder> {
    let Some(path) = ca_file else { return Ok(builder) };
    let refuse = || Error::input(format!("{}: no certificates in PEM form", path.display()));
    let bytes = files::read(path, MAX_CERTIFICATES)?;
    let certificates = Certificate::from_pem_bundle(&bytes).map_err(|_| refuse())?;
    if certificates.is_empty() {
        return Err(refuse());
    }
    Ok(certificates.into_iter().fold(builder, |it, one| it.add_root_certificate(one)))
}

/// The one line of a file. otherwise : the complaint about a file that holds something else.
pub fn secret_line(file: &Path, otherwise: &str) -> Result<String> {
    let bytes = files::read(file, MAX_SECRET)?;
    let line = bytes.trim_ascii();
    let fits = !line.is_empty() && line.iter().all(u8::is_ascii_graphic);
    let text = std::str::from_utf8(line).ok().filter(|_| fits);
    text.map(str::to_string).ok_or_else(|| Error::input(format!("{}: {otherwise}", file.display())))
}

/// A header with the one line of a file behind `before`. otherwise : the complaint about a file that holds something else.
pub fn secret(file: &Path, before: &str, otherwise: &str) -> Result<HeaderValue> {
    let line = secret_line(file, otherwise)?;
    sensitive(&format!("{before}{line}"))
        .ok_or_else(|| Error::input(format!("{}: {otherwise}", file.display())))
}

/// A header that is never printed; `None`: no header can have this value.
pub fn sensitive(value: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(value).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// What an answer holds; `None`: more than `most` bytes.
pub async fn body(mut answer: Response, most: usize) -> reqwest::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    while let Some(part) = answer.chunk().await? {
        if bytes.len() + part.len() > most {
            return Ok(None);
        }
        bytes.extend_from_slice(&part);
    }
    Ok(Some(bytes))
}

/// Without its query, which may hold a secret.
pub fn shown(url: &Url) -> String {
    let mut shown = url.clone();
    shown.set_query(None);
    shown.to_string()
}

/// Refuses an address that requests cannot go to.
pub fn check(url: &Url) -> std::result::Result<(), &'static str> {
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err("neither http:// nor https://");
    }
    Ok(())
}

/// Whether others on the way can read what is sent.
pub fn is_in_clear(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    url.scheme() == "http" && !here
}

/// The last of an error's causes, of which reqwest shows the first; the address is named apart.
pub fn because(error: &reqwest::Error) -> String {
    let mut text = String::new();
    let mut next: Option<&dyn std::error::Error> = std::error::Error::source(error);
    while let Some(cause) = next {
        text = cause.to_string();
        next = cause.source();
    }
    if error.is_timeout() {
        return "does not answer in time".to_string();
    }
    if text.is_empty() { error.to_string() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_and_this_machine_are_not_in_the_clear() {
        let clear = |text: &str| is_in_clear(&text.parse().unwrap());
        assert!(clear("http://192.0.2.1:8080") && !clear("http://[::1]") && !clear("https://192.0.2.1"));
    }
}

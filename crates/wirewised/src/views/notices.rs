// SPDX-License-Identifier: Apache-2.0
//! Notices on standard output, one a line.

use crate::abi::Outcome;
use crate::error::{Error, Result};
use crate::reading::notices::{Notice, Stage, Sum, Target};
use crate::text::output::Lines;
use crate::text::units::{format_bytes, thousands};
use crate::views::terminal::{self, wrapped};

/// json : one object a line, else words for people.
pub fn print(notice: &Notice, json: bool) -> Result<()> {
    let as_json = || serde_json::to_string(notice).map_err(|error| Error::other(format!("JSON: {error}")));
    let mut lines = Lines::new();
    lines.block(&if json { as_json()? } else { wrapped(&describe(notice), terminal::width(), 2) })?;
    lines.flush()
}

fn describe(notice: &Notice) -> String {
    let Sum { notice: stage, class, outcome, begin, last, packets, bytes, .. } = &notice.wirewise;
    let (outcome, packets) = (outcome.map_or("unknown", Outcome::name), thousands(*packets));
    let bytes = bytes.map_or_else(String::new, |bytes| format!(", {}", format_bytes(bytes)));
    let time = match stage {
        Stage::Begin => format!("began {begin}"),
        Stage::Update => format!("since {begin}"),
        Stage::End => format!("{begin} to {last}"),
    };
    let severity =
        notice.alert.as_ref().map_or_else(String::new, |alert| format!(", severity {}", alert.severity));
    let said = &notice.wirewise;
    let sources: Vec<_> = said
        .top_sources
        .iter()
        .map(|source| format!("{} {:.0} %", source.ip, 100.0 * source.share))
        .collect();
    let services: Vec<_> = said.top_services.iter().map(service).collect();
    format!(
        "{}  {outcome:<11} {class}  {packets} packets{bytes}{severity}, {time}{}{}",
        notice.timestamp,
        listed("from", &sources),
        listed("to", &services),
    )
}

fn service(target: &Target) -> String {
    let words = [target.proto.clone(), target.port.map(|port| port.to_string())];
    format!("{} {:.0} %", words.into_iter().flatten().collect::<Vec<_>>().join("/"), 100.0 * target.share)
}

fn listed(word: &str, items: &[String]) -> String {
    if items.is_empty() { String::new() } else { format!("; {word} {}", items.join(", ")) }
}

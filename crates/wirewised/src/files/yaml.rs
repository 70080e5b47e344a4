// SPDX-License-Identifier: Apache-2.0
//! YAML that people write: policies, feature sets, labels.

use serde::de::DeserializeOwned;
use serde_saphyr::{MessageFormatter, UserMessageFormatter};

use crate::text::nearest::choose;

/// Reads one YAML document. The error is one line with the place in the text.
pub fn from_yaml<T: DeserializeOwned>(text: &str) -> std::result::Result<T, String> {
    from_long_yaml(text, usize::default())
}

/// As `from_yaml`, of a list that is longer than people write. nodes : that it may have, if that is more than usual.
pub fn from_long_yaml<T: DeserializeOwned>(text: &str, nodes: usize) -> std::result::Result<T, String> {
    let mut options = serde_saphyr::Options::default();
    if let Some(budget) = &mut options.budget {
        budget.max_nodes = budget.max_nodes.max(nodes);
        // A list or a mapping has an end too.
        budget.max_events = budget.max_events.max(2 * nodes);
    }
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let message = UserMessageFormatter.format_message(error.without_snippet());
        let message = message.escape_debug().to_string().replace("\\'", "'").replace("\\\"", "\"");
        let message = unknown_field(&message).unwrap_or_else(|| plain(&message));
        match error.location() {
            Some(location) => format!("line {}, column {}: {message}", location.line(), location.column()),
            None => message,
        }
    })
}

/// serde's message about an unknown key, with the one that was probably meant.
fn unknown_field(message: &str) -> Option<String> {
    let (name, rest) = message.strip_prefix("unknown field `")?.split_once('`')?;
    let known = rest.strip_prefix(", expected ")?;
    let known = known.strip_prefix("one of ").unwrap_or(known).replace('`', "");
    let known: Vec<_> = known.split(", ").flat_map(|part| part.split(" or ")).collect();
    Some(format!("unknown key '{name}'; {}", choose(name, &known)))
}

/// Rewords the library's own terms for the author of the file.
fn plain(message: &str) -> String {
    let said = match message {
        "expected mapping start" => "expected keys with values, such as `key: value`",
        "expected sequence start" => "expected a list, such as [one, two]",
        "simple key expected ':'" => "expected ':' behind a key",
        "only single YAML document expected but multiple found" => {
            "holds several YAML documents, expected one"
        }
        _ => message,
    };
    if let Some(bits) = said.strip_prefix("invalid u").and_then(|bits| bits.parse::<u32>().ok()) {
        let largest = u64::MAX.checked_shr(64u32.saturating_sub(bits)).unwrap_or_default();
        return format!("expected a whole number from 0 to {largest}");
    }
    if said.contains("any variant of untagged enum") {
        return "has none of the forms that this key may have".to_string();
    }
    let Some((found, expected)) =
        said.strip_prefix("invalid type: ").and_then(|rest| rest.split_once(", expected "))
    else {
        return said.to_string();
    };
    let found = match found {
        "sequence" => "a list",
        "map" => "keys with values",
        "unit value" => "nothing",
        _ => found.find('`').map_or(found, |start| found[start..].trim_matches('`')),
    };
    format!("expected {expected}, found {found}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read")]
    struct Two {
        prefixes: Option<u32>,
        ports: Option<u32>,
    }

    #[test]
    fn messages_are_in_terms_of_the_file() {
        let said = |text| from_yaml::<Two>(text).unwrap_err();
        assert_eq!(said("7"), "line 1, column 1: expected keys with values, such as `key: value`");
        assert_eq!(said("ports: x"), "line 1, column 8: expected a whole number from 0 to 4294967295");
        assert_eq!(
            from_yaml::<Vec<u32>>("x").unwrap_err(),
            "line 1, column 1: expected a list, such as [one, two]"
        );
    }

    #[test]
    fn an_unknown_key_is_said_with_its_place_and_what_was_meant() {
        let said = from_yaml::<Two>("ports: 1\nprefxes: 2\n").unwrap_err();
        assert_eq!(
            said,
            "line 2, column 1: unknown key 'prefxes'; did you mean 'prefixes'? there are: prefixes, ports"
        );
    }
}

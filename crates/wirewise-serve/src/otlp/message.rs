// SPDX-License-Identifier: Apache-2.0
//! `ExportMetricsServiceRequest` of the OpenTelemetry protocol in its JSON form, made of what `/metrics` answers. Its 64-bit numbers are
//! strings there, as protocol buffers have them in JSON.

use serde_json::{Value, json};

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: u32 = 2;

/// What the lines in front of a family's samples say.
#[derive(Default)]
struct Family<'a> {
    name: &'a str,
    help: String,
    unit: &'a str,
    kind: &'a str,
    points: Vec<Value>,
}

impl Family<'_> {
    fn finish(self) -> Option<Value> {
        if self.points.is_empty() {
            return None;
        }
        // As the Unified Code for Units of Measure writes them.
        let unit = match self.unit {
            "bytes" => "By",
            "seconds" => "s",
            other => other,
        };
        let mut metric = json!({"name": self.name, "description": self.help, "unit": unit});
        metric[if self.kind == "counter" { "sum" } else { "gauge" }] = if self.kind == "counter" {
            json!({
                "aggregationTemporality": CUMULATIVE, "isMonotonic": true, "dataPoints": self.points,
            })
        } else {
            json!({"dataPoints": self.points})
        };
        Some(metric)
    }
}

/// text : this program's own OpenMetrics text. now_ns : since 1970.
pub fn of_text(text: &str, host: &str, now_ns: u128) -> Value {
    let mut metrics = Vec::new();
    let mut family = Family::default();
    for line in text.lines() {
        if let Some(said) = line.strip_prefix("# ") {
            let mut words = said.splitn(3, ' ');
            let (what, name, rest) = (words.next(), words.next().unwrap_or_default(), words.next());
            if name != family.name {
                metrics.extend(std::mem::replace(&mut family, Family { name, ..Family::default() }).finish());
            }
            let rest = rest.unwrap_or_default();
            match what {
                Some("HELP") => family.help = unescaped(rest),
                Some("UNIT") => family.unit = rest,
                Some("TYPE") => family.kind = rest,
                _ => {}
            }
        } else if let Some((labels, value)) = sample(line) {
            let attributes: Vec<_> = labels
                .into_iter()
                .map(|(name, value)| json!({"key": name, "value": {"stringValue": value}}))
                .collect();
            let mut point = json!({"attributes": attributes, "timeUnixNano": now_ns.to_string()});
            match value.parse::<i64>() {
                Ok(whole) => point["asInt"] = whole.to_string().into(),
                Err(_) => point["asDouble"] = value.parse::<f64>().unwrap_or_default().into(),
            }
            family.points.push(point);
        }
    }
    metrics.extend(family.finish());
    let attribute = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
    let version = env!("CARGO_PKG_VERSION");
    let resource = json!({"attributes": [
        attribute("service.name", "wirewised"), attribute("service.version", version), attribute("host.name", host),
    ]});
    let scope = json!({"name": "wirewise", "version": version});
    json!({"resourceMetrics": [{"resource": resource, "scopeMetrics": [{"scope": scope, "metrics": metrics}]}]})
}

/// Labels and value of a line.
fn sample(line: &str) -> Option<(Vec<(&str, String)>, &str)> {
    let Some((_, rest)) = line.split_once('{') else {
        return Some((Vec::new(), line.split(' ').nth(1)?));
    };
    let mut labels = Vec::new();
    let mut rest = rest;
    while let Some((name, behind)) = rest.split_once("=\"") {
        let end = end_of_value(behind)?;
        labels.push((name, unescaped(&behind[..end])));
        rest = &behind[end + 1..];
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => break,
        }
    }
    Some((labels, rest.strip_prefix('}')?.trim_start().split(' ').next()?))
}

/// Where the quotation mark behind a value is.
fn end_of_value(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })
}

fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some('n') => plain.push('\n'),
                Some(other) => plain.push(other),
                None => {}
            },
            _ => plain.push(letter),
        }
    }
    plain
}

/// Why a collector that took a request took only a part of it, if so.
pub fn refused(answer: &[u8]) -> Option<String> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    let part = &answer["partialSuccess"];
    let count = &part["rejectedDataPoints"];
    let count = count.as_u64().or_else(|| count.as_str()?.parse().ok()).filter(|count| *count > 0)?;
    let why: String = part["errorMessage"].as_str().unwrap_or_default().chars().take(200).collect();
    Some(format!("the collector took all but {count} numbers: {}", why.escape_debug()))
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::family::Family as Counters;
    use prometheus_client::metrics::{counter::Counter, gauge::Gauge};
    use prometheus_client::registry::{Registry, Unit};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn families_become_sums_and_gauges() {
        let mut registry = Registry::default();
        let (bytes, plain) =
            (Counter::<u64>::default(), Gauge::<f64, std::sync::atomic::AtomicU64>::default());
        bytes.inc_by(u64::from(u32::MAX) * 4);
        plain.set(-0.5);
        registry.register_with_unit("received", "What came in", Unit::Bytes, bytes);
        registry.register("level", "Up or down", plain);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let message = of_text(&text, "host", 7);
        let metrics = &message["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
        assert_eq!(metrics.as_array().unwrap().len(), 2);
        assert_eq!(
            metrics[0],
            json!({"name": "received_bytes", "description": "What came in.", "unit": "By", "sum": {
                "aggregationTemporality": 2, "isMonotonic": true,
                "dataPoints": [{"attributes": [], "timeUnixNano": "7", "asInt": "17179869180"}]}})
        );
        assert_eq!(metrics[1]["gauge"]["dataPoints"][0]["asDouble"], -0.5);
    }

    proptest! {
        #[test]
        fn labels_come_through_whatever_they_hold(values in prop::collection::vec(".*", 1..4)) {
            let mut registry = Registry::default();
            let family = Counters::<Vec<(String, String)>, Counter>::default();
            let labels: Vec<_> =
                values.iter().enumerate().map(|(number, value)| (format!("l{number}"), value.clone())).collect();
            let written = labels.iter().map(|(name, value)| (name.clone(), crate::metrics::escaped(value))).collect();
            family.get_or_create(&written).inc_by(3);
            registry.register("counted", "Some", family);
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
            let message = of_text(&text, "host", 7);
            let point = &message["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0]["sum"]["dataPoints"][0];
            let found: Vec<_> = point["attributes"].as_array().unwrap().iter().map(|it| {
                (it["key"].as_str().unwrap().to_string(), it["value"]["stringValue"].as_str().unwrap().to_string())
            }).collect();
            prop_assert_eq!(found, labels);
            prop_assert_eq!(&point["asInt"], "3");
        }
    }

    #[test]
    fn a_part_that_was_refused_is_told() {
        assert_eq!(refused(b"{}"), None);
        assert_eq!(refused(b"not json"), None);
        assert_eq!(refused(br#"{"partialSuccess": {"rejectedDataPoints": "0"}}"#), None);
        let why = refused(br#"{"partialSuccess": {"rejectedDataPoints": "3", "errorMessage": "too\nold"}}"#);
        assert_eq!(why.unwrap(), "the collector took all but 3 numbers: too\\nold");
    }
}

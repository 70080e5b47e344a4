// SPDX-License-Identifier: Apache-2.0
//! One JSON object a row.

use std::fs::File;
use std::io::{BufWriter, Write};

use serde::Serializer;
use serde::ser::SerializeMap;

use super::{Batch, NO_TEXT, Sink, Values};

pub struct JsonLines {
    out: BufWriter<File>,
}

impl JsonLines {
    pub fn new(out: File) -> Self {
        Self { out: BufWriter::with_capacity(1 << 18, out) }
    }
}

impl<B: Batch> Sink<B> for JsonLines {
    fn write(&mut self, batch: &B) -> Result<(), String> {
        let columns = batch.columns();
        for row in 0..batch.len() {
            let mut line = serde_json::Serializer::new(&mut self.out);
            let mut object = line.serialize_map(None).map_err(text)?;
            for (name, values) in &columns {
                write_value(&mut object, name, values, row).map_err(text)?;
            }
            object.end().map_err(text)?;
            self.out.write_all(b"\n").map_err(text)?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), String> {
        self.out.flush().map_err(text)
    }
}

fn write_value<M: SerializeMap>(
    object: &mut M,
    name: &str,
    values: &Values<'_>,
    row: usize,
) -> Result<(), M::Error> {
    match values {
        Values::Int64(values) => object.serialize_entry(name, &values[row]),
        Values::Int32(values) => object.serialize_entry(name, &values[row]),
        Values::Bool(values) => object.serialize_entry(name, &values[row]),
        Values::Text(ids, texts) => {
            let text = (ids[row] != NO_TEXT).then(|| texts.get(ids[row] as usize)).flatten();
            object.serialize_entry(name, &text)
        }
        Values::Flow(flows) => {
            let flow = flows[row].map(|flow| flow.to_string()).unwrap_or_default();
            object.serialize_entry(name, &flow)
        }
        Values::Optional { values, present } => {
            let value = present[row].then(|| values[row]);
            object.serialize_entry(name, &value)
        }
        Values::Missing => object.serialize_entry(name, &None::<i64>),
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

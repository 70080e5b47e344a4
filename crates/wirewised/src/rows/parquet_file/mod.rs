// SPDX-License-Identifier: Apache-2.0
//! Parquet, one row group a batch.
//!
//! The values are encoded here and not by the library's column writers, which know neither that a text is one of few nor that a
//! row has features or none: they took most of the time from capture to table. Files and footers are the library's.

mod bits;
mod delta;
mod hybrid;
mod pages;
#[cfg(test)]
mod tests;
mod texts;

use std::fs::File;
use std::sync::Arc;

use parquet::basic::{ConvertedType, Encoding, Repetition, Type as Physical};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::schema::types::Type;

use self::pages::{Chunk, Pages};
use self::texts::Dictionary;
use super::{Batch, Sink, Values};

pub struct ParquetFile {
    pages: Pages,
    /// Of one column; used again for the next.
    body: Vec<u8>,
    dictionary: Dictionary,
    numbers: Vec<i64>,
    small: Vec<u32>,
}

impl ParquetFile {
    pub fn new<B: Batch>(out: File, blank: &B, metadata: &[(String, String)]) -> Result<Self, ParquetError> {
        let columns = blank.columns();
        let fields = columns.iter().map(|(name, values)| field(name, values).map(Arc::new));
        let schema =
            Type::group_type_builder("schema").with_fields(fields.collect::<Result<_, _>>()?).build()?;
        let metadata = metadata.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
        Ok(Self {
            pages: Pages::new(out, schema, metadata.collect())?,
            body: Vec::new(),
            dictionary: Dictionary::default(),
            numbers: Vec::new(),
            small: Vec::new(),
        })
    }

    fn write_batch<B: Batch>(&mut self, batch: &B) -> Result<(), ParquetError> {
        for (_, values) in batch.columns() {
            self.write_column(&values, batch.len())?;
        }
        self.pages.end_group(batch.len())
    }

    fn write_column(&mut self, values: &Values<'_>, rows: usize) -> Result<(), ParquetError> {
        let Self { pages, body, dictionary, numbers, small } = self;
        let mut encoding = Encoding::DELTA_BINARY_PACKED;
        match values {
            Values::Int64(values) => delta::append(values, body),
            Values::Int32(values) => delta::append(values, body),
            Values::Optional { values, present } if present.iter().all(|present| *present) => {
                append_levels(body, |out| hybrid::append_run(1, rows, 1, out));
                delta::append(values, body);
            }
            Values::Optional { values, present } => {
                fill(small, present.iter().copied().map(u32::from));
                append_levels(body, |out| hybrid::append(small, 1, out));
                let there = values.iter().zip(*present).filter(|(_, present)| **present);
                fill(numbers, there.map(|(value, _)| *value));
                delta::append(numbers, body);
            }
            Values::Missing => {
                append_levels(body, |out| hybrid::append_run(0, rows, 1, out));
                delta::append::<i64>(&[], body);
            }
            Values::Bool(values) => {
                encoding = Encoding::PLAIN;
                fill(small, values.iter().copied().map(u32::from));
                hybrid::append_bits(small, 1, body);
                body.truncate(rows.div_ceil(8));
            }
            Values::Text(ids, names) => {
                dictionary.fill_names(ids, names);
                if dictionary.indices.len() == rows {
                    append_levels(body, |out| hybrid::append_run(1, rows, 1, out));
                } else {
                    fill(small, ids.iter().map(|id| u32::from((*id as usize) < names.len())));
                    append_levels(body, |out| hybrid::append(small, 1, out));
                }
                return write_texts(pages, body, dictionary, rows);
            }
            Values::Flow(flows) => {
                dictionary.fill_flows(flows);
                return write_texts(pages, body, dictionary, rows);
            }
        }
        pages.write(Chunk { body, encoding, dictionary: None }, rows)
    }
}

/// body : the definition levels, if there are any.
fn write_texts(
    pages: &mut Pages,
    body: &mut Vec<u8>,
    dictionary: &Dictionary,
    rows: usize,
) -> Result<(), ParquetError> {
    let Dictionary { bytes, entries, indices, .. } = dictionary;
    let width = hybrid::index_width(*entries as usize);
    body.push(width as u8);
    hybrid::append(indices, width, body);
    let dictionary = Some((bytes.as_slice(), *entries as usize));
    pages.write(Chunk { body, encoding: Encoding::RLE_DICTIONARY, dictionary }, rows)
}

/// Appends definition levels: 1 is a value, 0 null.
fn append_levels(body: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = body.len();
    body.extend_from_slice(&[0; 4]);
    write(body);
    let length = (body.len() - start - 4) as u32;
    body[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

fn fill<T>(list: &mut Vec<T>, values: impl Iterator<Item = T>) {
    list.clear();
    list.extend(values);
}

fn field(name: &str, values: &Values<'_>) -> Result<Type, ParquetError> {
    let (physical, repetition, text) = match values {
        Values::Int64(_) => (Physical::INT64, Repetition::REQUIRED, false),
        Values::Int32(_) => (Physical::INT32, Repetition::REQUIRED, false),
        Values::Bool(_) => (Physical::BOOLEAN, Repetition::REQUIRED, false),
        Values::Text(..) => (Physical::BYTE_ARRAY, Repetition::OPTIONAL, true),
        Values::Flow(_) => (Physical::BYTE_ARRAY, Repetition::REQUIRED, true),
        Values::Optional { .. } | Values::Missing => (Physical::INT64, Repetition::OPTIONAL, false),
    };
    let kind = if text { ConvertedType::UTF8 } else { ConvertedType::NONE };
    Type::primitive_type_builder(name, physical).with_repetition(repetition).with_converted_type(kind).build()
}

impl<B: Batch> Sink<B> for ParquetFile {
    fn write(&mut self, batch: &B) -> Result<(), String> {
        self.write_batch(batch).map_err(|error| error.to_string())
    }

    fn finish(&mut self) -> Result<(), String> {
        self.pages.finish().map_err(|error| error.to_string())
    }
}

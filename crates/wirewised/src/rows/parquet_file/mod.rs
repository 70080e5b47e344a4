// SPDX-License-Identifier: Apache-2.0
//! Parquet, one page a batch and column.
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

use self::pages::Pages;
use self::texts::Dictionary;
use super::{Batch, Sink, Values};

/// Rows of a row group: whole batches until there are as many. Its pages wait in memory for their column's turn, and what the footer
/// says of each group stays there to the end of the file.
const GROUP: usize = 1 << 18;

pub struct ParquetFile {
    pages: Pages,
    columns: Columns,
    /// Of one column; used again for the next.
    body: Vec<u8>,
}

impl ParquetFile {
    pub fn new<B: Batch>(out: File, blank: &B, metadata: &[(String, String)]) -> Result<Self, ParquetError> {
        let columns = blank.columns();
        let fields = columns.iter().map(|(name, values)| field(name, values).map(Arc::new));
        let schema =
            Type::group_type_builder("schema").with_fields(fields.collect::<Result<_, _>>()?).build()?;
        let metadata = metadata.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
        let encodings = columns.iter().map(|(_, values)| encoding(values));
        Ok(Self {
            pages: Pages::new(out, schema, encodings, metadata.collect())?,
            columns: Columns {
                dictionaries: columns.iter().map(|(_, values)| dictionary(values)).collect(),
                numbers: Vec::new(),
                small: Vec::new(),
            },
            body: Vec::new(),
        })
    }

    fn write_batch<B: Batch>(&mut self, batch: &B) -> Result<(), ParquetError> {
        for (index, (_, values)) in batch.columns().iter().enumerate() {
            self.columns.append(index, values, batch.len(), &mut self.body);
            self.pages.add(index, &mut self.body, batch.len())?;
        }
        self.pages.added(batch.len());
        if self.pages.rows() >= GROUP { self.end_group() } else { Ok(()) }
    }

    fn end_group(&mut self) -> Result<(), ParquetError> {
        let dictionaries = &mut self.columns.dictionaries;
        self.pages.end_group(|index| {
            let dictionary = dictionaries.get(index)?.as_ref()?;
            Some((dictionary.bytes.as_slice(), dictionary.entries))
        })?;
        dictionaries.iter_mut().flatten().for_each(Dictionary::clear);
        Ok(())
    }
}

/// Encodes columns.
struct Columns {
    /// Of the columns of texts, for one row group.
    dictionaries: Vec<Option<Dictionary>>,
    numbers: Vec<i64>,
    small: Vec<u32>,
}

impl Columns {
    /// Appends what a page of a column holds.
    fn append(&mut self, index: usize, values: &Values<'_>, rows: usize, body: &mut Vec<u8>) {
        let Self { dictionaries, numbers, small } = self;
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
                fill(small, values.iter().copied().map(u32::from));
                hybrid::append_bits(small, 1, body);
                body.truncate(rows.div_ceil(8));
            }
            Values::Text(ids, names) => {
                let Some(Some(dictionary)) = dictionaries.get_mut(index) else { return };
                dictionary.add_names(ids, names, small);
                if small.len() == rows {
                    append_levels(body, |out| hybrid::append_run(1, rows, 1, out));
                } else {
                    let there: Vec<u32> =
                        ids.iter().map(|id| u32::from((*id as usize) < names.len())).collect();
                    append_levels(body, |out| hybrid::append(&there, 1, out));
                }
                append_indices(small, dictionary, body);
            }
            Values::Flow(flows) => {
                let Some(Some(dictionary)) = dictionaries.get_mut(index) else { return };
                dictionary.add_flows(flows, small);
                append_indices(small, dictionary, body);
            }
        }
    }
}

fn append_indices(indices: &[u32], dictionary: &Dictionary, body: &mut Vec<u8>) {
    let width = hybrid::index_width(dictionary.entries);
    body.push(width as u8);
    hybrid::append(indices, width, body);
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

fn encoding(values: &Values<'_>) -> Encoding {
    match values {
        Values::Text(..) | Values::Flow(_) => Encoding::RLE_DICTIONARY,
        Values::Bool(_) => Encoding::PLAIN,
        _ => Encoding::DELTA_BINARY_PACKED,
    }
}

fn dictionary(values: &Values<'_>) -> Option<Dictionary> {
    matches!(values, Values::Text(..) | Values::Flow(_)).then(Dictionary::default)
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
        let last = if self.pages.rows() > 0 { self.end_group() } else { Ok(()) };
        last.and_then(|()| self.pages.finish()).map_err(|error| error.to_string())
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Parquet, one row group a batch.

use std::fs::File;
use std::sync::Arc;

use hashbrown::HashMap;
use parquet::basic::{Compression, ConvertedType, Encoding, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{ColumnPath, Type};

use super::{BATCH, Batch, NO_TEXT, Sink, Values};
use crate::outer::Conversation;

/// Flows whose texts are kept; a text takes some 100 bytes.
const FLOW_TEXTS: usize = 1 << 17;

pub struct ParquetFile {
    writer: SerializedFileWriter<File>,
    /// Texts of flows that were met lately.
    flows: HashMap<Conversation, ByteArray>,
    numbers: Vec<i64>,
    texts: Vec<ByteArray>,
    levels: Vec<i16>,
}

impl ParquetFile {
    pub fn new<B: Batch>(out: File, blank: &B, metadata: &[(String, String)]) -> Result<Self, ParquetError> {
        let columns = blank.columns();
        let fields = columns.iter().map(|(name, values)| field(name, values).map(Arc::new));
        let schema =
            Type::group_type_builder("schema").with_fields(fields.collect::<Result<_, _>>()?).build()?;
        let metadata =
            metadata.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone())).collect();
        // Numbers differ from row to row: a dictionary of them costs more time than it saves space.
        let mut properties = WriterProperties::builder()
            .set_created_by(concat!("wirewised ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_key_value_metadata(Some(metadata))
            .set_compression(Compression::SNAPPY)
            .set_statistics_enabled(EnabledStatistics::None)
            .set_dictionary_enabled(false)
            .set_write_batch_size(1 << 13)
            .set_max_row_group_row_count(Some(BATCH));
        for (name, values) in &columns {
            let path = ColumnPath::from(*name);
            properties = match values {
                Values::Text(..) | Values::Flow(_) => properties.set_column_dictionary_enabled(path, true),
                Values::Bool(_) => properties,
                _ => properties.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED),
            };
        }
        let writer = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties.build()))?;
        Ok(Self { writer, flows: HashMap::new(), numbers: Vec::new(), texts: Vec::new(), levels: Vec::new() })
    }

    fn write_batch<B: Batch>(&mut self, batch: &B) -> Result<(), ParquetError> {
        let Self { writer, flows, numbers, texts, levels } = self;
        let mut group = writer.next_row_group()?;
        for (_, values) in batch.columns() {
            let Some(mut column) = group.next_column()? else { break };
            match values {
                Values::Int64(values) => write_numbers(&mut column, values, None)?,
                Values::Optional { values, present } => {
                    if present.iter().all(|present| *present != 0) {
                        write_numbers(&mut column, values, Some(present))?;
                    } else {
                        numbers.clear();
                        let rows = values.iter().zip(present).filter(|(_, present)| **present != 0);
                        numbers.extend(rows.map(|(value, _)| value));
                        write_numbers(&mut column, numbers, Some(present))?;
                    }
                }
                Values::Missing => {
                    levels.clear();
                    levels.resize(batch.len(), 0);
                    write_numbers(&mut column, &[], Some(levels))?;
                }
                Values::Int32(values) => {
                    column.typed::<Int32Type>().write_batch(values, None, None)?;
                }
                Values::Bool(values) => {
                    column.typed::<BoolType>().write_batch(values, None, None)?;
                }
                Values::Text(ids, names) => {
                    let names: Vec<ByteArray> = names.iter().map(|name| name.as_str().into()).collect();
                    levels.clear();
                    levels.extend(ids.iter().map(|id| i16::from(*id != NO_TEXT)));
                    texts.clear();
                    texts.extend(ids.iter().filter_map(|id| names.get(*id as usize).cloned()));
                    column.typed::<ByteArrayType>().write_batch(texts, Some(levels), None)?;
                }
                Values::Flow(keys) => {
                    if flows.len() > FLOW_TEXTS {
                        flows.clear();
                    }
                    texts.clear();
                    texts.extend(keys.iter().map(|key| match key {
                        None => ByteArray::from(""),
                        Some(key) => {
                            flows.entry(*key).or_insert_with(|| key.to_string().into_bytes().into()).clone()
                        }
                    }));
                    column.typed::<ByteArrayType>().write_batch(texts, None, None)?;
                    texts.clear();
                }
            }
            column.close()?;
        }
        group.close().map(|_| ())
    }
}

fn write_numbers(
    column: &mut SerializedColumnWriter<'_>,
    values: &[i64],
    present: Option<&[i16]>,
) -> Result<(), ParquetError> {
    column.typed::<Int64Type>().write_batch(values, present, None).map(|_| ())
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
        self.writer.finish().map(|_| ()).map_err(|error| error.to_string())
    }
}

// SPDX-License-Identifier: Apache-2.0
//! What is written here is what the library's reader reads.

use std::fs::File;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use proptest::collection::vec;
use proptest::prelude::*;

use super::ParquetFile;
use crate::packets::outer::Conversation;
use crate::rows::{Batch, NO_TEXT, Sink, Values};

/// A row of every kind of column.
type Row = (i64, i32, bool, u32, Option<Conversation>, (i64, bool));

struct Rows {
    names: Vec<String>,
    int64: Vec<i64>,
    int32: Vec<i32>,
    bools: Vec<bool>,
    texts: Vec<u32>,
    flows: Vec<Option<Conversation>>,
    optional: Vec<i64>,
    present: Vec<bool>,
}

impl Rows {
    fn new(rows: &[Row]) -> Self {
        Self {
            names: ["", "first", "second", "never"].map(str::to_owned).to_vec(),
            int64: rows.iter().map(|row| row.0).collect(),
            int32: rows.iter().map(|row| row.1).collect(),
            bools: rows.iter().map(|row| row.2).collect(),
            texts: rows.iter().map(|row| row.3).collect(),
            flows: rows.iter().map(|row| row.4).collect(),
            optional: rows.iter().map(|row| row.5.0).collect(),
            present: rows.iter().map(|row| row.5.1).collect(),
        }
    }
}

impl Batch for Rows {
    fn len(&self) -> usize {
        self.int64.len()
    }

    fn columns(&self) -> Vec<(&str, Values<'_>)> {
        vec![
            ("int64", Values::Int64(&self.int64)),
            ("int32", Values::Int32(&self.int32)),
            ("bool", Values::Bool(&self.bools)),
            ("text", Values::Text(&self.texts, &self.names)),
            ("flow", Values::Flow(&self.flows)),
            ("optional", Values::Optional { values: &self.optional, present: &self.present }),
            ("missing", Values::Missing),
        ]
    }

    fn clear(&mut self) {}
}

fn fields(row: &Row) -> Vec<Field> {
    let names = ["", "first", "second"];
    let text = |id: u32| names.get(id as usize).map_or(Field::Null, |name| Field::Str((*name).to_owned()));
    vec![
        Field::Long(row.0),
        Field::Int(row.1),
        Field::Bool(row.2),
        text(row.3),
        Field::Str(row.4.map(|flow| flow.to_string()).unwrap_or_default()),
        if row.5.1 { Field::Long(row.5.0) } else { Field::Null },
        Field::Null,
    ]
}

/// Reads all back; gives the row groups' rows. A row group is full at 65536 rows.
fn assert_read_back(batches: &[Vec<Row>]) -> Vec<i64> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let metadata = [("key".to_owned(), "value".to_owned())];
    let out = File::create(file.path()).unwrap();
    let mut writer = ParquetFile::new(out, &Rows::new(&[]), &metadata).unwrap();
    for batch in batches {
        writer.write(&Rows::new(batch)).unwrap();
    }
    Sink::<Rows>::finish(&mut writer).unwrap();
    let reader = SerializedFileReader::new(File::open(file.path()).unwrap()).unwrap();
    let footer = reader.metadata();
    let rows = batches.iter().map(Vec::len).sum::<usize>() as i64;
    assert_eq!(footer.file_metadata().num_rows(), rows);
    assert_eq!(footer.row_groups().iter().map(|group| group.num_rows()).sum::<i64>(), rows);
    assert_eq!(footer.file_metadata().key_value_metadata().unwrap()[0].value.as_deref(), Some("value"));
    let mut read = reader.get_row_iter(None).unwrap();
    for row in batches.iter().flatten() {
        let columns = read.next().unwrap().unwrap().into_columns();
        assert_eq!(columns.into_iter().map(|(_, field)| field).collect::<Vec<_>>(), fields(row));
    }
    assert!(read.next().is_none());
    footer.row_groups().iter().map(|group| group.num_rows()).collect()
}

fn conversation(number: u32) -> Conversation {
    let version = if number.is_multiple_of(3) { 6 } else { 4 };
    Conversation {
        version,
        protocol: 17,
        addresses: [u128::from(number) << 96, u128::MAX],
        ports: [number as u16, 53],
    }
}

fn row() -> impl Strategy<Value = Row> {
    let flow = proptest::option::of((0u32..50).prop_map(conversation));
    let text = prop_oneof![0u32..3, Just(NO_TEXT)];
    (any::<i64>(), any::<i32>(), any::<bool>(), text, flow, (any::<i64>(), any::<bool>()))
}

/// Rows that differ, and rows that are repeated.
fn rows() -> impl Strategy<Value = Vec<Row>> {
    vec((row(), prop_oneof![Just(1usize), 1usize..100]), 1..40)
        .prop_map(|runs| runs.into_iter().flat_map(|(row, count)| std::iter::repeat_n(row, count)).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_rows_are_read_back(batches in vec(rows(), 1..4)) {
        assert_read_back(&batches);
    }
}

#[test]
fn no_rows_at_all() {
    assert_read_back(&[]);
}

#[test]
fn blocks_of_every_length_and_numbers_of_every_width() {
    for length in [1, 2, 31, 32, 33, 127, 128, 129, 130, 257, 1000] {
        let row = |index: usize| {
            let bits = index % 65;
            let value = if bits == 0 { 0 } else { (u64::MAX >> (64 - bits)) as i64 };
            let signed = if index.is_multiple_of(2) { value } else { value.wrapping_neg() };
            (signed, signed as i32, index.is_multiple_of(3), 1, None, (signed, true))
        };
        assert_read_back(&[(0..length).map(row).collect()]);
    }
}

#[test]
fn many_flows_in_several_row_groups() {
    let row = |number: u32| {
        let flow = (!number.is_multiple_of(7)).then(|| conversation(number % 20_011));
        (i64::from(number), 3, true, number / 30_000 % 2, flow, (i64::from(number % 5), number % 1000 < 900))
    };
    let batch = |start: u32| (start..start + 30_000).map(row).collect();
    let batches: Vec<_> = (0..10).map(|number| batch(number * 25_000)).collect();
    assert_eq!(assert_read_back(&batches), [270_000, 30_000]);
}

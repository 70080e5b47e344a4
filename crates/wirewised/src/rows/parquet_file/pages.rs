// SPDX-License-Identifier: Apache-2.0
//! Pages into a Parquet file, and its footer. What is in a page is encoded already. The pages of a row group wait in memory, for
//! those of one column stand together in the file.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, KeyValue, ParquetMetaData, ParquetMetaDataWriter, RowGroupMetaData,
};
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor, Type};

const MAGIC: &[u8; 4] = b"PAR1";

/// One column of the row group that is being written.
struct Column {
    pages: TrackedWrite<Vec<u8>>,
    encoding: Encoding,
    /// Bytes before and after compression, headers included.
    sizes: (i64, i64),
}

pub struct Pages {
    out: TrackedWrite<File>,
    schema: SchemaDescPtr,
    metadata: Vec<KeyValue>,
    groups: Vec<RowGroupMetaData>,
    columns: Vec<Column>,
    /// In the row group so far.
    rows: usize,
    compressor: snap::raw::Encoder,
    compressed: Vec<u8>,
}

impl Pages {
    /// encodings : of the columns. Those of a dictionary are compressed.
    pub fn new(
        out: File,
        schema: Type,
        encodings: impl IntoIterator<Item = Encoding>,
        metadata: Vec<KeyValue>,
    ) -> Result<Self> {
        let mut out = TrackedWrite::new(out);
        out.write_all(MAGIC)?;
        let column = |encoding| Column { pages: TrackedWrite::new(Vec::new()), encoding, sizes: (0, 0) };
        Ok(Self {
            out,
            schema: Arc::new(SchemaDescriptor::new(Arc::new(schema))),
            metadata,
            groups: Vec::new(),
            columns: encodings.into_iter().map(column).collect(),
            rows: 0,
            compressor: snap::raw::Encoder::new(),
            compressed: Vec::new(),
        })
    }

    /// The next page of a column: definition levels, if the column has nulls, and values. The body comes back empty.
    pub fn add(&mut self, column: usize, body: &mut Vec<u8>, rows: usize) -> Result<()> {
        let Self { columns, compressor, compressed, .. } = self;
        let Some(Column { pages, encoding, sizes }) = columns.get_mut(column) else { return Ok(()) };
        let page = |buf| Page::DataPage {
            buf,
            num_values: rows as u32,
            encoding: *encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        let whole = body.len();
        if is_compressed(*encoding) {
            compress(compressor, body, compressed)?;
            std::mem::swap(body, compressed);
        }
        write_page(pages, body, whole, page, sizes)
    }

    /// Every column has its page of that many rows.
    pub fn added(&mut self, rows: usize) {
        self.rows += rows;
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Writes the row group. dictionaries : texts and their number, of the columns that have a dictionary.
    pub fn end_group<'a>(&mut self, dictionaries: impl Fn(usize) -> Option<(&'a [u8], u32)>) -> Result<()> {
        let Self { out, columns, compressor, compressed, .. } = self;
        let (start, rows) = (out.bytes_written() as i64, std::mem::take(&mut self.rows) as i64);
        let mut chunks = Vec::with_capacity(columns.len());
        for (index, Column { pages, encoding, sizes }) in columns.iter_mut().enumerate() {
            let offset = out.bytes_written() as i64;
            if let Some((texts, entries)) = dictionaries(index) {
                let page = |buf| Page::DictionaryPage {
                    buf,
                    num_values: entries,
                    encoding: Encoding::PLAIN,
                    is_sorted: false,
                };
                compress(compressor, texts, compressed)?;
                write_page(out, compressed, texts.len(), page, sizes)?;
            }
            let data_offset = out.bytes_written() as i64;
            pages.flush()?;
            out.write_all(pages.inner())?;
            pages.inner_mut().clear();
            let (whole, written) = std::mem::take(sizes);
            let (encodings, codec) = if is_compressed(*encoding) {
                (vec![Encoding::PLAIN, Encoding::RLE, *encoding], Compression::SNAPPY)
            } else {
                (vec![Encoding::RLE, *encoding], Compression::UNCOMPRESSED)
            };
            let chunk = ColumnChunkMetaData::builder(self.schema.column(index))
                .set_encodings(encodings)
                .set_compression(codec)
                .set_num_values(rows)
                .set_total_uncompressed_size(whole)
                .set_total_compressed_size(written)
                .set_data_page_offset(data_offset)
                .set_dictionary_page_offset((data_offset != offset).then_some(offset));
            chunks.push(chunk.build()?);
        }
        let group = RowGroupMetaData::builder(Arc::clone(&self.schema))
            .set_total_byte_size(chunks.iter().map(ColumnChunkMetaData::uncompressed_size).sum())
            .set_num_rows(rows)
            .set_ordinal(i32::try_from(self.groups.len())?)
            .set_file_offset(start)
            .set_column_metadata(chunks);
        self.groups.push(group.build()?);
        Ok(())
    }

    /// Writes the footer.
    pub fn finish(&mut self) -> Result<()> {
        let groups = std::mem::take(&mut self.groups);
        let rows = groups.iter().map(RowGroupMetaData::num_rows).sum();
        let name = concat!("wirewised ", env!("CARGO_PKG_VERSION")).to_owned();
        let metadata = Some(std::mem::take(&mut self.metadata));
        let file = FileMetaData::new(1, rows, Some(name), metadata, Arc::clone(&self.schema), None);
        ParquetMetaDataWriter::new(&mut self.out, &ParquetMetaData::new(file, groups)).finish()?;
        Ok(self.out.flush()?)
    }
}

/// Texts gain by it; packed numbers do not.
fn is_compressed(encoding: Encoding) -> bool {
    encoding == Encoding::RLE_DICTIONARY
}

fn compress(encoder: &mut snap::raw::Encoder, body: &[u8], compressed: &mut Vec<u8>) -> Result<()> {
    compressed.resize(snap::raw::max_compress_len(body.len()), 0);
    let length = encoder.compress(body, compressed);
    compressed.truncate(length.map_err(|error| ParquetError::External(Box::new(error)))?);
    Ok(())
}

/// whole : bytes before compression. The body's memory comes back empty, to be used again.
fn write_page<W: Write + Send>(
    out: &mut TrackedWrite<W>,
    body: &mut Vec<u8>,
    whole: usize,
    page: impl FnOnce(Bytes) -> Page,
    sizes: &mut (i64, i64),
) -> Result<()> {
    let lent = Bytes::from(std::mem::take(body));
    let page = CompressedPage::new(page(lent.clone()), whole);
    let written = SerializedPageWriter::new(out).write_page(page)?;
    sizes.0 += written.uncompressed_size as i64;
    sizes.1 += written.compressed_size as i64;
    *body = lent.into();
    body.clear();
    Ok(())
}

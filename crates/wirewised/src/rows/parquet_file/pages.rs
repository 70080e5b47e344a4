// SPDX-License-Identifier: Apache-2.0
//! Pages into a Parquet file, and its footer: one data page a column and row group, what is in it encoded already.

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

/// A column's values in a row group.
pub struct Chunk<'a> {
    /// Definition levels, if the column has nulls, and values. It comes back empty.
    pub body: &'a mut Vec<u8>,
    pub encoding: Encoding,
    /// Of texts: the distinct ones and how many they are. Then the chunk is compressed.
    pub dictionary: Option<(&'a [u8], usize)>,
}

pub struct Pages {
    out: TrackedWrite<File>,
    schema: SchemaDescPtr,
    metadata: Vec<KeyValue>,
    groups: Vec<RowGroupMetaData>,
    /// Of the row group that is being written.
    start: usize,
    columns: Vec<ColumnChunkMetaData>,
    compressor: snap::raw::Encoder,
    compressed: Vec<u8>,
}

impl Pages {
    pub fn new(out: File, schema: Type, metadata: Vec<KeyValue>) -> Result<Self> {
        let mut out = TrackedWrite::new(out);
        out.write_all(MAGIC)?;
        Ok(Self {
            start: MAGIC.len(),
            out,
            schema: Arc::new(SchemaDescriptor::new(Arc::new(schema))),
            metadata,
            groups: Vec::new(),
            columns: Vec::new(),
            compressor: snap::raw::Encoder::new(),
            compressed: Vec::new(),
        })
    }

    /// The next column of a row group.
    pub fn write(&mut self, chunk: Chunk<'_>, rows: usize) -> Result<()> {
        let offset = self.out.bytes_written() as i64;
        let mut sizes = (0, 0);
        let (encodings, codec) = match chunk.dictionary {
            None => (vec![Encoding::RLE, chunk.encoding], Compression::UNCOMPRESSED),
            Some(_) => (vec![Encoding::PLAIN, Encoding::RLE, chunk.encoding], Compression::SNAPPY),
        };
        let data_offset = match chunk.dictionary {
            None => offset,
            Some((texts, entries)) => {
                let page = |buf| Page::DictionaryPage {
                    buf,
                    num_values: entries as u32,
                    encoding: Encoding::PLAIN,
                    is_sorted: false,
                };
                self.write_compressed(texts, page, &mut sizes)?;
                self.out.bytes_written() as i64
            }
        };
        let page = |buf| Page::DataPage {
            buf,
            num_values: rows as u32,
            encoding: chunk.encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        if chunk.dictionary.is_some() {
            self.write_compressed(chunk.body, page, &mut sizes)?;
            chunk.body.clear();
        } else {
            let whole = chunk.body.len();
            self.write_page(chunk.body, whole, page, &mut sizes)?;
        }
        let column = self.schema.column(self.columns.len());
        let chunk = ColumnChunkMetaData::builder(column)
            .set_encodings(encodings)
            .set_compression(codec)
            .set_num_values(rows as i64)
            .set_total_uncompressed_size(sizes.0)
            .set_total_compressed_size(sizes.1)
            .set_data_page_offset(data_offset)
            .set_dictionary_page_offset((data_offset != offset).then_some(offset));
        self.columns.push(chunk.build()?);
        Ok(())
    }

    fn write_compressed(
        &mut self,
        body: &[u8],
        page: impl FnOnce(Bytes) -> Page,
        sizes: &mut (i64, i64),
    ) -> Result<()> {
        let mut compressed = std::mem::take(&mut self.compressed);
        compressed.resize(snap::raw::max_compress_len(body.len()), 0);
        let length = self.compressor.compress(body, &mut compressed);
        compressed.truncate(length.map_err(|error| ParquetError::External(Box::new(error)))?);
        self.write_page(&mut compressed, body.len(), page, sizes)?;
        self.compressed = compressed;
        Ok(())
    }

    /// whole : bytes before compression. The body's memory comes back empty, to be used again.
    fn write_page(
        &mut self,
        body: &mut Vec<u8>,
        whole: usize,
        page: impl FnOnce(Bytes) -> Page,
        sizes: &mut (i64, i64),
    ) -> Result<()> {
        let lent = Bytes::from(std::mem::take(body));
        let page = CompressedPage::new(page(lent.clone()), whole);
        let written = SerializedPageWriter::new(&mut self.out).write_page(page)?;
        sizes.0 += written.uncompressed_size as i64;
        sizes.1 += written.compressed_size as i64;
        *body = lent.into();
        body.clear();
        Ok(())
    }

    /// The row group is complete.
    pub fn end_group(&mut self, rows: usize) -> Result<()> {
        let columns = std::mem::take(&mut self.columns);
        let group = RowGroupMetaData::builder(Arc::clone(&self.schema))
            .set_total_byte_size(columns.iter().map(ColumnChunkMetaData::uncompressed_size).sum())
            .set_num_rows(rows as i64)
            .set_ordinal(i32::try_from(self.groups.len())?)
            .set_file_offset(self.start as i64)
            .set_column_metadata(columns)
            .build()?;
        self.groups.push(group);
        self.start = self.out.bytes_written();
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

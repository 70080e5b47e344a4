// SPDX-License-Identifier: Apache-2.0
//! Dictionaries of texts for one row group: those that occur, in the order in which they first do.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::packets::outer::Conversation;
use crate::rows::NO_TEXT;

#[derive(Default)]
pub struct Dictionary {
    /// As a dictionary page has them: each behind its length.
    pub bytes: Vec<u8>,
    pub entries: u32,
    /// Of texts that have ids: their entries.
    of_id: Vec<u32>,
    of_flow: HashMap<Option<Conversation>, u32>,
}

impl Dictionary {
    /// ids : of the names; `NO_TEXT` and ids of no name are null. indices : becomes the entries of the others.
    pub fn add_names(&mut self, ids: &[u32], names: &[String], indices: &mut Vec<u32>) {
        self.of_id.resize(names.len(), NO_TEXT);
        let Self { bytes, entries, of_id, .. } = self;
        indices.clear();
        indices.extend(ids.iter().filter_map(|id| {
            let (entry, name) = of_id.get_mut(*id as usize).zip(names.get(*id as usize))?;
            if *entry == NO_TEXT {
                *entry = append(bytes, entries, |out| out.extend_from_slice(name.as_bytes()));
            }
            Some(*entry)
        }));
    }

    /// `None` is "". indices : becomes one entry a flow.
    pub fn add_flows(&mut self, flows: &[Option<Conversation>], indices: &mut Vec<u32>) {
        let Self { bytes, entries, of_flow, .. } = self;
        indices.clear();
        indices.extend(flows.iter().map(|flow| match of_flow.entry(*flow) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                let write = |out: &mut Vec<u8>| flow.iter().for_each(|flow| flow.append_text(out));
                *entry.insert(append(bytes, entries, write))
            }
        }));
    }

    /// For the next row group.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries = 0;
        self.of_id.clear();
        self.of_flow.clear();
    }
}

fn append(bytes: &mut Vec<u8>, entries: &mut u32, write: impl FnOnce(&mut Vec<u8>)) -> u32 {
    let start = bytes.len();
    bytes.extend_from_slice(&[0; 4]);
    write(bytes);
    let length = (bytes.len() - start - 4) as u32;
    bytes[start..start + 4].copy_from_slice(&length.to_le_bytes());
    *entries += 1;
    *entries - 1
}

// SPDX-License-Identifier: Apache-2.0
//! How captures begin: each format has to know the other's beginning, because files are joined by `cat`.

/// The first block of a pcapng, a section's.
pub(crate) const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// In a section, in its byte order.
pub(crate) const PCAPNG_BYTE_ORDER: u32 = 0x1a2b_3c4d;

/// Whether a pcap that begins with these bytes is big-endian; `None` if they are not those of a pcap.
pub(crate) fn pcap_byte_order(bytes: [u8; 4]) -> Option<bool> {
    let known = |number: u32| matches!(number, 0xa1b2_c3d4 | 0xa1b2_3c4d | 0xa1b2_cd34);
    match (known(u32::from_le_bytes(bytes)), known(u32::from_be_bytes(bytes))) {
        (true, _) => Some(false),
        (_, true) => Some(true),
        _ => None,
    }
}

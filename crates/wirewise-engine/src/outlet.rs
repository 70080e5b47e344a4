// SPDX-License-Identifier: Apache-2.0
//! What programs send elsewhere: the interfaces they may send to, and what they wrote into arrays of perf events.

use std::fmt;
use std::ops::Range;

/// Bytes of outputs that are held at most: more than a batch of the longest packets.
const HELD_BYTES: usize = 8 << 20;

/// What a program did with a packet beside writing on it: [`Engine::steered`](crate::Engine::steered).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steered {
    /// Its number in the batch.
    pub packet: usize,
    /// Where the frame begins and ends now, in the buffer.
    pub start: usize,
    /// Bytes of the frame.
    pub length: usize,
    /// The interface that `bpf_redirect` named last; 0: none.
    pub interface: u32,
}

/// What a program wrote by `bpf_perf_event_output`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Output<'a> {
    /// The program's own data.
    pub data: &'a [u8],
    /// The beginning of the packet as it was then, as long as was asked for.
    pub packet: &'a [u8],
}

/// Tells the MTU of an interface, by its index.
pub(crate) type Interfaces = Box<dyn FnMut(u32) -> Option<u32> + Send>;

#[derive(Default)]
pub(crate) struct Outlet {
    pub(crate) interfaces: Option<Interfaces>,
    bytes: Vec<u8>,
    /// Of each output, where its parts end.
    ends: Vec<[usize; 2]>,
}

impl Outlet {
    pub(crate) fn mtu(&mut self, interface: u32) -> Option<u32> {
        self.interfaces.as_mut()?(interface)
    }

    /// False: there is no room.
    pub(crate) fn put(&mut self, data: &[u8], packet: &[u8]) -> bool {
        if data.len() + packet.len() > HELD_BYTES - self.bytes.len() {
            return false;
        }
        self.bytes.extend_from_slice(data);
        let end = self.bytes.len();
        self.bytes.extend_from_slice(packet);
        self.ends.push([end, self.bytes.len()]);
        true
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    pub(crate) fn outputs(&self) -> impl Iterator<Item = Output<'_>> {
        let mut start = 0;
        let part = |range: Range<usize>| &self.bytes[range];
        self.ends.iter().map(move |[middle, end]| {
            let output = Output { data: part(start..*middle), packet: part(*middle..*end) };
            start = *end;
            output
        })
    }
}

impl fmt::Debug for Outlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outlet").field("outputs", &self.ends.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_come_out_in_order_and_are_bounded() {
        let mut outlet = Outlet::default();
        assert!(outlet.put(b"ab", b"packet") && outlet.put(b"", b"") && outlet.put(b"c", b""));
        let all: Vec<_> = outlet.outputs().map(|it| (it.data.to_vec(), it.packet.to_vec())).collect();
        assert_eq!(all, [(b"ab".to_vec(), b"packet".to_vec()), (vec![], vec![]), (b"c".to_vec(), vec![])]);
        outlet.clear();
        assert_eq!(outlet.outputs().count(), 0);
        let packet = vec![7; HELD_BYTES / 2];
        assert!(outlet.put(b"", &packet) && outlet.put(b"", &packet) && !outlet.put(b"x", b""));
    }
}

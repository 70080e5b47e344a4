// SPDX-License-Identifier: Apache-2.0
//! Packets in a buffer, and whether it pays to look ahead of them.

/// A packet in a buffer, for [`Engine::run_xdp_batch`](crate::Engine::run_xdp_batch).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketSpan {
    /// Where it begins in the buffer, metadata included.
    pub start: usize,
    /// Bytes of metadata in front of the frame.
    pub metadata: usize,
    /// Bytes in all, metadata included.
    pub length: usize,
    /// Its time, for [`ClockSource::Manual`](crate::ClockSource::Manual).
    pub time_ns: u64,
    /// Bytes of the buffer in front of it that are nobody's: a verified program may begin the packet there (`bpf_xdp_adjust_head`).
    pub headroom: usize,
}

const LINE_BYTES: usize = 64;
/// Lines that are remembered: no more than certainly are in the nearest cache.
const LINES: usize = 256;
/// Packets after which is decided whether scouts go on, and packets without if they do not.
const WINDOW: u32 = 512;
const REST: usize = 16_384;
/// One in so many scouts must bring something new: a scout takes 4 ns, and memory 100.
const WORTHWHILE: u32 = 16;

/// Whether scouts bring anything: they do not while a few flows have all the packets.
#[derive(Debug)]
pub(crate) struct Lookout {
    /// Lines that scouts found not long ago, each in the place that its number says.
    lines: Box<[usize; LINES]>,
    scouts: u32,
    /// Of these, how many found a line that is not remembered.
    fresh: u32,
    /// Packets left until the next scout.
    rest: usize,
}

impl Default for Lookout {
    fn default() -> Self {
        Self { lines: Box::new([0; LINES]), scouts: 0, fresh: 0, rest: 0 }
    }
}

impl Lookout {
    /// Whether to send scouts ahead of so many packets.
    pub(crate) fn pays(&mut self, packets: usize) -> bool {
        let pays = self.rest == 0;
        self.rest = self.rest.saturating_sub(packets);
        pays
    }

    /// address : that a scout found, or 0.
    #[inline(always)]
    pub(crate) fn note(&mut self, address: usize) {
        let line = address / LINE_BYTES;
        let known = &mut self.lines[line % LINES];
        self.fresh += u32::from(*known != line);
        *known = line;
        self.scouts += 1;
        if self.scouts == WINDOW {
            if self.fresh < WINDOW / WORTHWHILE {
                self.rest = REST;
            }
            (self.scouts, self.fresh) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets of 100,000 that have a scout, if these flows take turns.
    fn scouted(flows: usize) -> usize {
        let mut lookout = Lookout::default();
        let mut scouted = 0;
        for batch in 0..100_000 / 50 {
            if lookout.pays(50) {
                scouted += 50;
                (0..50).for_each(|packet| lookout.note((batch * 50 + packet) % flows * 4096 + 64 * 7));
            }
        }
        scouted
    }

    #[test]
    fn scouts_rest_where_they_bring_nothing_new() {
        assert!(scouted(1) < 5_000, "{}", scouted(1));
        assert_eq!(scouted(10_000), 100_000);
    }
}

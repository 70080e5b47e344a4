// SPDX-License-Identifier: Apache-2.0
//! Many packets in one call: while one is judged, what later ones will need is already on its way from memory.

use std::ptr;

use crate::engine::{Engine, Entry};
use crate::error::Trap;
use crate::ids::ProgramId;
use crate::lookout::PacketSpan;
use crate::memory;
use crate::options::ClockSource;

/// By how many packets a scout is ahead, and the packets' own memory ahead of the scout. From 4 to 16 it makes little difference.
const AHEAD: usize = 8;

impl Engine {
    /// Whether batches of a program ask ahead for the memory that later packets need: verified programs that look something up in a
    /// large array, before they call a function.
    pub fn looks_ahead(&self, program: ProgramId) -> bool {
        self.code.scouts.get(program.0 as usize).is_some_and(Option::is_some)
    }

    /// Runs a program on many packets of one buffer and appends their XDP codes to `codes`. At a trap, the codes of the packets
    /// before are there.
    ///
    /// # Errors
    /// See [`Trap`]; a span outside the buffer is [`Trap::Packet`].
    pub fn run_xdp_batch(
        &mut self,
        program: ProgramId,
        buffer: &mut [u8],
        packets: &[PacketSpan],
        codes: &mut Vec<u32>,
    ) -> Result<(), Trap> {
        let entry = self.begin(program)?;
        self.read_clock();
        let scout = self.code.scouts.get(program.0 as usize).copied().flatten();
        // SAFETY: the back ends make scouts of this type.
        let scout = scout.map(|scout| unsafe { std::mem::transmute::<usize, Entry>(scout) });
        let scout = scout.filter(|_| self.lookout.pays(packets.len()));
        // What differs is decided once: a short program is not much longer than this loop.
        match (self.caged, self.clock == ClockSource::Manual) {
            (false, false) => self.run_batch::<false, false>((entry, scout), buffer, packets, codes),
            (false, true) => self.run_batch::<false, true>((entry, scout), buffer, packets, codes),
            (true, false) => self.run_batch::<true, false>((entry, scout), buffer, packets, codes),
            (true, true) => self.run_batch::<true, true>((entry, scout), buffer, packets, codes),
        }
    }

    #[inline(always)]
    fn run_batch<const CAGED: bool, const MANUAL: bool>(
        &mut self,
        (entry, scout): (Entry, Option<Entry>),
        buffer: &mut [u8],
        packets: &[PacketSpan],
        codes: &mut Vec<u32>,
    ) -> Result<(), Trap> {
        let before = codes.len();
        codes.resize(before + packets.len(), 0);
        if let Some(scout) = scout {
            packets.iter().take(AHEAD).for_each(|span| self.look_ahead(scout, buffer, span));
        }
        let mut done = 0;
        let trap = 'trapped: {
            for (span, place) in packets.iter().zip(&mut codes[before..]) {
                if let Some(scout) = scout {
                    if let Some(byte) = packets.get(done + 2 * AHEAD).and_then(|span| buffer.get(span.start))
                    {
                        memory::prefetch(ptr::from_ref(byte).addr());
                    }
                    if let Some(span) = packets.get(done + AHEAD) {
                        self.look_ahead(scout, buffer, span);
                    }
                }
                let packet = buffer.get_mut(span.start..).and_then(|rest| rest.get_mut(..span.length));
                let Some(packet) = packet else { break 'trapped Trap::Packet };
                if MANUAL {
                    self.set_time(span.time_ns);
                }
                self.vm().headroom = span.headroom.min(span.start) as u64;
                match self.run::<CAGED>(entry, packet, (done, span)) {
                    Ok(code) => *place = code,
                    Err(trap) => break 'trapped trap,
                }
                done += 1;
            }
            return Ok(());
        };
        codes.truncate(before + done);
        Err(trap)
    }

    /// Sends the scout through a packet, and asks for the memory that it finds. A span outside the buffer is none of its business.
    #[inline(always)]
    fn look_ahead(&mut self, scout: Entry, buffer: &mut [u8], span: &PacketSpan) {
        let packet = buffer.get_mut(span.start..).and_then(|rest| rest.get_mut(..span.length));
        let Some(packet) = packet.filter(|packet| span.metadata <= packet.len()) else { return };
        self.lend(packet, span.metadata);
        let found = self.call(scout) as usize;
        memory::prefetch(found);
        self.lookout.note(found);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! A lane: one queue pair of each port and a mempool of its own. The judge gets the mempool's memory as its
//! area, so no packet is copied for it. The area also holds the mbufs' headers: a judge must write inside its
//! spans only.

use super::Ports;
use super::eal::know_thread;
use std::ffi::{c_uint, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wirewise_lane::{BURST, Fate, Judge, Lane, LaneCounts, Span};

/// How often the interfaces behind the ports are looked at.
const WATCH: Duration = Duration::from_secs(1);
/// Empty polls before a lane starts to sleep between them, and how long.
const SPINS: u64 = 64;
const NAP: Duration = Duration::from_micros(20);

unsafe extern "C" {
    fn dpdk_receive(
        port: u16,
        queue: u16,
        area: *const u8,
        length: usize,
        mbufs: *mut *mut c_void,
        spans: *mut [usize; 3],
        room: u16,
        others: *mut u16,
    ) -> u16;
    fn dpdk_settle(
        from: u16,
        to: u16,
        queue: u16,
        forward: bool,
        area: *const u8,
        mbufs: *mut *mut c_void,
        spans: *const [usize; 3],
        fates: *const Fate,
        count: u16,
        sent: *mut [u16; 2],
    );
    fn rte_pktmbuf_free_bulk(mbufs: *mut *mut c_void, count: c_uint);
}

/// Packets carried from one of the ports to another.
#[derive(Clone, Copy)]
struct Way {
    from: usize,
    /// None: the lane only watches.
    to: Option<usize>,
    /// On, and back.
    sent: [u64; 2],
}

pub struct DpdkLane {
    ports: Arc<Ports>,
    queue: u16,
    ways: Vec<Way>,
    next: usize,
    mbufs: [*mut c_void; BURST],
    /// Starts, lengths and room in front.
    raw: [[usize; 3]; BURST],
    spans: Vec<Span>,
    fates: Vec<Fate>,
    counts: LaneCounts,
    /// Kernel drop count; accumulated here because reading it resets it.
    dropped: u64,
    watch_at: Option<Instant>,
    ended: Option<String>,
}

// SAFETY: the pointers are mbufs of this lane's own mempool; a queue and the mempool may be used by any one
// thread at a time, and a lane is used through an exclusive reference.
unsafe impl Send for DpdkLane {}

/// Gives mbufs back if the judge fails, by an error or a panic.
struct Held {
    mbufs: *mut *mut c_void,
    count: u16,
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: `count` mbufs that the lane received and has neither sent nor freed.
        unsafe { rte_pktmbuf_free_bulk(self.mbufs, c_uint::from(self.count)) };
    }
}

impl DpdkLane {
    pub(super) fn new(ports: Arc<Ports>, queue: u16) -> DpdkLane {
        let way = |from, to| Way { from, to, sent: [0; 2] };
        let ways = match ports.ports.len() {
            2 => vec![way(0, Some(1)), way(1, Some(0))],
            _ => vec![way(0, None)],
        };
        DpdkLane {
            ports,
            queue,
            ways,
            next: 0,
            mbufs: [std::ptr::null_mut(); BURST],
            raw: [[0; 3]; BURST],
            spans: Vec::with_capacity(BURST),
            fates: Vec::with_capacity(BURST),
            counts: LaneCounts::default(),
            dropped: 0,
            watch_at: None,
            ended: None,
        }
    }

    /// Looks at the interfaces when it is time to.
    fn watch(&mut self, now: Instant) -> Result<(), String> {
        if self.watch_at.is_some_and(|at| now < at) {
            return Ok(());
        }
        self.watch_at = now.checked_add(WATCH);
        let ports = &self.ports;
        ports.ports.iter().find_map(|port| port.gone(&ports.space)).map_or(Ok(()), Err)
    }

    /// Handles a burst of the next way that has one; the number of its packets, 0 if none has.
    fn poll(&mut self, judge: &mut dyn Judge) -> Result<usize, String> {
        for _ in 0..self.ways.len() {
            let at = self.next;
            self.next = (at + 1) % self.ways.len();
            let count = self.burst(judge, at)?;
            if count > 0 {
                return Ok(count);
            }
        }
        Ok(0)
    }

    fn burst(&mut self, judge: &mut dyn Judge, at: usize) -> Result<usize, String> {
        let Ports { ports, pools, .. } = &*self.ports;
        let Some(way) = self.ways.get_mut(at) else { return Ok(0) };
        let Some(pool) = pools.get(usize::from(self.queue)) else { return Ok(0) };
        let Some(from) = ports.get(way.from) else { return Ok(0) };
        let to = way.to.and_then(|to| ports.get(to));
        let mut others = 0;
        // SAFETY: the port is started and this lane alone uses its queue; there is room for BURST mbufs and
        // spans, and area and length are the pool's.
        let count = unsafe {
            dpdk_receive(
                from.id,
                self.queue,
                pool.area,
                pool.length,
                self.mbufs.as_mut_ptr(),
                self.raw.as_mut_ptr(),
                BURST as u16,
                &mut others,
            )
        };
        self.counts.lost += u64::from(others);
        if count == 0 {
            return Ok(0);
        }
        let held = Held { mbufs: self.mbufs.as_mut_ptr(), count };
        self.spans.clear();
        self.fates.clear();
        let raw = self.raw.iter().take(usize::from(count));
        self.spans.extend(raw.map(|&[start, length, headroom]| Span { start, length, headroom }));
        // SAFETY: the pool's memory, which lives as long as the ports. No other lane has this pool, and the
        // device writes only to mbufs that were not received yet, so nobody else uses the bytes of the spans
        // meanwhile.
        let area = unsafe { std::slice::from_raw_parts_mut(pool.area, pool.length) };
        judge.judge(area, from.interface().unwrap_or(0), &mut self.spans, &mut self.fates)?;
        if self.fates.len() != usize::from(count) {
            return Err(format!(
                "lane {}: the judge gave {} outcomes for {count} packets; it must give one for each",
                self.queue,
                self.fates.len()
            ));
        }
        for (raw, span) in self.raw.iter_mut().zip(&self.spans) {
            *raw = [span.start, span.length, span.headroom];
        }
        std::mem::forget(held);
        let mut sent = [0; 2];
        // SAFETY: `count` mbufs, as many places inside of them, which the judge may move within their room, and as many fates; the ports
        // are started and their queue is this lane's. All mbufs belong to DPDK after this.
        unsafe {
            dpdk_settle(
                from.id,
                to.map_or(0, |port| port.id),
                self.queue,
                to.is_some(),
                pool.area,
                self.mbufs.as_mut_ptr(),
                self.raw.as_ptr(),
                self.fates.as_ptr(),
                count,
                &mut sent,
            );
        }
        self.counts.received += u64::from(count);
        let wanted = |fate| self.fates.iter().filter(|&&it| it == fate).count() as u64;
        let wanted = [if to.is_some() { wanted(Fate::Passes) } else { 0 }, wanted(Fate::Bounces)];
        for (at, sent) in sent.into_iter().enumerate() {
            way.sent[at] += u64::from(sent);
            self.counts.unsent += wanted[at].saturating_sub(u64::from(sent));
        }
        Ok(usize::from(count))
    }

    fn work(&mut self, judge: &mut dyn Judge, patience: Duration) -> Result<usize, String> {
        let begun = Instant::now();
        let mut now = begun;
        for polls in 0_u64.. {
            self.watch(now)?;
            let count = self.poll(judge)?;
            if count > 0 {
                return Ok(count);
            }
            now = Instant::now();
            let left = patience.saturating_sub(now - begun);
            if left.is_zero() {
                break;
            }
            if polls < SPINS {
                std::hint::spin_loop();
            } else {
                std::thread::sleep(left.min(NAP));
            }
        }
        Ok(0)
    }
}

impl Lane for DpdkLane {
    fn turn(&mut self, judge: &mut dyn Judge, patience: Duration) -> Result<usize, String> {
        if let Some(why) = &self.ended {
            return Err(why.clone());
        }
        know_thread();
        let outcome = self.work(judge, patience);
        self.ended = outcome.as_ref().err().cloned();
        outcome
    }

    fn counts(&mut self) -> LaneCounts {
        let mut counts = self.counts;
        for way in &self.ways {
            let port = |at: usize| self.ports.ports.get(at);
            // Devices count what they lost for all their queues: the first lane tells it for all.
            if let Some(from) = port(way.from).filter(|_| self.queue == 0) {
                self.dropped += from.dropped();
                counts.lost += from.stats(0).0;
            }
        }
        // What each port was given to send, by all ways.
        for (at, to) in self.ports.ports.iter().enumerate() {
            let given = |way: &Way| {
                let on = if way.to == Some(at) { way.sent[0] } else { 0 };
                on + if way.from == at { way.sent[1] } else { 0 }
            };
            let given: u64 = self.ways.iter().map(given).sum();
            let sent = match to.driver() {
                // This driver takes packets first and finds out then that the kernel does not.
                "net_af_packet" => given.min(to.stats(self.queue).1),
                _ => given,
            };
            counts.sent += sent;
            counts.unsent += given - sent;
        }
        counts.lost += self.dropped;
        if let Some(pool) = self.ports.pools.get(usize::from(self.queue)) {
            let account = pool.account();
            counts.frames = account.available + account.in_use;
            counts.frames_busy = account.in_use;
        }
        counts
    }
}

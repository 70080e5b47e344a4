// SPDX-License-Identifier: Apache-2.0
//! What native code meets at run time: the state it shares with the engine, and the helpers.

use std::ptr;

use crate::error::{MapError, Trap};
use crate::helper::Helper;
use crate::maps::Store;
use crate::memory::{CAGE_BYTES, VM_BYTES, VM_SIZE};
use crate::outlet::Outlet;

/// Length of a tick of `bpf_jiffies64` in the engine: user space has no jiffies, so they are milliseconds of the coarse
/// clock.
pub const JIFFY_NS: u64 = 1_000_000;
/// Tail calls one packet may take (MAX_TAIL_CALL_CNT).
const MAX_TAIL_CALLS: u32 = 33;
/// Bytes that one unit of fuel pays for where a helper copies.
const BYTES_PER_FUEL: usize = 4096;
const ENOENT: i64 = -2;
const EAGAIN: i64 = -11;
const ENODEV: i64 = -19;
const EINVAL: i64 = -22;
const ENOSPC: i64 = -28;
/// What `bpf_redirect` answers, and the codes of the flags of `bpf_perf_event_output`.
const XDP_ABORTED: u64 = 0;
const XDP_REDIRECT: u64 = 4;
const OUTPUT_PACKET_SHIFT: u32 = 32;
const OUTPUT_PACKET_MASK: u64 = 0xf_ffff;
/// BPF_MTU_CHK_RET_FRAG_NEEDED.
const TOO_LONG: u64 = 1;
/// An Ethernet header, without which an interface's MTU counts.
const LINK_HEADER: i64 = 14;

/// In front of the memory's `base`, which native code gets: what it shares with the engine.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Vm {
    /// The packet, as native addresses; outside the cage.
    pub data: u64,
    pub data_end: u64,
    pub data_meta: u64,
    pub ingress_ifindex: u32,
    pub rx_queue_index: u32,
    /// Caged: what is left of the fuel.
    pub fuel: i64,
    /// Caged: offset of the next free stack frame.
    pub frame: u64,
    /// Caged: code of a `Trap`, or 0.
    pub trap: u32,
    /// A program changed a map that has something to do when its packet ends: not 0.
    pub unsettled: u32,
    /// Code to go on with: a tail call under way, or 0.
    pub pending: u64,
    /// Tail calls of this packet so far.
    pub tail_calls: u32,
    /// Interface that the packet is redirected to, or 0.
    pub redirect: u32,
    /// Free bytes in front of the packet.
    pub headroom: u64,
    /// The program's pointer to the context.
    pub context: u64,
    /// The time, where it is not read at each call.
    pub now: u64,
    host: *mut Host,
}

const _: () = assert!(size_of::<Vm>() == VM_SIZE);

/// Distance of a field of `Vm` from `base`.
macro_rules! vm_offset {
    ($field:ident) => {
        std::mem::offset_of!(crate::runtime::Vm, $field) as i32 - crate::memory::VM_BYTES as i32
    };
}
pub(crate) use vm_offset;

/// What helpers work on.
#[derive(Debug)]
pub(crate) struct Host {
    pub stores: Vec<Store>,
    /// Native code by program.
    pub entries: Vec<usize>,
    /// Bytes behind `base` that hold something.
    pub end: usize,
    pub caged: bool,
    pub random: u64,
    pub outlet: Outlet,
}

/// What a register holds that points at a map.
pub(crate) fn map_handle(map: u32) -> u64 {
    u64::from(map) + 1
}

impl Vm {
    /// The state in front of `base`.
    ///
    /// # Safety
    /// `base` is that of a `Memory`, and no other reference to its `Vm` is in use.
    pub(crate) unsafe fn of<'a>(base: *mut u8) -> &'a mut Vm {
        // SAFETY: VM_BYTES in front of `base` belong to the Vm, and zeros are a valid one.
        unsafe { &mut *base.sub(VM_BYTES).cast::<Vm>() }
    }

    /// Whether a program that returned left something to do: a trap, a tail call, a map.
    #[inline(always)]
    pub(crate) fn left_something(&self) -> bool {
        self.trap != 0 || self.unsettled != 0 || self.pending != 0
    }

    /// As the engine leaves it between the packets of a cage.
    #[cfg(feature = "fuzz")]
    pub(crate) fn is_at_rest(&self, host: *mut Host, context: u64) -> bool {
        let outside_cage = [self.data, self.data_end, self.data_meta];
        self.host == host && self.context == context && !self.left_something() && outside_cage == [0; 3]
    }

    pub(crate) fn set_host(&mut self, host: *mut Host) {
        self.host = host;
    }
}

/// A call of a helper: the engine's side of it.
struct Call {
    base: *mut u8,
}

impl Call {
    fn host(&mut self) -> &mut Host {
        // SAFETY: native code runs only inside `Engine::run`, which sets `host` and lends it for that long.
        unsafe { &mut *(*self.base.sub(VM_BYTES).cast::<Vm>()).host }
    }

    fn vm(&mut self) -> &mut Vm {
        // SAFETY: nothing else refers to the Vm during a helper.
        unsafe { Vm::of(self.base) }
    }

    fn trap(&mut self) -> u64 {
        self.vm().trap = Trap::BadArgument.code();
        0
    }

    /// Caged, long work costs fuel, as else one packet could go on without an end: false, with a trap, if there is none left.
    fn pay(&mut self, units: usize) -> bool {
        let vm = self.vm();
        vm.fuel = vm.fuel.saturating_sub(units as i64);
        let paid = vm.fuel >= 0 || !self.host().caged;
        if !paid {
            self.vm().trap = Trap::OutOfFuel.code();
        }
        paid
    }

    /// Native address of `length` bytes of the program's.
    fn pointer(&mut self, address: u64, length: usize) -> Option<*mut u8> {
        if !self.host().caged {
            return Some(ptr::with_exposed_provenance_mut(address as usize));
        }
        let offset = address as u32 as usize;
        // SAFETY: inside the cage (checked).
        (length <= CAGE_BYTES - offset).then(|| unsafe { self.base.add(offset) })
    }

    /// Native address of `length` bytes of the maps: none behind their end, whatever a map takes for its place.
    fn in_maps(&mut self, offset: usize, length: usize) -> Option<*mut u8> {
        let end = self.host().end;
        // SAFETY: inside the engine's memory (checked).
        (offset <= end && length <= end - offset).then(|| unsafe { self.base.add(offset) })
    }

    /// The program's address of an offset in the engine's memory.
    fn address(&mut self, offset: usize) -> u64 {
        if self.host().caged { offset as u64 } else { (self.base.expose_provenance() + offset) as u64 }
    }

    fn store(&mut self, handle: u64) -> Option<&mut Store> {
        let index = handle.checked_sub(1)?;
        self.host().stores.get_mut(usize::try_from(index).ok()?)
    }

    fn key<'a>(&mut self, handle: u64, address: u64) -> Option<&'a [u8]> {
        let length = self.store(handle)?.spec.key_size() as usize;
        let pointer = self.pointer(address, length)?;
        // SAFETY: verified: the verifier proved that the program may read a key there; caged: inside the cage. Nothing writes there
        // before the helper has used the key.
        Some(unsafe { std::slice::from_raw_parts(pointer, length) })
    }
}

fn result(result: Result<(), MapError>) -> u64 {
    result.map_or_else(|error| error.errno() as u64, |()| 0)
}

unsafe extern "C" fn map_lookup(base: *mut u8, map: u64, key: u64) -> u64 {
    let mut call = Call { base };
    let Some(key) = call.key(map, key) else { return call.trap() };
    let tries = call.store(map).map_or(0, |store| store.tries());
    if tries > 1 && !call.pay(tries) {
        return 0;
    }
    let found = call.store(map).and_then(|store| store.lookup(key));
    found.map_or(0, |offset| call.address(offset))
}

unsafe extern "C" fn map_update(base: *mut u8, map: u64, key: u64, value: u64, flags: u64) -> u64 {
    let mut call = Call { base };
    let Some(key) = call.key(map, key) else { return call.trap() };
    let Some(length) = call.store(map).map(|store| store.spec.value_size() as usize) else {
        return call.trap();
    };
    let Some(value) = call.pointer(value, length) else { return call.trap() };
    if !call.pay(length / BYTES_PER_FUEL) {
        return 0;
    }
    call.vm().unsettled = 1;
    let Some(store) = call.store(map) else { return call.trap() };
    match store.update(key, flags) {
        Ok(offset) => {
            let Some(place) = call.in_maps(offset, length) else { return call.trap() };
            // SAFETY: the map's place for the value; the value as proved by the verifier, or inside the cage. They may overlap.
            unsafe { ptr::copy(value, place, length) };
            0
        }
        Err(error) => error.errno() as u64,
    }
}

unsafe extern "C" fn map_delete(base: *mut u8, map: u64, key: u64) -> u64 {
    let mut call = Call { base };
    let Some(key) = call.key(map, key) else { return call.trap() };
    call.vm().unsettled = 1;
    let Some(store) = call.store(map) else { return call.trap() };
    result(store.delete(key))
}

fn clock(which: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec.
    unsafe { libc::clock_gettime(which, &mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// CLOCK_MONOTONIC in nanoseconds.
pub(crate) fn monotonic() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// The system's clock that a helper reads as it is.
pub(crate) fn system_clock(helper: Helper) -> Option<libc::clockid_t> {
    match helper {
        Helper::KtimeNs => Some(libc::CLOCK_MONOTONIC),
        Helper::KtimeBootNs => Some(libc::CLOCK_BOOTTIME),
        Helper::KtimeCoarseNs => Some(libc::CLOCK_MONOTONIC_COARSE),
        Helper::KtimeTaiNs => Some(libc::CLOCK_TAI),
        _ => None,
    }
}

unsafe extern "C" fn jiffies(_: *mut u8) -> u64 {
    clock(libc::CLOCK_MONOTONIC_COARSE) / JIFFY_NS
}

/// xorshift64* (Vigna 2016); the upper half, as the kernel's is 32 bits.
unsafe extern "C" fn random(base: *mut u8) -> u64 {
    let mut call = Call { base };
    let state = &mut call.host().random;
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32
}

/// 1: the call is pending; 0: no such program, or too many calls.
unsafe extern "C" fn tail_call(base: *mut u8, map: u64, index: u64) -> u64 {
    let mut call = Call { base };
    let Some(store) = call.store(map) else { return call.trap() };
    let program = store.program(index as u32);
    let code = program.and_then(|program| call.host().entries.get(program as usize).copied());
    // SAFETY: `base` is the engine's, and `host` is not borrowed any more.
    let vm = unsafe { Vm::of(base) };
    match code {
        Some(code) if vm.tail_calls < MAX_TAIL_CALLS => {
            vm.tail_calls += 1;
            vm.pending = code as u64;
            1
        }
        _ => 0,
    }
}

/// The ring of a map and where its memory begins.
fn ring(call: &mut Call, map: u64) -> Option<(&mut crate::maps::ring::Ring, usize)> {
    let store = call.store(map)?;
    let offset = store.place.offset;
    Some((store.ring()?, offset))
}

unsafe extern "C" fn ring_reserve(base: *mut u8, map: u64, length: u64, flags: u64) -> u64 {
    let mut call = Call { base };
    call.vm().unsettled = 1;
    let Some((ring, offset)) = ring(&mut call, map) else { return call.trap() };
    if flags != 0 {
        return 0;
    }
    let at = ring.reserve(length);
    at.map_or(0, |at| call.address(offset + at as usize))
}

fn ring_finish(base: *mut u8, record: u64, discard: bool) -> u64 {
    let mut call = Call { base };
    let start = call.address(0);
    let offset = record.wrapping_sub(start);
    let finished = call.host().stores.iter_mut().any(|store| {
        let (begin, bytes) = (store.place.offset as u64, store.place.bytes as u64);
        let inside = (begin..begin + bytes).contains(&offset);
        inside && store.ring().is_some_and(|ring| ring.finish(offset - begin, discard))
    });
    if finished { 0 } else { call.trap() }
}

unsafe extern "C" fn ring_submit(base: *mut u8, record: u64, _flags: u64) -> u64 {
    ring_finish(base, record, false)
}

unsafe extern "C" fn ring_discard(base: *mut u8, record: u64, _flags: u64) -> u64 {
    ring_finish(base, record, true)
}

unsafe extern "C" fn ring_output(base: *mut u8, map: u64, data: u64, length: u64, _flags: u64) -> u64 {
    let mut call = Call { base };
    if !call.pay(length as usize / BYTES_PER_FUEL) {
        return 0;
    }
    let Some((ring, offset)) = ring(&mut call, map) else { return call.trap() };
    let Some(at) = ring.reserve(length) else { return EAGAIN as u64 };
    ring.finish(at.into(), false);
    let length = length as usize;
    let Some(data) = call.pointer(data, length) else { return call.trap() };
    let Some(place) = call.in_maps(offset + at as usize, length) else { return call.trap() };
    // SAFETY: the record's place in the ring's memory; the data as proved by the verifier, or inside the cage.
    unsafe { ptr::copy(data, place, length) };
    0
}

unsafe extern "C" fn ring_query(base: *mut u8, map: u64, what: u64) -> u64 {
    let mut call = Call { base };
    ring(&mut call, map).map(|(ring, _)| ring.query(what)).unwrap_or_else(|| Call { base }.trap())
}

/// Notes where the packet goes if the program ends with that code.
unsafe extern "C" fn redirect(base: *mut u8, interface: u64, flags: u64) -> u64 {
    let mut call = Call { base };
    if call.host().caged || flags != 0 {
        return XDP_ABORTED;
    }
    let vm = call.vm();
    (vm.redirect, vm.unsettled) = (interface as u32, 1);
    XDP_REDIRECT
}

/// Moves where the packet begins, into the room in front of it. In the cage, and behind metadata, there is none.
unsafe extern "C" fn adjust_head(base: *mut u8, _context: u64, delta: u64) -> u64 {
    let mut call = Call { base };
    let delta = i64::from(delta as i32);
    let caged = call.host().caged;
    let vm = call.vm();
    let length = (vm.data_end - vm.data) as i64;
    let headroom = vm.headroom as i64 + delta;
    if caged || vm.data_meta != vm.data || headroom < 0 || length - delta < LINK_HEADER {
        return EINVAL as u64;
    }
    vm.data = vm.data.wrapping_add_signed(delta);
    vm.data_meta = vm.data;
    (vm.headroom, vm.unsettled) = (headroom as u64, 1);
    0
}

/// Whether the packet, so much longer, can leave by an interface; 0 is the one it came by.
unsafe extern "C" fn check_mtu(
    base: *mut u8,
    _context: u64,
    interface: u64,
    mtu: u64,
    more: u64,
    flags: u64,
) -> u64 {
    let mut call = Call { base };
    if flags != 0 {
        return EINVAL as u64;
    }
    let Some(mtu) = call.pointer(mtu, size_of::<u32>()) else { return call.trap() };
    let vm = call.vm();
    let frame = (vm.data_end - vm.data) as i64;
    let interface = if interface as u32 == 0 { vm.ingress_ifindex } else { interface as u32 };
    let Some(most) = call.host().outlet.mtu(interface) else { return ENODEV as u64 };
    // SAFETY: as proved by the verifier, or inside the cage: 4 bytes that the program may read and write.
    let asked = unsafe { mtu.cast::<u32>().read_unaligned() };
    let frame = if asked == 0 { frame } else { i64::from(asked) + LINK_HEADER };
    // SAFETY: as above.
    unsafe { mtu.cast::<u32>().write_unaligned(most) };
    if frame + i64::from(more as i32) > i64::from(most) + LINK_HEADER { TOO_LONG } else { 0 }
}

unsafe extern "C" fn perf_output(
    base: *mut u8,
    _context: u64,
    _map: u64,
    flags: u64,
    data: u64,
    length: u64,
) -> u64 {
    let mut call = Call { base };
    let length = length as usize;
    if call.host().caged {
        return ENOENT as u64;
    }
    let of_packet = flags >> OUTPUT_PACKET_SHIFT & OUTPUT_PACKET_MASK;
    let (packet, end) = (call.vm().data, call.vm().data_end);
    if of_packet > end - packet {
        return EINVAL as u64;
    }
    let [data, packet] = [data, packet].map(|at| ptr::with_exposed_provenance::<u8>(at as usize));
    // SAFETY: the verifier proved that the program may read so much there.
    let data = unsafe { std::slice::from_raw_parts(data, length) };
    // SAFETY: inside the packet that the caller lends (checked).
    let packet = unsafe { std::slice::from_raw_parts(packet, of_packet as usize) };
    if call.host().outlet.put(data, packet) { 0 } else { ENOSPC as u64 }
}

/// Address of the function behind a helper; it takes `base` and then the helper's arguments. Helpers that become code have
/// none.
pub(crate) fn address(helper: Helper) -> Option<usize> {
    Some(match helper {
        Helper::MapLookup => map_lookup as *const () as usize,
        Helper::MapUpdate => map_update as *const () as usize,
        Helper::MapDelete => map_delete as *const () as usize,
        Helper::Jiffies => jiffies as *const () as usize,
        Helper::Random => random as *const () as usize,
        Helper::RingReserve => ring_reserve as *const () as usize,
        Helper::RingSubmit => ring_submit as *const () as usize,
        Helper::RingDiscard => ring_discard as *const () as usize,
        Helper::RingOutput => ring_output as *const () as usize,
        Helper::RingQuery => ring_query as *const () as usize,
        Helper::Redirect => redirect as *const () as usize,
        Helper::PerfOutput => perf_output as *const () as usize,
        Helper::AdjustHead => adjust_head as *const () as usize,
        Helper::CheckMtu => check_mtu as *const () as usize,
        Helper::TailCall
        | Helper::Loop
        | Helper::Cpu
        | Helper::Numa
        | Helper::KtimeNs
        | Helper::KtimeBootNs
        | Helper::KtimeCoarseNs
        | Helper::KtimeTaiNs
        | Helper::SocketLookup
        | Helper::SocketRelease => return None,
    })
}

/// Address of what a tail call asks: takes `base`, the map and the index.
pub(crate) fn tail_call_address() -> usize {
    tail_call as *const () as usize
}

/// What r0 is after a tail call that did not happen.
pub(crate) const TAIL_CALL_FAILED: i64 = ENOENT;

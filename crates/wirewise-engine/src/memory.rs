// SPDX-License-Identifier: Apache-2.0
//! The engine's memory: one mapping that holds all that a program sees except, outside the cage, the packet and its stack.
//!
//! ```text
//!   start                    base                                 base + size    (cage: base + 4 GiB)
//!   | struct Vm | guard | reach | nothing | context | stack | packet | maps | scrap ... | reach | guard |
//! ```
//!
//! In the cage a program's pointers are offsets from `base`, cut to 32 bits at each access; an instruction adds an offset of 16 bits. So it
//! reaches no byte outside 4 GiB and the reach of such an offset on both sides. What holds nothing there is backed by a little scrap memory,
//! mapped again and again: a wild access neither faults nor makes the process grow. The guards are no memory at all: no program can name them,
//! and should the engine err about that, the process ends there instead of going on with what lies behind them.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use crate::error::Error;

/// From `struct Vm`, on a page of its own, to `base`.
pub(crate) const VM_BYTES: usize = 1 << 24;
/// What an instruction can add to an address, on both sides, and more than the widest access.
pub(crate) const REACH_BYTES: usize = 1 << 16;
pub(crate) const CAGE_BYTES: usize = 1 << 32;
/// In the cage: the context, eight stack frames, the packet; the maps follow. Nothing is at 0, the null pointer. All begin at different
/// places of a page, as a load waits for stores whose addresses have the same low 12 bits.
pub(crate) const CONTEXT_AT: usize = PAGE + 0x200;
pub(crate) const STACK_AT: usize = PAGE + 0x400;
pub(crate) const STACK_BYTES: usize = 8 * 512;
pub(crate) const PACKET_AT: usize = STACK_AT + STACK_BYTES + 0x700;
pub(crate) const PACKET_BYTES: usize = 1 << 20;
pub(crate) const CAGED_MAPS_AT: usize = PACKET_AT + PACKET_BYTES;
const GUARD_BYTES: usize = 1 << 24;
const SCRAP_BYTES: usize = 1 << 26;
const HUGE_PAGE: usize = 1 << 21;
pub(crate) const PAGE: usize = 4096;
/// Of `struct Vm`, which runtime.rs declares.
pub(crate) const VM_SIZE: usize = 104;
const _: () = assert!(VM_SIZE <= PAGE && PAGE + REACH_BYTES < VM_BYTES);

#[cfg(feature = "fuzz")]
const CANARY: u8 = 0xc5;

/// The mapping; freed when dropped.
#[derive(Debug)]
pub(crate) struct Memory {
    start: *mut u8,
    reserved: usize,
    size: usize,
}

// SAFETY: the mapping belongs to this value alone; nothing in it is tied to a thread.
unsafe impl Send for Memory {}

fn last_error(what: &str) -> Error {
    Error::Backend(format!("{what}: {}", io::Error::last_os_error()))
}

impl Memory {
    /// `size` bytes of zeros behind `base`; caged: in a region of 4 GiB.
    pub(crate) fn new(size: usize, caged: bool) -> Result<Self, Error> {
        let too_large = || {
            Error::Options(format!(
                "the maps take {size} bytes, the cage has 4 GiB: choose smaller maps, or load the object through the kernel so that no \
                 cage is needed"
            ))
        };
        let pages = size.checked_next_multiple_of(PAGE).ok_or_else(too_large)?;
        if caged && pages > CAGE_BYTES {
            return Err(too_large());
        }
        let room = if caged { CAGE_BYTES + REACH_BYTES } else { pages };
        let reserved = room.checked_add(VM_BYTES + GUARD_BYTES).ok_or_else(too_large)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new private mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(ptr::null_mut(), reserved, libc::PROT_NONE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(last_error("no memory for the maps"));
        }
        let memory = Self { start: start.cast(), reserved, size: pages };
        memory.open(0, PAGE)?;
        memory.open(VM_BYTES, pages)?;
        if pages >= HUGE_PAGE {
            // SAFETY: a hint on a part of our own mapping; that it is not taken does no harm.
            unsafe { libc::madvise(memory.base().cast(), pages, libc::MADV_HUGEPAGE) };
        }
        if caged {
            memory.back_with_scrap()?;
        }
        #[cfg(feature = "fuzz")]
        memory.beside_vm().fill(CANARY);
        Ok(memory)
    }

    /// The rest of the page of `struct Vm`, which nobody uses.
    #[cfg(feature = "fuzz")]
    #[allow(clippy::mut_from_ref, reason = "nothing else refers to it")]
    fn beside_vm(&self) -> &mut [u8] {
        // SAFETY: our own mapping, behind the Vm.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(VM_SIZE), PAGE - VM_SIZE) }
    }

    /// Nothing was written where nobody writes.
    #[cfg(feature = "fuzz")]
    pub(crate) fn assert_whole(&self) {
        assert!(self.beside_vm().iter().all(|byte| *byte == CANARY), "written beside struct Vm");
    }

    /// Makes a part of what is reserved memory.
    fn open(&self, at: usize, length: usize) -> Result<(), Error> {
        assert!(at <= self.reserved && length <= self.reserved - at);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: inside our own mapping (checked).
        match unsafe { libc::mprotect(self.start.add(at).cast(), length, protection) } {
            0 => Ok(()),
            _ => Err(last_error("no memory for the maps")),
        }
    }

    /// Puts the memory of a map that others keep in the place of our own. offset : of a page.
    pub(crate) fn map_over(&mut self, offset: usize, bytes: usize, map: BorrowedFd<'_>) -> io::Result<()> {
        let length = bytes.next_multiple_of(PAGE);
        assert!(offset.is_multiple_of(PAGE) && offset <= self.size && length <= self.size - offset);
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
        // SAFETY: replaces a part of our own mapping (checked), to which nothing refers while `self` is borrowed alone; the kernel
        // checks that the map has so many bytes.
        let place = unsafe {
            libc::mmap(self.base().add(offset).cast(), length, protection, flags, map.as_raw_fd(), 0)
        };
        if place == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Maps the same scrap memory over all that a caged program can name and that holds nothing.
    fn back_with_scrap(&self) -> Result<(), Error> {
        // SAFETY: the name is a C string.
        let file = unsafe { libc::memfd_create(c"wirewise-cage".as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 {
            return Err(last_error("no memory for the cage"));
        }
        // SAFETY: `file` is a descriptor of ours.
        let mut fine = unsafe { libc::ftruncate(file, SCRAP_BYTES as libc::off_t) } == 0;
        let reach = VM_BYTES - REACH_BYTES..VM_BYTES;
        let rest = VM_BYTES + self.size..VM_BYTES + CAGE_BYTES + REACH_BYTES;
        for range in [reach, rest] {
            let mut at = range.start;
            while at < range.end && fine {
                let length = SCRAP_BYTES.min(range.end - at);
                let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE;
                let protection = libc::PROT_READ | libc::PROT_WRITE;
                // SAFETY: replaces a part of our own reserved mapping in which nothing lives.
                let part =
                    unsafe { libc::mmap(self.start.add(at).cast(), length, protection, flags, file, 0) };
                fine = part != libc::MAP_FAILED;
                at += length;
            }
        }
        let result = if fine { Ok(()) } else { Err(last_error("no memory for the cage")) };
        // SAFETY: the mappings keep the memory; the descriptor is ours and not used again.
        unsafe { libc::close(file) };
        result
    }

    /// Bytes behind `base` that hold something.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Where offsets count from.
    #[inline(always)]
    pub(crate) fn base(&self) -> *mut u8 {
        // SAFETY: the mapping begins VM_BYTES before.
        unsafe { self.start.add(VM_BYTES) }
    }

    /// A part of the memory behind `base`.
    pub(crate) fn bytes(&self, offset: usize, length: usize) -> &[u8] {
        assert!(offset <= self.size && length <= self.size - offset);
        // SAFETY: inside the mapping (checked), which is initialised; programs run only under `&mut` of the engine.
        unsafe { std::slice::from_raw_parts(self.base().add(offset), length) }
    }

    /// A part of the memory behind `base`, to write.
    pub(crate) fn bytes_mut(&mut self, offset: usize, length: usize) -> &mut [u8] {
        assert!(offset <= self.size && length <= self.size - offset);
        // SAFETY: as in `bytes`, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.base().add(offset), length) }
    }
}

/// Copies a packet. Most are short: then without a call, in blocks that do not overlap, as a load cannot be served from two stores still
/// under way.
///
/// # Safety
/// `length` bytes can be read at `from` and written at `to`; they do not overlap.
#[inline(always)]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, length: usize) {
    if length >= 128 {
        // SAFETY: as the caller promises.
        return unsafe { ptr::copy_nonoverlapping(from, to, length) };
    }
    let mut at = 0;
    macro_rules! block {
        ($($bytes:literal)*) => {
            $(if length & $bytes != 0 {
                type Block = [u8; $bytes];
                // SAFETY: the blocks taken are the binary digits of `length`, so together they are as long.
                unsafe {
                    let block = from.add(at).cast::<Block>().read_unaligned();
                    to.add(at).cast::<Block>().write_unaligned(block);
                }
                at += $bytes;
            })*
        };
    }
    block!(64 32 16);
    if !length.is_multiple_of(16) {
        block!(8 4 2 1);
    }
    debug_assert_eq!(at, length);
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: our mapping, which nothing points into any more.
        unsafe { libc::munmap(self.start.cast(), self.reserved) };
    }
}

/// Asks the processor for the memory at an address, whatever it is.
#[inline(always)]
pub(crate) fn prefetch(address: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which neither faults nor changes anything.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::with_exposed_provenance(address)) };
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeros_and_keeps_what_is_written() {
        let mut memory = Memory::new(10_000, false).unwrap();
        assert!(memory.bytes(0, 10_000).iter().all(|byte| *byte == 0));
        memory.bytes_mut(9_999, 1)[0] = 7;
        assert_eq!(memory.bytes(9_998, 2), [0, 7]);
    }

    #[test]
    fn copies_are_whole_and_no_longer() {
        let from: Vec<u8> = (0..=255).chain(0..=255).collect();
        for length in 0..400 {
            let mut to = vec![0; length + 1];
            // SAFETY: both are longer than `length`.
            unsafe { copy(from.as_ptr(), to.as_mut_ptr(), length) };
            assert_eq!((&to[..length], to[length]), (&from[..length], 0));
        }
    }

    #[test]
    fn every_byte_of_the_cage_can_be_touched() {
        let memory = Memory::new(10_000, true).unwrap();
        let least = isize::from(i16::MIN);
        let most = CAGE_BYTES as isize - 1 + isize::from(i16::MAX) + 7;
        for offset in [least, 0, 9_999, 12_288, 1 << 31, CAGE_BYTES as isize - 1, most] {
            // SAFETY: inside the reserved region.
            unsafe {
                memory.base().offset(offset).write_volatile(1);
                assert_eq!(memory.base().offset(offset).read_volatile(), 1);
            }
        }
    }

    /// What the kernel says of the pages of an address range: its protection.
    fn protection(address: usize) -> String {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let holds = |line: &&str| {
            let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
            let number = |text| usize::from_str_radix(text, 16).unwrap();
            (number(start)..number(end)).contains(&address)
        };
        maps.lines().find(holds).map_or("none", |line| line.split(' ').nth(1).unwrap()).to_owned()
    }

    #[test]
    fn behind_the_reach_of_a_program_there_is_no_memory() {
        let memory = Memory::new(10_000, true).unwrap();
        let base = memory.base() as usize;
        assert_eq!(protection(base - VM_BYTES), "rw-p", "struct Vm");
        let guards = [base - VM_BYTES + PAGE, base - REACH_BYTES - 1, base + CAGE_BYTES + REACH_BYTES];
        for guard in guards {
            assert_eq!(protection(guard), "---p", "{:#x} from base", guard.wrapping_sub(base));
        }
        assert_eq!(protection(base + CAGE_BYTES + REACH_BYTES + GUARD_BYTES - 1), "---p");
    }

    #[test]
    fn maps_larger_than_the_cage_are_refused() {
        assert!(matches!(Memory::new(CAGE_BYTES + 1, true), Err(Error::Options(_))));
    }
}

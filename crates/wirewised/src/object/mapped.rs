// SPDX-License-Identifier: Apache-2.0
//! An array map in our address space: reading an element costs no system call.

use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use std::{io, ptr};

use bytemuck::AnyBitPattern;
use libbpf_rs::MapCore;

use crate::abi;
use crate::abi::maps::PER_CPU;
use crate::error::{Error, Result};
use crate::object::maps::other_layout;

/// A CPU holds an entry for some tens of nanoseconds; this is some milliseconds.
const READ_TRIES: u32 = 100_000;

/// An array map (BPF_F_MMAPABLE), mapped read-only unless it says otherwise. The data path may write at any time: reads copy.
#[derive(Debug)]
pub struct MappedArray {
    start: *const u8,
    length: usize,
    stride: usize,
    value_size: usize,
    entries: u32,
    writable: bool,
}

// SAFETY: the mapping is shared memory, every read copies, and writes are atomic.
unsafe impl Send for MappedArray {}
// SAFETY: as for Send; no method changes `self`.
unsafe impl Sync for MappedArray {}

impl MappedArray {
    pub fn new(map: &impl MapCore) -> Result<Self> {
        Self::of(map, map.value_size() as usize, 0, map.max_entries(), libc::PROT_READ)
    }

    /// As `new`, and `store` works.
    pub fn to_write(map: &impl MapCore) -> Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        Self::of(map, map.value_size() as usize, 0, map.max_entries(), protection)
    }

    /// `entries` elements from `first` on, which must begin at a page. What is mapped counts as this process' memory.
    pub fn window(map: &impl MapCore, first: u32, entries: u32) -> Result<Self> {
        Self::of(map, map.value_size() as usize, first, entries, libc::PROT_READ)
    }

    /// `ww_cpu`: one value of the map holds all elements, `abi::Cpu` for each CPU.
    pub fn per_cpu(map: &impl MapCore) -> Result<Self> {
        Self::of_cpus(map, libc::PROT_READ)
    }

    /// As `per_cpu`, and `store` works.
    pub fn per_cpu_to_write(map: &impl MapCore) -> Result<Self> {
        Self::of_cpus(map, libc::PROT_READ | libc::PROT_WRITE)
    }

    fn of_cpus(map: &impl MapCore, protection: i32) -> Result<Self> {
        let (element, all) = (size_of::<abi::Cpu>(), map.value_size() as usize);
        if all == 0 || !all.is_multiple_of(element) {
            return Err(other_layout(PER_CPU));
        }
        Self::of(map, element, 0, (all / element) as u32, protection)
    }

    fn of(map: &impl MapCore, value_size: usize, first: u32, entries: u32, protection: i32) -> Result<Self> {
        let stride = value_size.next_multiple_of(8);
        let (length, offset) = (stride * entries as usize, stride * first as usize);
        let fd = map.as_fd().as_raw_fd();
        // SAFETY: a new shared mapping of `length` bytes of the map; the kernel checks type, flags and size.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), length, protection, libc::MAP_SHARED, fd, offset as _) };
        if start == libc::MAP_FAILED {
            let name = map.name().to_string_lossy();
            return Err(Error::other(format!("cannot map {name}: {}", io::Error::last_os_error())));
        }
        Ok(Self {
            start: start.cast(),
            length,
            stride,
            value_size,
            entries,
            writable: protection & libc::PROT_WRITE != 0,
        })
    }

    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Bytes of an element.
    pub fn value_size(&self) -> usize {
        self.value_size
    }

    /// A copy of the start of element `index`; `None` if there is no such element or `T` is larger than one.
    pub fn read<T: AnyBitPattern>(&self, index: u32) -> Option<T> {
        if index >= self.entries || size_of::<T>() > self.value_size {
            return None;
        }
        let mut value = MaybeUninit::<T>::uninit();
        // SAFETY: element `index` lies inside the mapping and has the bytes of a `T` (checked above), as `value` has; all of
        // them are written, and any bytes are a `T`.
        Some(unsafe {
            copy_shared(
                self.start.add(index as usize * self.stride),
                value.as_mut_ptr().cast(),
                size_of::<T>(),
            );
            value.assume_init()
        })
    }

    /// The 32-bit word at `offset` of element `index`; what is read later was written later.
    pub fn load(&self, index: u32, offset: usize) -> Option<u32> {
        if index >= self.entries || !offset.is_multiple_of(4) || offset + 4 > self.value_size {
            return None;
        }
        // SAFETY: the word lies inside the mapping and is aligned as element and offset are (checked above); the data path writes
        // it in one piece, and this only reads.
        let place = unsafe {
            AtomicU32::from_ptr(self.start.add(index as usize * self.stride + offset).cast_mut().cast())
        };
        Some(place.load(Ordering::Acquire))
    }

    /// The 64-bit word at `offset` of element `index`; what is read later was written later.
    pub fn load_wide(&self, index: u32, offset: usize) -> Option<u64> {
        if index >= self.entries || !offset.is_multiple_of(8) || offset + 8 > self.value_size {
            return None;
        }
        // SAFETY: as in `load`.
        let place = unsafe {
            AtomicU64::from_ptr(self.start.add(index as usize * self.stride + offset).cast_mut().cast())
        };
        Some(place.load(Ordering::Acquire))
    }

    /// Writes the word at `offset` of element `index`, if the map was mapped for it and there is such a word.
    pub fn store(&self, index: u32, offset: usize, word: u64) {
        let inside = offset.is_multiple_of(8) && offset + 8 <= self.value_size && index < self.entries;
        if !inside || !self.writable {
            return;
        }
        // SAFETY: the word lies inside the mapping, which is writable, and is aligned as element and offset are (checked
        // above). The data path may use it meanwhile: hence atomic.
        let place = unsafe {
            AtomicU64::from_ptr(self.start.add(index as usize * self.stride + offset).cast_mut().cast())
        };
        place.store(word, Ordering::Release);
    }

    /// Replaces the 32-bit word at `offset` of element `index` if it is `before`; false if it is not, or cannot be written.
    pub fn replace(&self, index: u32, offset: usize, before: u32, after: u32) -> bool {
        let inside = offset.is_multiple_of(4) && offset + 4 <= self.value_size && index < self.entries;
        if !inside || !self.writable {
            return false;
        }
        // SAFETY: as in `store`.
        let place = unsafe {
            AtomicU32::from_ptr(self.start.add(index as usize * self.stride + offset).cast_mut().cast())
        };
        place.compare_exchange(before, after, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Copies `bytes.len()` bytes of element `index` from `offset` on; false if it has not so many.
    pub fn read_part(&self, index: u32, offset: usize, bytes: &mut [u8]) -> bool {
        let inside = offset.checked_add(bytes.len()).is_some_and(|end| end <= self.value_size);
        if index >= self.entries || !inside {
            return false;
        }
        // SAFETY: as in `read`, inside the element (checked); `bytes` is ours alone.
        unsafe {
            let part = self.start.add(index as usize * self.stride + offset);
            copy_shared(part, bytes.as_mut_ptr(), bytes.len());
        }
        true
    }

    /// As `read_part`, of what CPUs share: the word at `claim` of the element is even and the same before and after the copy, or it is taken
    /// again (bpf/classify/claim.h). False also if that never came about.
    pub fn read_whole(&self, index: u32, offset: usize, claim: usize, bytes: &mut [u8]) -> bool {
        if index >= self.entries || !claim.is_multiple_of(4) || claim + size_of::<u32>() > self.value_size {
            return false;
        }
        // SAFETY: inside the mapping (checked), aligned as elements and `claim` are; others change it by whole words only, and we
        // never do.
        let word = unsafe {
            AtomicU32::from_ptr(self.start.add(index as usize * self.stride + claim).cast_mut().cast::<u32>())
        };
        for _ in 0..READ_TRIES {
            let before = word.load(Ordering::Acquire);
            if before % 2 == 0 {
                let read = self.read_part(index, offset, bytes);
                fence(Ordering::Acquire);
                if !read || word.load(Ordering::Relaxed) == before {
                    return read;
                }
            }
            std::hint::spin_loop();
        }
        false
    }
}

/// Copies memory that the data path may be writing. A plain copy would be undefined: the compiler may read the same byte twice, or
/// take it for granted that both reads give the same. Words that lie on words' borders come in one piece, as they were written.
///
/// # Safety
///
/// `length` bytes are mapped at `from`, and `to` has room for as many that nobody else uses.
#[inline]
unsafe fn copy_shared(from: *const u8, to: *mut u8, length: usize) {
    const WORD: usize = size_of::<u64>();
    let mut at = 0;
    while at < length {
        // SAFETY: `at` stays below `length`, and a word is taken only where it ends within and begins on its border; memory of a
        // map is written by others by atomic or volatile stores only, or by the kernel, and we only read. `to` need not be aligned.
        unsafe {
            let place = from.add(at).cast_mut();
            if length - at >= WORD && place.addr().is_multiple_of(WORD) {
                let word = AtomicU64::from_ptr(place.cast()).load(Ordering::Relaxed);
                to.add(at).cast::<u64>().write_unaligned(word);
                at += WORD;
            } else {
                *to.add(at) = AtomicU8::from_ptr(place).load(Ordering::Relaxed);
                at += 1;
            }
        }
    }
}

impl Drop for MappedArray {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, which nothing else points into: reads copy.
        unsafe { libc::munmap(self.start.cast_mut().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_part_is_copied_and_nothing_beside_it() {
        let words: Vec<u64> =
            (0..8).map(|word| 0x0706_0504_0302_0100 + 0x0808_0808_0808_0808 * word).collect();
        let bytes: &[u8] = bytemuck::cast_slice(&words);
        for start in 0..17 {
            for length in 0..=bytes.len() - start {
                let mut copy = [0xff; 66];
                // SAFETY: `start + length` is within `bytes`, and `length + 1` within `copy`.
                unsafe { copy_shared(bytes.as_ptr().add(start), copy.as_mut_ptr().add(1), length) };
                assert_eq!(copy[1..=length], bytes[start..start + length], "{length} bytes from {start} on");
                assert!(copy[0] == 0xff && copy[length + 1] == 0xff, "{length} bytes from {start} on");
            }
        }
    }

    #[test]
    fn a_word_is_never_half_of_one_and_half_of_the_next() {
        let words: [AtomicU64; 8] = Default::default();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for round in 0..200_000u64 {
                    let value = if round % 2 == 0 { u64::MAX } else { 0 };
                    words.iter().for_each(|word| word.store(value, Ordering::Relaxed));
                }
            });
            while !writer.is_finished() {
                let mut copy = [0u64; 8];
                // SAFETY: both are eight words.
                unsafe { copy_shared(words.as_ptr().cast(), copy.as_mut_ptr().cast(), size_of_val(&copy)) };
                assert!(copy.iter().all(|word| [0, u64::MAX].contains(word)), "{copy:x?}");
            }
        });
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The rings and the memory for packets that we share with the kernel.

use std::io::{Error, Result};
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Memory that is given back when dropped.
struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: it is memory and nothing else; those who give out parts of it say who may touch them.
unsafe impl Send for Mapping {}
// SAFETY: as above, a shared `Mapping` gives out no references.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(length: usize, flags: i32, file: RawFd, offset: libc::off_t) -> Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = flags | libc::MAP_POPULATE;
        // SAFETY: a new mapping where the kernel chooses, so no memory that exists is touched.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, access, flags, file, offset) };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(Self { start, length }),
            _ => Err(Error::last_os_error()),
        }
    }

    /// Where `count` values of a type lie, if they lie inside.
    fn at<T>(&self, offset: u64, count: u32) -> Result<NonNull<T>> {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = (count as usize).checked_mul(size_of::<T>()).and_then(|bytes| offset.checked_add(bytes));
        if end.is_none_or(|end| end > self.length) || !offset.is_multiple_of(align_of::<T>()) {
            return Err(Error::other("the kernel describes a ring that is not as AF_XDP has it"));
        }
        // SAFETY: just checked to be inside the mapping.
        Ok(unsafe { self.start.add(offset) }.cast())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nobody has references into it any more. The kernel holds the pages
        // on its own account for sockets that are still on their way out.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// The memory for packets (UMEM) that all lanes opened together share with the kernel.
pub(super) struct Area(Mapping);

impl Area {
    pub fn new(length: usize) -> Result<Self> {
        Mapping::new(length, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0).map(Self)
    }

    /// Its address and its length.
    pub fn place(&self) -> (u64, u64) {
        (self.0.start.as_ptr() as u64, self.0.length as u64)
    }

    /// # Safety
    /// No two references to the same bytes at a time: each user asks for a part of its own only.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn part(&self, start: usize, length: usize) -> &mut [u8] {
        let start = start.min(self.0.length);
        let length = length.min(self.0.length - start);
        // SAFETY: bounded by the mapping above, and the caller vouches that the part is not lent twice.
        unsafe { std::slice::from_raw_parts_mut(self.0.start.as_ptr().add(start), length) }
    }
}

/// One end of a ring of 2^n entries. Both ends count on without end and wrap at 2^32, so indices are compared
/// by wrapping differences only, and the entry of an index is its remainder.
pub(super) struct Ring<T> {
    /// Our index, as the other end sees it, and what it will be next.
    ours: NonNull<AtomicU32>,
    next: u32,
    theirs: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    size: u32,
    _mapping: Mapping,
}

// SAFETY: the pointers lead into the mapping that goes with it, and only this end touches its side of it.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    pub fn map(
        file: RawFd,
        page: u64,
        at: &libc::xdp_ring_offset,
        size: u32,
        produces: bool,
    ) -> Result<Self> {
        let length = (at.desc as usize).saturating_add(size as usize * size_of::<T>());
        let mapping = Mapping::new(length, libc::MAP_SHARED, file, page as libc::off_t)?;
        let (ours, theirs) = if produces { (at.producer, at.consumer) } else { (at.consumer, at.producer) };
        let mut ring = Self {
            ours: mapping.at(ours, 1)?,
            next: 0,
            theirs: mapping.at(theirs, 1)?,
            flags: mapping.at(at.flags, 1)?,
            entries: mapping.at(at.desc, size)?,
            size,
            _mapping: mapping,
        };
        // SAFETY: inside the mapping, as all uses of the three indices below.
        ring.next = unsafe { ring.ours.as_ref() }.load(Ordering::Relaxed);
        Ok(ring)
    }

    /// Acquire: what the other end did to entries before it moved its index comes before what we do now.
    fn theirs(&self) -> u32 {
        // SAFETY: see `map`.
        unsafe { self.theirs.as_ref() }.load(Ordering::Acquire)
    }

    /// Release: what we did to entries comes before the other end sees that we are done with them.
    fn publish(&self) {
        // SAFETY: see `map`.
        unsafe { self.ours.as_ref() }.store(self.next, Ordering::Release);
    }

    /// The next entry, which is ours as long as there is room, or are entries.
    fn advance(&mut self) -> NonNull<T> {
        let at = self.next & (self.size - 1);
        self.next = self.next.wrapping_add(1);
        // SAFETY: the remainder is below the size, and so many entries lie inside the mapping.
        unsafe { self.entries.add(at as usize) }
    }
}

/// A ring that we fill and the kernel empties.
pub(super) struct Producer<T>(pub Ring<T>);

impl<T: Copy> Producer<T> {
    /// Entries that the kernel has not taken yet.
    pub fn pending(&self) -> u32 {
        self.0.next.wrapping_sub(self.0.theirs())
    }

    /// Takes from `values` as many as there is room for, and tells how many.
    pub fn put(&mut self, mut values: impl Iterator<Item = T>) -> usize {
        let room = self.0.size.saturating_sub(self.pending()) as usize;
        let mut count = 0;
        while count < room
            && let Some(value) = values.next()
        {
            // SAFETY: there is room, so the kernel is done with this entry and does not look at it yet.
            unsafe { self.0.advance().write(value) };
            count += 1;
        }
        self.0.publish();
        count
    }

    /// Whether the kernel waits for a call of ours before it looks at the ring again.
    pub fn needs_wakeup(&self) -> bool {
        // The flag must be read after the kernel can see what was put: else each could wait for the other.
        fence(Ordering::SeqCst);
        // SAFETY: see `Ring::map`.
        unsafe { self.0.flags.as_ref() }.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// A ring that the kernel fills and we empty.
pub(super) struct Consumer<T>(pub Ring<T>);

impl<T: Copy> Consumer<T> {
    pub fn available(&self) -> usize {
        self.0.theirs().wrapping_sub(self.0.next).min(self.0.size) as usize
    }

    /// Adds at most `most` entries to `taken`.
    pub fn take(&mut self, most: usize, taken: &mut Vec<T>) {
        for _ in 0..self.available().min(most) {
            // SAFETY: the entry was there when the other index was read, and stays until we publish ours.
            taken.push(unsafe { self.0.advance().read() });
        }
        self.0.publish();
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    use super::*;

    const SIZE: u32 = 8;
    const AT: libc::xdp_ring_offset =
        libc::xdp_ring_offset { producer: 0, consumer: 64, desc: 192, flags: 128 };

    /// Both ends of a ring in a file in memory, whose indices start at `start`.
    fn ends(start: u32) -> (OwnedFd, Producer<u64>, Consumer<u64>) {
        // SAFETY: the name ends in NUL; the descriptor is new.
        let file = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"ring".as_ptr(), libc::MFD_CLOEXEC)) };
        // SAFETY: it makes the file longer and writes four bytes that outlive the call at two places.
        unsafe {
            assert_eq!(libc::ftruncate(file.as_raw_fd(), 4096), 0);
            for at in [AT.producer, AT.consumer] {
                let from = (&raw const start).cast();
                assert_eq!(libc::pwrite(file.as_raw_fd(), from, 4, at as libc::off_t), 4);
            }
        }
        let ring = |produces| Ring::map(file.as_raw_fd(), 0, &AT, SIZE, produces).unwrap();
        let (producer, consumer) = (Producer(ring(true)), Consumer(ring(false)));
        (file, producer, consumer)
    }

    #[test]
    fn entries_come_out_once_and_in_order_across_the_wrap() {
        for before in 0..=2 * SIZE {
            let (_file, mut producer, mut consumer) = ends(u32::MAX - before);
            let (mut put, mut taken) = (0_u64, Vec::new());
            for round in 0..40 {
                let inside = producer.pending() as usize;
                assert_eq!(consumer.available(), inside);
                let count = producer.put((put..).take(round % 11));
                assert_eq!(count, (round % 11).min(SIZE as usize - inside));
                put += count as u64;
                consumer.take(round % 7, &mut taken);
            }
            consumer.take(usize::MAX, &mut taken);
            assert!(put > u64::from(2 * SIZE) && taken.iter().copied().eq(0..put));
            assert_eq!((producer.pending(), consumer.available()), (0, 0));
            assert!(producer.0.next < u32::MAX / 2 && producer.0.next == consumer.0.next);
        }
    }

    #[test]
    fn full_and_empty_across_the_wrap() {
        let (_file, mut producer, mut consumer) = ends(u32::MAX - 3);
        assert_eq!((producer.put(0..100), producer.put(0..100)), (SIZE as usize, 0));
        assert_eq!((producer.pending(), consumer.available()), (SIZE, SIZE as usize));
        // What was not put is still there to be put.
        let mut values = 100..;
        let mut taken = Vec::new();
        consumer.take(1, &mut taken);
        assert_eq!((producer.put(values.by_ref()), values.next(), taken), (1, Some(101), vec![0]));
    }

    #[test]
    fn indices_that_make_no_sense_do_no_harm() {
        let (_file, mut producer, mut consumer) = ends(u32::MAX);
        for theirs in [0, 1, SIZE, u32::MAX / 2, u32::MAX - 1 - SIZE] {
            // SAFETY: both indices lie inside the mapping.
            unsafe { producer.0.theirs.as_ref() }.store(theirs, Ordering::Release);
            // SAFETY: as above.
            unsafe { consumer.0.theirs.as_ref() }.store(theirs, Ordering::Release);
            let mut taken = Vec::new();
            consumer.take(usize::MAX, &mut taken);
            assert!(taken.len() <= SIZE as usize && producer.put(0..100) <= SIZE as usize);
        }
    }

    #[test]
    fn a_ring_outside_of_its_mapping_is_refused() {
        let (file, ..) = ends(0);
        for at in [
            libc::xdp_ring_offset { producer: 1 << 20, ..AT },
            libc::xdp_ring_offset { consumer: u64::MAX, ..AT },
            libc::xdp_ring_offset { flags: 3, ..AT },
        ] {
            assert!(Ring::<u64>::map(file.as_raw_fd(), 0, &at, SIZE, true).is_err());
        }
    }

    #[test]
    fn wake_up_is_asked_for_by_the_flag() {
        let (_file, producer, _) = ends(0);
        assert!(!producer.needs_wakeup());
        // SAFETY: the flags lie inside the mapping.
        unsafe { producer.0.flags.as_ref() }.store(libc::XDP_RING_NEED_WAKEUP, Ordering::Relaxed);
        assert!(producer.needs_wakeup());
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The code that the kernel lends every process.

use std::sync::OnceLock;
use std::{ptr, slice};

use object::elf::FileHeader64;
use object::read::elf::{ElfFile64, FileHeader};
use object::{NativeEndian, Object, ObjectSymbol};

const CLOCK_GETTIME: &str =
    if cfg!(target_arch = "x86_64") { "__vdso_clock_gettime" } else { "__kernel_clock_gettime" };

/// Address of `clock_gettime`: the kernel's, which the C library only wraps.
pub(crate) fn clock_gettime() -> usize {
    static ADDRESS: OnceLock<usize> = OnceLock::new();
    *ADDRESS.get_or_init(|| address(CLOCK_GETTIME).unwrap_or(libc::clock_gettime as *const () as usize))
}

/// Read from the image, as a static program has no `dlsym`.
fn address(name: &str) -> Option<usize> {
    // SAFETY: looks the number up, or gives 0.
    let base = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
    let start = ptr::with_exposed_provenance::<u8>(base);
    if start.is_null() {
        return None;
    }
    // SAFETY: the kernel mapped a whole ELF file here, on a page of its own, and never takes it away.
    let header = unsafe { &*start.cast::<FileHeader64<NativeEndian>>() };
    let sections = usize::from(header.e_shnum(NativeEndian)) * usize::from(header.e_shentsize(NativeEndian));
    let length = usize::try_from(header.e_shoff(NativeEndian)).ok()?.checked_add(sections)?;
    // SAFETY: as above; the table of sections is what such a file ends with.
    let image = unsafe { slice::from_raw_parts(start, length) };
    let file = ElfFile64::<NativeEndian>::parse(image).ok()?;
    let symbol = file.dynamic_symbols().find(|symbol| symbol.name() == Ok(name))?;
    Some(base + usize::try_from(symbol.address()).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_clock_is_found_and_tells_the_time() {
        let found = address(CLOCK_GETTIME).expect("every supported kernel lends a clock");
        // SAFETY: that is the function's type, on every architecture.
        let read: unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> libc::c_int =
            unsafe { std::mem::transmute(ptr::with_exposed_provenance::<()>(found)) };
        let mut times = [libc::timespec { tv_sec: 0, tv_nsec: 0 }; 3];
        // SAFETY: each is a timespec.
        unsafe {
            libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut times[0]);
            assert_eq!(read(libc::CLOCK_MONOTONIC, &mut times[1]), 0);
            libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut times[2]);
        }
        assert!(times.is_sorted_by_key(|time| (time.tv_sec, time.tv_nsec)));
    }

    #[test]
    fn what_the_kernel_does_not_lend_is_not_found() {
        assert_eq!(address("clock_gettime_of_nobody"), None);
    }
}

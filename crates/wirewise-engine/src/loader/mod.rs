// SPDX-License-Identifier: Apache-2.0
//! Where linked byte code comes from.

pub mod btf;
mod elf;
#[cfg(feature = "libbpf")]
mod libbpf;

use crate::error::Error;
use crate::linked::Linked;

impl Linked {
    /// Links an object file in user space; the kernel is not asked. The result is [`Trust::Unverified`](crate::Trust).
    ///
    /// # Errors
    /// [`Error::Object`] if it is no eBPF object, or uses what only the kernel can link (CO-RE, `extern`, legacy map sections).
    pub fn from_elf(object: &[u8]) -> Result<Linked, Error> {
        elf::link(object)
    }

    /// The byte code of an object that `libbpf` has loaded, exactly as the kernel verified it. The result is
    /// [`Trust::Verified`](crate::Trust).
    ///
    /// Global data is taken as it is in the kernel now; other maps start empty, as in every engine.
    ///
    /// # Errors
    /// [`Error::Object`] if a map cannot be read; [`Error::Map`] for kinds of map the engine does not have.
    #[cfg(feature = "libbpf")]
    pub fn from_loaded(object: &libbpf_rs::Object) -> Result<Linked, Error> {
        libbpf::take(object)
    }
}

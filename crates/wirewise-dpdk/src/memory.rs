// SPDX-License-Identifier: Apache-2.0
//! A lane's packets: a mempool as one area of memory, and the accounts of all mempools.

use super::eal::check;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

unsafe extern "C" {
    fn dpdk_pool(
        name: *const c_char,
        mbufs: c_uint,
        area: *mut *mut u8,
        length: *mut usize,
        result: *mut c_int,
    ) -> *mut c_void;
    fn rte_mempool_avail_count(pool: *const c_void) -> c_uint;
    fn rte_mempool_in_use_count(pool: *const c_void) -> c_uint;
    fn rte_mempool_free(pool: *mut c_void);
}

/// Packet buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Account {
    pub available: u64,
    pub in_use: u64,
}

struct Accounts {
    /// Mempools need names of their own.
    made: u64,
    live: Vec<usize>,
    closed: Account,
}

static ACCOUNTS: Mutex<Accounts> =
    Mutex::new(Accounts { made: 0, live: Vec::new(), closed: Account { available: 0, in_use: 0 } });

fn accounts() -> MutexGuard<'static, Accounts> {
    ACCOUNTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The buffers of all planes that are open now. Drivers keep some to receive into; the others in use are on
/// their way. While lanes work it is a moment's guess.
pub fn account() -> Account {
    sum(accounts().live.iter().copied())
}

/// The buffers of the plane that was closed last, when its ports were closed and its lanes gone. What is in
/// use then was not returned; `net_af_xdp` never returns what lay in the kernel's rings.
pub fn closed() -> Account {
    accounts().closed
}

fn sum(pools: impl Iterator<Item = usize>) -> Account {
    pools.fold(Account::default(), |sum, pool| {
        let one = of(pool as *const c_void);
        Account { available: sum.available + one.available, in_use: sum.in_use + one.in_use }
    })
}

/// pool : that is not freed.
fn of(pool: *const c_void) -> Account {
    // SAFETY: a mempool that is not freed; both counts may be read at any time.
    let (available, in_use) = unsafe { (rte_mempool_avail_count(pool), rte_mempool_in_use_count(pool)) };
    Account { available: available.into(), in_use: in_use.into() }
}

pub struct Pool {
    pub pool: *mut c_void,
    /// The mbufs and their headers.
    pub area: *mut u8,
    pub length: usize,
}

impl Pool {
    pub fn account(&self) -> Account {
        of(self.pool)
    }

    /// EAL must run.
    pub fn new(mbufs: u32) -> Result<Pool, String> {
        let mut accounts = accounts();
        accounts.made += 1;
        let name = CString::new(format!("lane{}", accounts.made)).unwrap_or_default();
        let (mut area, mut length, mut result) = (std::ptr::null_mut(), 0, 0);
        // SAFETY: a string and the answers' places, all living here; EAL runs.
        let pool = unsafe { dpdk_pool(name.as_ptr(), mbufs, &mut area, &mut length, &mut result) };
        check(result, |why| {
            format!(
                "DPDK: {mbufs} packet buffers for a lane, in one piece: {why}; see that librte-mempool-ring \
                 is installed, or open fewer lanes: the memory is what this process's first open asked for"
            )
        })?;
        accounts.live.push(pool as usize);
        Ok(Pool { pool, area, length })
    }
}

/// Frees the pools of a plane, whose ports are closed and whose lanes are gone.
pub fn free(pools: &mut Vec<Pool>) {
    let mut accounts = accounts();
    accounts.closed = sum(pools.iter().map(|pool| pool.pool as usize));
    for pool in pools.drain(..) {
        accounts.live.retain(|live| *live != pool.pool as usize);
        // SAFETY: nobody has mbufs of it any more, and it is not looked at again.
        unsafe { rte_mempool_free(pool.pool) };
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The helpers a program may call: numbers and arguments, as in linux/bpf.h.

/// A helper the engine offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Helper {
    MapLookup,
    MapUpdate,
    MapDelete,
    KtimeNs,
    Random,
    Cpu,
    TailCall,
    Numa,
    Jiffies,
    KtimeBootNs,
    RingOutput,
    RingReserve,
    RingSubmit,
    RingDiscard,
    RingQuery,
    KtimeCoarseNs,
    Loop,
    KtimeTaiNs,
    SocketLookup,
    SocketRelease,
    Redirect,
    PerfOutput,
    AdjustHead,
    CheckMtu,
}

impl Helper {
    pub(crate) const ALL: [(u32, Helper); 26] = [
        (1, Helper::MapLookup),
        (2, Helper::MapUpdate),
        (3, Helper::MapDelete),
        (5, Helper::KtimeNs),
        (7, Helper::Random),
        (8, Helper::Cpu),
        (12, Helper::TailCall),
        (23, Helper::Redirect),
        (25, Helper::PerfOutput),
        (42, Helper::Numa),
        (44, Helper::AdjustHead),
        (84, Helper::SocketLookup),
        (85, Helper::SocketLookup),
        (86, Helper::SocketRelease),
        (99, Helper::SocketLookup),
        (118, Helper::Jiffies),
        (125, Helper::KtimeBootNs),
        (130, Helper::RingOutput),
        (131, Helper::RingReserve),
        (132, Helper::RingSubmit),
        (133, Helper::RingDiscard),
        (134, Helper::RingQuery),
        (160, Helper::KtimeCoarseNs),
        (163, Helper::CheckMtu),
        (181, Helper::Loop),
        (208, Helper::KtimeTaiNs),
    ];

    pub(crate) fn from_id(id: u32) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == id).map(|(_, helper)| *helper)
    }

    /// Registers it reads, from r1 on.
    pub(crate) fn args(self) -> u8 {
        match self {
            Helper::KtimeNs
            | Helper::Random
            | Helper::Cpu
            | Helper::Numa
            | Helper::Jiffies
            | Helper::KtimeBootNs
            | Helper::KtimeCoarseNs
            | Helper::KtimeTaiNs
            | Helper::SocketLookup
            | Helper::SocketRelease => 0,
            Helper::MapLookup
            | Helper::MapDelete
            | Helper::RingSubmit
            | Helper::RingDiscard
            | Helper::RingQuery
            | Helper::Redirect
            | Helper::AdjustHead => 2,
            Helper::TailCall | Helper::RingReserve => 3,
            Helper::MapUpdate | Helper::RingOutput | Helper::Loop => 4,
            Helper::PerfOutput | Helper::CheckMtu => 5,
        }
    }

    /// Register that must hold a map.
    pub(crate) fn map_arg(self) -> Option<u8> {
        match self {
            Helper::MapLookup
            | Helper::MapUpdate
            | Helper::MapDelete
            | Helper::RingOutput
            | Helper::RingReserve
            | Helper::RingQuery => Some(1),
            Helper::TailCall | Helper::PerfOutput => Some(2),
            _ => None,
        }
    }

    /// Whether the context is what it works on, in r1.
    pub(crate) fn takes_context(self) -> bool {
        matches!(self, Helper::TailCall | Helper::PerfOutput | Helper::AdjustHead | Helper::CheckMtu)
    }

    /// Whether it only tells a time.
    pub(crate) fn is_clock(self) -> bool {
        matches!(
            self,
            Helper::KtimeNs
                | Helper::KtimeBootNs
                | Helper::KtimeCoarseNs
                | Helper::KtimeTaiNs
                | Helper::Jiffies
        )
    }
}

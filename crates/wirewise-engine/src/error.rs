// SPDX-License-Identifier: Apache-2.0
//! What can go wrong: before a program runs (`Error`), while it runs (`Trap`), at a map (`MapError`).

use std::fmt;

/// Why an object or program is refused. Nothing of a refused object is ever executed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The file is not an eBPF object this crate can link.
    Object(String),
    /// The byte code breaks a rule of the instruction set.
    Malformed {
        /// Name of the program.
        program: String,
        /// Index of the instruction.
        at: usize,
        /// The rule.
        why: String,
    },
    /// The byte code is valid, but uses something the engine does not offer.
    Unsupported {
        /// Name of the program.
        program: String,
        /// Index of the instruction.
        at: usize,
        /// What it uses.
        what: String,
    },
    /// A map cannot be made as described.
    Map {
        /// Name of the map.
        name: String,
        /// The rule it breaks.
        why: String,
    },
    /// The options contradict each other or the object.
    Options(String),
    /// The back end or the operating system failed.
    Backend(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Object(why) => write!(f, "not an object to run: {why}"),
            Error::Malformed { program, at, why } => {
                write!(f, "program {program}, instruction {at}: malformed: {why}")
            }
            Error::Unsupported { program, at, what } => {
                write!(f, "program {program}, instruction {at}: not supported: {what}")
            }
            Error::Map { name, why } => write!(f, "map {name}: {why}"),
            Error::Options(why) => write!(f, "options: {why}"),
            Error::Backend(why) => write!(f, "cannot make native code: {why}"),
        }
    }
}

impl std::error::Error for Error {}

/// Why a run ended without a verdict. A program that the kernel verified never traps on its own account: only a packet
/// that does not fit ([`Trap::Packet`]) can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trap {
    /// Caged only: more backward jumps and calls than [`Options::fuel`](crate::Options::fuel).
    OutOfFuel,
    /// Caged only: more than eight calls deep, the kernel's limit.
    CallDepth,
    /// Caged only: a helper got an argument that is no map or no memory of the cage.
    BadArgument,
    /// The metadata is longer than the buffer, or the packet does not fit the cage.
    Packet,
    /// The [`ProgramId`](crate::ProgramId) is of another engine.
    Program,
}

impl Trap {
    /// The code in [`Vm::trap`](crate::vm::Vm); 0 is no trap.
    pub(crate) const fn code(self) -> u32 {
        match self {
            Trap::OutOfFuel => 1,
            Trap::CallDepth => 2,
            Trap::BadArgument => 3,
            Trap::Packet => 4,
            Trap::Program => 5,
        }
    }

    pub(crate) const fn from_code(code: u32) -> Self {
        match code {
            1 => Trap::OutOfFuel,
            2 => Trap::CallDepth,
            3 => Trap::BadArgument,
            4 => Trap::Packet,
            _ => Trap::Program,
        }
    }
}

impl fmt::Display for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Trap::OutOfFuel => "the program ran out of fuel",
            Trap::CallDepth => "the program calls more than eight functions deep",
            Trap::BadArgument => "the program gave a helper something that is no map or no memory of its own",
            Trap::Packet => "the packet does not fit: metadata beyond its end, or too long for the cage",
            Trap::Program => "the engine has no such program",
        })
    }
}

impl std::error::Error for Trap {}

/// Why user space could not change a map; the names are those of the kernel's error numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MapError {
    /// A key or value of the wrong size, or flags the map does not know (EINVAL).
    Invalid,
    /// No such key, or beyond the end of an array (ENOENT, E2BIG of arrays).
    NoEntry,
    /// The key exists and the flag says it must not (EEXIST).
    Exists,
    /// The map holds `max_entries` (E2BIG, ENOSPC).
    Full,
    /// Not an operation of this kind of map (ENOTSUPP).
    Unsupported,
}

impl MapError {
    /// What a helper returns for it.
    pub(crate) fn errno(self) -> i64 {
        match self {
            MapError::Invalid => -22,
            MapError::NoEntry => -2,
            MapError::Exists => -17,
            MapError::Full => -7,
            MapError::Unsupported => -524,
        }
    }
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MapError::Invalid => "a key, value or flag the map does not take",
            MapError::NoEntry => "no such entry",
            MapError::Exists => "the entry exists",
            MapError::Full => "the map is full",
            MapError::Unsupported => "not an operation of this kind of map",
        })
    }
}

impl std::error::Error for MapError {}

// SPDX-License-Identifier: Apache-2.0
//! Instructions as they are encoded (RFC 9669, section 3).

/// One slot of byte code. `ld_imm64` takes two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Insn {
    /// Opcode.
    pub code: u8,
    /// Destination register, 4 bits.
    pub dst: u8,
    /// Source register, or what the immediate means, 4 bits.
    pub src: u8,
    /// Signed offset.
    pub off: i16,
    /// Signed immediate.
    pub imm: i32,
}

/// Bytes of a slot.
pub const INSN_BYTES: usize = 8;

impl Insn {
    /// From the eight bytes of an object of a little-endian machine.
    pub fn from_bytes(bytes: [u8; INSN_BYTES]) -> Self {
        let [code, registers, o0, o1, i0, i1, i2, i3] = bytes;
        Self {
            code,
            dst: registers & 15,
            src: registers >> 4,
            off: i16::from_le_bytes([o0, o1]),
            imm: i32::from_le_bytes([i0, i1, i2, i3]),
        }
    }

    /// The eight bytes, as [`Insn::from_bytes`] takes them.
    pub fn to_bytes(self) -> [u8; INSN_BYTES] {
        let [o0, o1] = self.off.to_le_bytes();
        let [i0, i1, i2, i3] = self.imm.to_le_bytes();
        [self.code, self.dst & 15 | self.src << 4, o0, o1, i0, i1, i2, i3]
    }

    /// Slots of a block of bytes; `None` if it is no whole number of them.
    pub fn parse(bytes: &[u8]) -> Option<Vec<Self>> {
        let (slots, rest) = bytes.as_chunks::<INSN_BYTES>();
        rest.is_empty().then(|| slots.iter().map(|slot| Self::from_bytes(*slot)).collect())
    }
}

/// `ld_imm64`: the two immediates are a number.
pub const PSEUDO_NONE: u8 = 0;
/// `ld_imm64`: the immediate is a map's descriptor (before linking into [`PSEUDO_MAP_IDX`]).
pub const PSEUDO_MAP_FD: u8 = 1;
/// `ld_imm64`: descriptor of a map and offset into its first value.
pub const PSEUDO_MAP_VALUE: u8 = 2;
/// `ld_imm64`: distance to a function of the program, in slots.
pub const PSEUDO_FUNC: u8 = 4;
/// `ld_imm64`: the immediate is the index of a map.
pub const PSEUDO_MAP_IDX: u8 = 5;
/// `ld_imm64`: index of a map and offset into its first value.
pub const PSEUDO_MAP_IDX_VALUE: u8 = 6;
/// `call`: the immediate is a distance to a function of the program.
pub const PSEUDO_CALL: u8 = 1;

/// `ld_imm64`, the one instruction of two slots.
pub const LD_IMM64: u8 = 0x18;
/// `call`.
pub const CALL: u8 = 0x85;
/// `exit`.
pub const EXIT: u8 = 0x95;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_survives_its_encoding() {
        let insn = Insn { code: 0x7b, dst: 10, src: 3, off: -8, imm: i32::MIN };
        assert_eq!(Insn::from_bytes(insn.to_bytes()), insn);
        assert_eq!(Insn::parse(&insn.to_bytes()), Some(vec![insn]));
        assert_eq!(Insn::parse(&[0; 9]), None);
    }
}

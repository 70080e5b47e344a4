// SPDX-License-Identifier: Apache-2.0
//! Runs a program of an object on packets made here and prints how often it returned each XDP code.
//!
//! ```text
//! count OBJECT [PROGRAM] [PACKETS]
//! ```

use std::collections::BTreeMap;

use wirewise_engine::{Engine, Linked, Options};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let object = arguments.next().ok_or("usage: count OBJECT [PROGRAM] [PACKETS]")?;
    let linked = Linked::from_elf(&std::fs::read(&object)?)?;
    let first = linked.programs().iter().find(|program| program.is_xdp()).ok_or("no XDP program")?;
    let name = arguments.next().unwrap_or_else(|| first.name.clone());
    let packets: u32 = arguments.next().map_or(Ok(1000), |text| text.parse())?;

    let mut engine = Engine::new(&linked, Options::default())?;
    let program = engine.program(&name).ok_or(format!("{object} has no program {name}"))?;
    let mut codes: BTreeMap<u32, u32> = BTreeMap::new();
    for number in 0..packets {
        // Ethernet with an unknown type, then the packet's number.
        let mut packet = [0; 60];
        packet[12..14].copy_from_slice(&0x88b5u16.to_be_bytes());
        packet[14..18].copy_from_slice(&number.to_be_bytes());
        *codes.entry(engine.run_xdp(program, &mut packet, 0)?).or_default() += 1;
    }
    for (code, count) in codes {
        let name = ["XDP_ABORTED", "XDP_DROP", "XDP_PASS", "XDP_TX", "XDP_REDIRECT"].get(code as usize);
        println!("{}: {count}", name.unwrap_or(&"unknown code"));
    }
    Ok(())
}

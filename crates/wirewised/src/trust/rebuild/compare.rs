// SPDX-License-Identifier: Apache-2.0
//! Where two programs differ, in the agent's reading of both: all of it but the source lines.

use std::collections::BTreeMap;

use crate::bundle::program::{Function, Program, Reference, SLOT, Slot};

/// The first thing in which they differ, with the number of instructions that are the same before it.
pub fn difference(bundle: &Program, again: &Program) -> Option<(usize, String)> {
    let functions: BTreeMap<_, _> = again.functions.iter().map(|f| (f.name.as_str(), f)).collect();
    let mut same = 0;
    for function in &bundle.functions {
        let name = &function.name;
        let Some(other) = functions.get(name.as_str()) else {
            return Some((same, format!("the function {name} is in the bundle only")));
        };
        for at in 0..function.slots.len().max(other.slots.len()) {
            let (one, two) = (
                CodePlace { program: bundle, function, at },
                CodePlace { program: again, function: other, at },
            );
            if one.slot() != two.slot() || one.reference() != two.reference() {
                let (one, two) = (one.describe(), two.describe());
                return Some((
                    same + at,
                    format!("instruction {at} of {name} is {one} in the bundle and {two} compiled again"),
                ));
            }
        }
        same += function.slots.len();
    }
    let what = if bundle.functions != again.functions {
        "the functions have another order, or other types".to_string()
    } else if let Some(data) = bundle.data.iter().find(|data| !again.data.contains(data)) {
        format!("section {} holds something else", data.name)
    } else if bundle.data != again.data {
        "the sections of data are others".to_string()
    } else if let Some((name, _)) = bundle.maps.iter().find(|map| !again.maps.contains(map)) {
        format!("the map {name} is described differently")
    } else if bundle != again {
        "the maps have another order, or some are missing".to_string()
    } else {
        return None;
    };
    Some((same, what))
}

struct CodePlace<'a> {
    program: &'a Program,
    function: &'a Function,
    at: usize,
}

impl CodePlace<'_> {
    fn slot(&self) -> Option<&Slot> {
        self.function.slots.get(self.at)
    }

    /// By name, and the byte there.
    fn reference(&self) -> Option<(&str, u32)> {
        Some(match *self.function.references.get(&self.at)? {
            Reference::Map(map) => (&self.program.maps[map].0, 0),
            Reference::Data(data, byte) => (&self.program.data[data].name, byte),
            Reference::Function(function) => (&self.program.functions[function].name, 0),
        })
    }

    fn describe(&self) -> String {
        let Some(slot) = self.slot() else { return "missing".to_string() };
        let bytes: [String; SLOT] = slot.map(|byte| format!("{byte:02x}"));
        match self.reference() {
            Some((name, 0)) => format!("{} ({name:?})", bytes.join(" ")),
            Some((name, byte)) => format!("{} ({name:?} at {byte})", bytes.join(" ")),
            None => bytes.join(" "),
        }
    }
}

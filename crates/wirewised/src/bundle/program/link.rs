// SPDX-License-Identifier: Apache-2.0
//! Links the actor to a bundle's program: it replaces the function that does nothing there.

use std::collections::BTreeSet;

use super::{Program, Reference};
use crate::bundle::elf::Checked;
use crate::bundle::emitted::SEAM;

/// Where data begins that is appended to a section of the same name, such as clang's tables for `switch`.
const ALIGNMENT: usize = 8;

impl Program {
    /// This program with the functions, maps and data of `actor`, whose `ww_act` replaces its own. A function of the actor that has
    /// the name of one here gets another. Returns an error if there is no `ww_act`, or a map of the actor's name.
    pub fn link(mut self, actor: &Self) -> Checked<Self> {
        let seam = |program: &Self| program.functions.iter().position(|function| function.name == SEAM);
        let (own, theirs) = (seam(&self), seam(actor));
        let (Some(own), Some(theirs)) = (own, theirs) else { return Err(format!("has no function {SEAM}")) };
        let maps = self.maps.len();
        if let Some((twice, _)) =
            actor.maps.iter().find(|(name, _)| self.maps.iter().any(|(own, _)| own == name))
        {
            return Err(format!("holds the map {twice:?}, which is the agent's"));
        }
        self.maps.extend(actor.maps.iter().cloned());
        let places: Vec<_> = actor.data.iter().map(|data| self.place(data)).collect();
        // Its own stays in its place; all others follow those that are here.
        let first = self.functions.len();
        let number = |function: usize| match function {
            _ if function == theirs => own,
            _ if function < theirs => first + function,
            _ => first + function - 1,
        };
        let names: BTreeSet<_> = self.functions.iter().map(|function| function.name.clone()).collect();
        for (index, function) in actor.functions.iter().enumerate() {
            let mut function = function.clone();
            for reference in function.references.values_mut() {
                *reference = match *reference {
                    Reference::Map(map) => Reference::Map(maps + map),
                    Reference::Data(data, byte) => {
                        let (place, offset) = places[data];
                        Reference::Data(place, offset + byte)
                    }
                    Reference::Function(callee) => Reference::Function(number(callee)),
                };
            }
            if index == theirs {
                self.functions[own] = function;
                continue;
            }
            if names.contains(&function.name) {
                function.name = format!("{SEAM}_{}", function.name.trim_start_matches("ww_"));
            }
            self.functions.push(function);
        }
        self.check_names().map(|()| self)
    }

    /// Takes in data of the actor. Returns its section here, and the byte where it begins.
    fn place(&mut self, data: &super::Data) -> (usize, u32) {
        let Some(section) = self.data.iter().position(|own| own.name == data.name) else {
            self.data.push(data.clone());
            return (self.data.len() - 1, 0);
        };
        let own = &mut self.data[section];
        let start = own.bytes.len().next_multiple_of(ALIGNMENT);
        own.bytes.resize(start, 0);
        own.bytes.extend(&data.bytes);
        let start = start as u32;
        own.variables.extend(data.variables.iter().cloned().map(|mut variable| {
            variable.offset += start;
            variable
        }));
        (section, start)
    }
}

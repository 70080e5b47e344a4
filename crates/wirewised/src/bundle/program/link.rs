// SPDX-License-Identifier: Apache-2.0
//! Links the actor to a bundle's program: it replaces the functions that do nothing there.

use std::collections::{BTreeMap, BTreeSet};

use super::{Program, Reference};
use crate::bundle::elf::Checked;
use crate::bundle::emitted::SEAMS;

/// Where data begins that is appended to a section of the same name, such as clang's tables for `switch`.
const ALIGNMENT: usize = 8;

impl Program {
    /// This program with the functions, maps and data of `actor`, whose functions at the seams (`SEAMS`) replace its own. A function of the
    /// actor that has the name of another one here gets a new name. Returns an error if there is no such seam, or a map of the actor's
    /// name.
    pub fn link(mut self, actor: &Self) -> Checked<Self> {
        let place = |program: &Self, name: &str| program.functions.iter().position(|it| it.name == name);
        // An actor's function, where it is one at a seam: in its place here.
        let mut seams = BTreeMap::new();
        for seam in SEAMS {
            let Some(theirs) = place(actor, seam) else { continue };
            let own = place(&self, seam).ok_or_else(|| format!("has no function {seam}"))?;
            seams.insert(theirs, own);
        }
        if seams.is_empty() {
            return Err(format!("is linked to an actor without any of {}", SEAMS.join(", ")));
        }
        let maps = self.maps.len();
        if let Some((twice, _)) =
            actor.maps.iter().find(|(name, _)| self.maps.iter().any(|(own, _)| own == name))
        {
            return Err(format!("holds the map {twice:?}, which is the agent's"));
        }
        self.maps.extend(actor.maps.iter().cloned());
        let places: Vec<_> = actor.data.iter().map(|data| self.place(data)).collect();
        // Those at seams stay in their places; all others follow those that are here.
        let mut next = self.functions.len();
        let numbers = (0..actor.functions.len()).map(|function| {
            seams.get(&function).copied().unwrap_or_else(|| {
                next += 1;
                next - 1
            })
        });
        let numbers: Vec<_> = numbers.collect();
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
                    Reference::Function(callee) => Reference::Function(numbers[callee]),
                };
            }
            if let Some(own) = seams.get(&index) {
                self.functions[*own] = function;
                continue;
            }
            if names.contains(&function.name) {
                function.name = format!("{}_{}", SEAMS[0], function.name.trim_start_matches("ww_"));
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

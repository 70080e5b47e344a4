// SPDX-License-Identifier: Apache-2.0
//! Any bytes as the types of an object. A number in the first two bytes says where those of `.BTF.ext` begin.
#![no_main]

use libfuzzer_sys::fuzz_target;
use readers::btf::{Btf, wants_co_re};

fuzz_target!(|data: &[u8]| {
    let Some((border, data)) = data.split_first_chunk() else { return };
    let border = usize::from(u16::from_le_bytes(*border)).min(data.len());
    let (types, ext) = data.split_at(border);
    wants_co_re(ext);
    let Some(types) = Btf::parse(types) else { return };
    let _ = types.structure("ww_state");
    let errors =
        [types.check_names().err(), types.maps().err(), types.functions(ext).err(), types.lines(ext).err()];
    for message in errors.into_iter().flatten() {
        readers::assert_one_line(message);
    }
    for line in types.lines(ext).into_iter().flat_map(|lines| lines.into_values().flatten()) {
        types.line_texts(&line);
    }
});

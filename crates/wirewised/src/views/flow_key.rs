// SPDX-License-Identifier: Apache-2.0
//! The parts of a flow key as people write them.

use std::net::IpAddr;

use crate::object::flow_table::End;

/// An address with its port; `*` for what the flow key has not.
pub fn end((address, port): End) -> String {
    let text = match address {
        None => "*".to_string(),
        Some(IpAddr::V6(address)) if port.is_some() => format!("[{address}]"),
        Some(address) => address.to_string(),
    };
    match port {
        Some(port) => format!("{text}:{port}"),
        None => text,
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Feature tables out of the program itself: what is written is what the model is given in the data path.

mod extract;
mod rows;
mod source;

pub use extract::{Counts, Extraction, Selection};
pub use rows::{FeatureRows, Row, Shape};
pub use source::Source;

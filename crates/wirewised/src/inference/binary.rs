// SPDX-License-Identifier: Apache-2.0
//! A binary network as `blocks` computes it. Its meaning, and the rules that are checked here, are those of
//! python/wirewise/models/binary_mlp.py.

use serde::Deserialize;
use serde_json::Value;

use crate::abi;

pub const MAX_INPUT_BITS: usize = 1024;
const MAX_WIDTH: usize = 256;
const MAX_LAYERS: usize = 8;
pub const WORD: usize = u64::BITS as usize;

#[derive(Debug)]
pub struct Network {
    pub n_features: usize,
    pub inputs: Vec<Input>,
    /// Words that the input bits take.
    pub input_words: usize,
    pub hidden: Vec<Layer>,
    pub last: Layer,
}

/// Bits of a feature. at : the first one's place among all bits of the input.
#[derive(Debug)]
pub struct Input {
    pub feature: usize,
    pub at: usize,
    pub encoding: Encoding,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Encoding {
    /// Bit n is `x > thresholds[n]`.
    Steps { thresholds: Vec<i64> },
    /// `bits` bits of `clamp(x, 0, 2^(shift + bits) - 1) >> shift`.
    Bits { shift: u32, bits: u32 },
}

#[derive(Debug)]
pub struct Layer {
    /// Words of a neuron's weights.
    pub words: usize,
    /// Neuron by neuron.
    pub weights: Vec<u64>,
    /// By neuron, to be compared with the number of inputs that differ from its weights: in a hidden layer the bit is `differing < limit`, in the
    /// last one the score is `limit - differing`.
    pub limits: Vec<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(rename = "family")]
    _family: String,
    version: u32,
    n_features: usize,
    n_classes: usize,
    n_outputs: usize,
    inputs: Vec<InputDocument>,
    layers: Vec<LayerDocument>,
}

#[derive(Debug, Deserialize)]
struct InputDocument {
    feature: usize,
    #[serde(flatten)]
    encoding: Encoding,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LayerDocument {
    /// In hexadecimal; bit k is the weight of input k.
    weights: Vec<String>,
    threshold: Option<Vec<i32>>,
    bias: Option<Vec<i32>>,
}

impl Network {
    /// The error says what rule of the format is broken.
    pub fn parse(ir: &Value) -> Result<Self, String> {
        let document = Document::deserialize(ir).map_err(|error| error.to_string())?;
        if document.version != 1 {
            return Err(format!("is of version {}, this wirewised knows 1", document.version));
        }
        check(document.n_features, abi::MAX_FEATURES, "features")?;
        check(document.n_classes, abi::MAX_CLASSES, "classes")?;
        check(document.layers.len(), MAX_LAYERS, "layers")?;
        let (mut inputs, mut at) = (Vec::new(), 0usize);
        for (index, InputDocument { feature, encoding }) in document.inputs.into_iter().enumerate() {
            if feature >= document.n_features {
                return Err(format!("input {index} reads feature {feature}, which does not exist"));
            }
            encoding.check().map_err(|rule| format!("input {index}: {rule}"))?;
            inputs.push(Input { feature, at, encoding });
            at = at.saturating_add(inputs[index].encoding.width());
        }
        check(at, MAX_INPUT_BITS, "input bits")?;
        let mut fan_in = at;
        let mut layers = Vec::new();
        let count = document.layers.len();
        for (index, layer) in document.layers.iter().enumerate() {
            let made = layer.lower(fan_in, index + 1 == count);
            layers.push(made.map_err(|rule| format!("layer {index}: {rule}"))?);
            fan_in = layer.weights.len();
        }
        if fan_in != document.n_classes || fan_in != document.n_outputs {
            return Err(format!("has {fan_in} scores for {} classes", document.n_classes));
        }
        let last = layers.pop().ok_or("has no layers")?;
        Ok(Self {
            n_features: document.n_features,
            inputs,
            input_words: at.div_ceil(WORD),
            hidden: layers,
            last,
        })
    }

    pub fn n_outputs(&self) -> usize {
        self.last.limits.len()
    }

    pub fn reads(&self, feature: usize) -> bool {
        self.inputs.iter().any(|input| input.feature == feature)
    }
}

fn check(count: usize, most: usize, what: &str) -> Result<(), String> {
    if (1..=most).contains(&count) {
        return Ok(());
    }
    Err(format!("has {count} {what}, allowed are 1 to {most}"))
}

impl Encoding {
    fn width(&self) -> usize {
        match self {
            Self::Steps { thresholds } => thresholds.len(),
            Self::Bits { bits, .. } => *bits as usize,
        }
    }

    fn check(&self) -> Result<(), String> {
        match self {
            Self::Steps { thresholds } if thresholds.is_empty() => Err("has no thresholds".to_owned()),
            Self::Steps { thresholds } if !thresholds.is_sorted() => {
                Err("its thresholds do not ascend".to_owned())
            }
            Self::Bits { shift, bits } if *shift > 62 || !(1..=63 - shift).contains(bits) => {
                Err("shift must be 0 to 62, bits 1 or more, together at most 63".to_owned())
            }
            _ => Ok(()),
        }
    }
}

impl LayerDocument {
    fn lower(&self, fan_in: usize, last: bool) -> Result<Layer, String> {
        let neurons = self.weights.len();
        check(neurons, MAX_WIDTH, "neurons")?;
        let (own, other) = if last { (&self.bias, &self.threshold) } else { (&self.threshold, &self.bias) };
        let numbers = own.as_ref().filter(|_| other.is_none());
        let name = if last { "bias" } else { "threshold" };
        let numbers = numbers.ok_or_else(|| format!("should have weights and {name}"))?;
        if numbers.len() != neurons {
            return Err(format!("has {} of {name} for {neurons} neurons", numbers.len()));
        }
        // agreement = fan_in - differing; agreement >= threshold where differing < fan_in - threshold + 1.
        let limit = |number: &i32| {
            let (number, fan_in) = (i64::from(*number), fan_in as i64);
            if last { fan_in + number } else { fan_in - number + 1 }
        };
        let words = fan_in.div_ceil(WORD);
        let mut weights = Vec::with_capacity(neurons * words);
        for (neuron, text) in self.weights.iter().enumerate() {
            let own = bits(text, fan_in)
                .ok_or_else(|| format!("weights of neuron {neuron} are not {fan_in} bits"))?;
            weights.extend(own);
        }
        Ok(Layer { words, weights, limits: numbers.iter().map(limit).collect() })
    }
}

/// Hexadecimal text as words, the lowest first.
fn bits(text: &str, width: usize) -> Option<Vec<u64>> {
    const DIGITS: usize = WORD / 4;
    let digits = text.trim_start_matches('0').as_bytes();
    let mut words = vec![0; width.div_ceil(WORD)];
    if text.is_empty() || digits.len() > words.len() * DIGITS {
        return None;
    }
    for (word, part) in words.iter_mut().zip(digits.rchunks(DIGITS)) {
        // Which would take a sign too.
        let plain = part.iter().all(u8::is_ascii_hexdigit);
        *word = u64::from_str_radix(std::str::from_utf8(part).ok().filter(|_| plain)?, 16).ok()?;
    }
    let used = width % WORD;
    let inside = used == 0 || words.last()? >> used == 0;
    inside.then_some(words)
}

#[cfg(test)]
mod tests {
    use super::bits;

    #[test]
    fn hexadecimal_text_becomes_words() {
        assert_eq!(bits("1f", 5), Some(vec![31]));
        assert_eq!(bits("0", 65), Some(vec![0, 0]));
        assert_eq!(bits("10123456789abcdef", 65), Some(vec![0x0123_4567_89ab_cdef, 1]));
        assert_eq!(bits("000000000000000000001", 1), Some(vec![1]));
        for (text, width) in [("20", 5), ("20123456789abcdef", 65), ("", 5), ("+1", 8), ("xy", 8), ("é1", 64)]
        {
            assert_eq!(bits(text, width), None, "{text}");
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! JSON that others wrote. What is built from it takes up to a hundred times the bytes of the text, so it is measured before.

use serde::de::DeserializeOwned;

/// What a document may have.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub bytes: usize,
    /// Lists and objects inside each other.
    pub depth: usize,
    /// Values and keys, counted where one begins or ends: by brackets, commas and colons.
    pub elements: usize,
}

/// Reads a document within its limits. The error is one line that goes on a name.
pub fn from_slice<T: DeserializeOwned>(text: &[u8], limits: &Limits) -> Result<T, String> {
    check(text, limits)?;
    serde_json::from_slice(text).map_err(|error| format!("is not what it should be: {error}"))
}

/// Whether a text is within limits; whether it is JSON, its reader says.
pub fn check(text: &[u8], limits: &Limits) -> Result<(), String> {
    let Limits { bytes, depth: most_depth, elements: most_elements } = *limits;
    if text.len() > bytes {
        return Err(format!("has {} bytes, more than the {bytes} that it may have", text.len()));
    }
    let (mut depth, mut elements) = (0usize, 0);
    let (mut in_text, mut escaped) = (false, false);
    for byte in text {
        if in_text {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_text = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_text = true,
            b'[' | b'{' => {
                depth += 1;
                elements += 1;
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' | b':' => elements += 1,
            _ => {}
        }
        if depth > most_depth {
            return Err(format!("is nested more than {most_depth} deep, which it may not be"));
        }
        if elements > most_elements {
            return Err(format!("has more than the {most_elements} values that it may have"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const LIMITS: Limits = Limits { bytes: 64, depth: 2, elements: 8 };

    #[test]
    fn limits_hold_for_what_is_outside_of_texts() {
        for good in [r#"[[1],{"a":1}]"#, r#""[[[[,,,,,,,,,\"[[[[""#, "1", r#"["\\",[]]"#] {
            assert!(from_slice::<Value>(good.as_bytes(), &LIMITS).is_ok(), "{good}");
        }
        for (bad, rule) in [
            ("[[[]]]", "nested more than 2 deep"),
            ("[0,0,0,0,0,0,0,0,0]", "more than the 8 values"),
            (r#"{"a":{"b":0,"c":0,"d":0,"e":0}}"#, "more than the 8 values"),
            (&" ".repeat(65), "has 65 bytes"),
            ("[", "EOF"),
        ] {
            let refusal = from_slice::<Value>(bad.as_bytes(), &LIMITS).unwrap_err();
            assert!(refusal.contains(rule), "{bad}: {refusal}");
        }
    }
}

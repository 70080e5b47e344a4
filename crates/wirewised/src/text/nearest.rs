// SPDX-License-Identifier: Apache-2.0
//! The way out where a name is not known: the one that was probably meant, as clap has it for its options.

/// As near as clap wants it.
const NEAR: f64 = 0.7;

/// `did you mean 'attack'? there are: benign, attack`
pub fn choose<S: AsRef<str>>(name: &str, known: &[S]) -> String {
    let all: Vec<_> = known.iter().map(AsRef::as_ref).collect();
    format!("{}there are: {}", did_you_mean(name, known), all.join(", "))
}

/// A question that names the nearest of the names that are known, and a blank; nothing if none is near.
pub fn did_you_mean<S: AsRef<str>>(name: &str, known: &[S]) -> String {
    let near = known.iter().map(|known| (strsim::jaro(name, known.as_ref()), known.as_ref()));
    let nearest = near.filter(|(likeness, _)| *likeness > NEAR).max_by(|a, b| a.0.total_cmp(&b.0));
    nearest.map(|(_, known)| format!("did you mean '{known}'? ")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_probably_meant_is_named() {
        let known = ["benign", "attack"];
        assert_eq!(choose("atack", &known), "did you mean 'attack'? there are: benign, attack");
        assert_eq!(choose("zzz", &known), "there are: benign, attack");
        assert_eq!(did_you_mean::<&str>("x", &[]), "");
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Whether headers of a bundle are in the C that wirewise generates: declarations, numbers and macros of its own, and nothing
//! with which a compiler reads files, emits assembly, or gives names of the data path another meaning.

use std::collections::BTreeSet;

/// Reserved identifiers that generated code has. A builtin computes; others could do anything.
const RESERVED: [&str; 18] = [
    "__always_inline",
    "__noinline",
    "__attribute__",
    "__s8",
    "__s16",
    "__s32",
    "__s64",
    "__u8",
    "__u16",
    "__u32",
    "__u64",
    "__be16",
    "__be32",
    "__be64",
    "__builtin_memset",
    "__builtin_memcpy",
    "__builtin_bswap32",
    "__builtin_popcountll",
];
const DIRECTIVES: [&str; 8] = ["define", "include", "if", "ifdef", "ifndef", "elif", "else", "endif"];
/// Of what a header defines.
const OWN: &str = "WW_";
const PUNCTUATION: &str = "!&()*+,-./:;<=>?[]^{|}~%";

/// Macros of the data path that make one token of two, such as `asm`.
const PASTE: &str = "WW_PASTE";

/// The data path: which of its headers may be included, and which names mean what it says.
pub struct DataPath<'a> {
    headers: BTreeSet<&'a str>,
    names: BTreeSet<&'a str>,
}

impl<'a> DataPath<'a> {
    /// files : names and texts.
    pub fn of(files: &[(&'a str, &'a str)]) -> Self {
        let names = files.iter().flat_map(|(_, text)| macros(text).chain(enumerators(text)));
        Self { headers: files.iter().map(|(name, _)| *name).collect(), names: names.collect() }
    }
}

fn macros(text: &str) -> impl Iterator<Item = &str> {
    let directives = text.lines().filter_map(|line| line.trim().strip_prefix('#'));
    directives.filter_map(|line| line.trim_start().strip_prefix("define")).map(|rest| word(rest.trim_start()))
}

fn enumerators(text: &str) -> impl Iterator<Item = &str> {
    let lists = text.split("enum ").skip(1).filter_map(|rest| rest.split(';').next()?.split_once('{'));
    // What else is found where there is a comma is in their values, or in comments.
    lists
        .flat_map(|(_, list)| list.split([',', '\n']))
        .map(|item| word(item.trim_start()))
        .filter(|name| !name.is_empty())
}

/// The identifier at the start.
fn word(text: &str) -> &str {
    text.split(|c: char| !is_word(c)).next().unwrap_or_default()
}

/// The error names the line and what is wrong there.
pub fn check(text: &[u8], data_path: &DataPath<'_>) -> Result<(), String> {
    let odd = |byte: &&u8| !matches!(byte, b'\n' | b'\t' | b' '..=b'~');
    if let Some(byte) = text.iter().find(odd) {
        return Err(format!("holds the byte {byte:#04x}"));
    }
    let text = String::from_utf8_lossy(text);
    // First of all, as C does: what is a comment is decided on joined lines.
    let joined = text.replace("\\\n", "");
    for sign in ["\\", "??"] {
        if joined.contains(sign) {
            return Err(format!("holds {sign}"));
        }
    }
    let code = without_comments(&joined)?;
    for (line, number) in code.split('\n').zip(first_lines(&text)) {
        check_line(line, data_path).map_err(|what| format!("line {number} {what}"))?;
    }
    Ok(())
}

/// Numbers of the lines that joined ones begin with.
fn first_lines(text: &str) -> impl Iterator<Item = usize> {
    let mut joins = false;
    text.split('\n').enumerate().filter_map(move |(index, line)| {
        let follows = std::mem::replace(&mut joins, line.ends_with('\\'));
        (!follows).then_some(index + 1)
    })
}

/// The text with a blank for each comment; lines stay.
fn without_comments(text: &str) -> Result<String, String> {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("/*").into_iter().chain(rest.find("//")).chain(rest.find('"')).min() {
        code.push_str(&rest[..at]);
        let found = &rest[at..];
        let end = if let Some(string) = found.strip_prefix('"') {
            let end = string.find(['"', '\n']).filter(|end| string.as_bytes()[*end] == b'"');
            end.map(|end| end + 2).ok_or("a string has no end")?
        } else if found.starts_with("//") {
            found.find('\n').unwrap_or(found.len())
        } else {
            found[2..].find("*/").ok_or("a comment has no end")? + 4
        };
        let (token, after) = found.split_at(end);
        if token.starts_with('"') {
            code.push_str(token);
        } else {
            code.push(' ');
            code.extend(token.chars().filter(|c| *c == '\n'));
        }
        rest = after;
    }
    code.push_str(rest);
    Ok(code)
}

fn check_line(line: &str, data_path: &DataPath<'_>) -> Result<(), String> {
    let line = line.trim();
    let Some(directive) = line.strip_prefix('#') else { return check_tokens(line) };
    let directive = directive.trim_start();
    let (name, rest) = directive.split_at(word(directive).len());
    let rest = rest.trim();
    if !DIRECTIVES.contains(&name) {
        return Err(format!("holds #{name}"));
    }
    match name {
        "include" => {
            let file = rest.strip_prefix('"').and_then(|file| file.strip_suffix('"'));
            match file.filter(|file| data_path.headers.contains(file)) {
                Some(_) => Ok(()),
                None => Err(format!("includes {rest}, not a header of the data path")),
            }
        }
        "define" if !rest.starts_with(OWN) => Err(format!("defines {rest}, and only {OWN}* is generated")),
        "define" if data_path.names.contains(word(rest)) => {
            Err(format!("defines {}, which the data path defines", word(rest)))
        }
        _ => check_tokens(rest),
    }
}

fn check_tokens(line: &str) -> Result<(), String> {
    for pair in ["%:", "##"] {
        if line.contains(pair) {
            return Err(format!("holds {pair}"));
        }
    }
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let end = if first == '"' {
            rest[1..].find('"').map_or(rest.len(), |end| end + 2)
        } else if is_word(first) {
            rest.find(|c: char| !is_word(c)).unwrap_or(rest.len())
        } else {
            1
        };
        let (token, after) = rest.split_at(end);
        let fine = match first {
            '"' => token[1..token.len() - 1].chars().all(|c| is_word(c) || "./".contains(c)),
            '_' => RESERVED.contains(&token),
            _ if is_word(first) => token != "asm" && !token.starts_with(PASTE),
            _ => PUNCTUATION.contains(first),
        };
        if !fine {
            return Err(format!("holds {token}"));
        }
        rest = after.trim_start();
    }
    Ok(())
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trust::rebuild::datapath::FILES;

    fn refusal(text: &str) -> String {
        check(text.as_bytes(), &DataPath::of(FILES)).unwrap_err()
    }

    #[test]
    fn generated_code_passes() {
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/datapath");
        let data_path = DataPath::of(FILES);
        for name in ["ww_feature_set.h", "ww_model.h"] {
            check(&std::fs::read(format!("{fixtures}/{name}")).unwrap(), &data_path).unwrap();
        }
        for text in [
            "",
            "/* gr<U+00F6><U+00DF>e */",
            "#include \"abi.h\" /* asm */\n// #include </etc/shadow>\n",
            "#define WW_TREE_0(x) \\\n\tif (x[0] /* a, packets */ <= 7LL) { \\\n\t}\n",
            "static const volatile __u64 ww_rows_0[2] SEC(\".rodata.ww_rows\") = {0x1fULL, ~0ULL};",
        ] {
            check(text.as_bytes(), &data_path).unwrap();
        }
    }

    #[test]
    fn what_reads_files_or_changes_the_data_path_is_refused() {
        for (text, what) in [
            ("#include \"/etc/shadow\"", "line 1 includes \"/etc/shadow\""),
            ("\n #  include <linux/bpf.h>", "line 2 includes <linux/bpf.h>"),
            ("#include_next \"abi.h\"", "holds #include_next"),
            ("#import \"abi.h\"", "holds #import"),
            ("#/**/include \"wirewise/../../secret\"", "not a header of the data path"),
            ("#inc\\\nlude \"/etc/shadow\"", "includes \"/etc/shadow\""),
            ("/*\n*/ #embed </etc/shadow>", "line 2 holds #embed"),
            ("int x[] = {\n#embed \"/etc/shadow\"\n};", "line 2 holds #embed"),
            ("asm(\".incbin \\\"/etc/shadow\\\"\");", "holds \\"),
            ("asm(\".incbin '/etc/shadow'\");", "holds asm"),
            ("asm(x);", "holds asm"),
            ("__asm__(\".include x\");", "holds __asm__"),
            ("__asm (x);", "holds __asm"),
            ("a\\\nsm(x);", "holds asm"),
            ("\\u0061sm(x);", "holds \\"),
            ("/* *\\\n/ asm(x); /* */", "line 1 holds asm"),
            ("/* *\\ \n/ asm(x); /* */", "holds \\"),
            ("/\\\n* x */\n\nasm(x);", "line 4 holds asm"),
            ("/\\\n/ x\nasm(x);", "line 3 holds asm"),
            ("#define WW_X(a, b) a##b\nWW_X(as, m)(x);", "line 1 holds ##"),
            ("%:include \"/etc/shadow\"", "holds %:"),
            ("??=include \"/etc/shadow\"", "holds ??"),
            ("/* *??/\n/ asm(x); /**/", "holds ??"),
            ("#if __has_include(\"/etc/shadow\")", "holds __has_include"),
            ("#if __has_embed(\"/etc/shadow\")", "holds __has_embed"),
            ("#define XDP_PASS XDP_DROP", "defines XDP_PASS"),
            ("#undef XDP_PASS", "holds #undef"),
            ("#define WW_ACTION_DROP WW_ACTION_PASS", "defines WW_ACTION_DROP, which the data path defines"),
            ("#define WW_CONFIG_OF_RUN .proven_packets = 0", "defines WW_CONFIG_OF_RUN, which"),
            ("#define WW_CONFIG_H", "defines WW_CONFIG_H, which"),
            (
                "#define WW_LIKELY(x) 1\n#define WW_VERDICT_PASS WW_VERDICT_DROP",
                "line 2 defines WW_VERDICT_PASS, which",
            ),
            ("WW_PASTE(as, m, )(x);", "holds WW_PASTE"),
            ("#define\\\n XDP_PASS XDP_DROP", "defines XDP_PASS"),
            ("#pragma clang attribute push", "holds #pragma"),
            ("_Pragma(\"once\")", "holds _Pragma"),
            ("#line 3 \"x\"", "holds #line"),
            ("int x; \r#include </etc/shadow>", "0x0d"),
            ("int gr\u{f6}sse;", "0xc3"),
            ("int x; /*", "a comment has no end"),
            ("char *x = \"a\n\";", "a string has no end"),
            ("int x = `y`;", "holds `"),
            ("\"/* \" asm(x); \" */\"", "holds"),
            ("'/*' asm(x); '*/'", "holds '"),
        ] {
            assert!(refusal(text).contains(what), "{text:?}: {}", refusal(text));
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_checked_without_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let _ = check(&bytes, &DataPath::of(&[]));
        }

        #[test]
        fn no_text_hides_a_directive(before in "[\\PC\n\t\\\\/*\"#]{0,40}", after in "[\\PC\n\t\\\\/*\"#]{0,40}") {
            // Where C would see a directive, so does the check: as a line of its own, outside of comments and strings.
            let text = format!("{before}\n#embed <x>\n{after}");
            let data_path = DataPath::of(&[]);
            let outside = check(before.as_bytes(), &data_path).is_ok() && !before.ends_with('\\');
            if outside {
                assert!(check(text.as_bytes(), &data_path).is_err(), "{text:?}");
            }
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! A refusal of the kernel verifier: the lines that decided it, and the full log in a file.

use std::io::Write;
use std::path::PathBuf;

use serde::Serialize;

use crate::error::{Error, Result};

const LOG_BEGIN: &str = "-- BEGIN PROG LOAD LOG --";
const LOG_END: &str = "-- END PROG LOAD LOG --";
const MAX_DECIDING_LINES: usize = 6;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    pub program: String,
    /// The source line and instruction last looked at, and what the verifier said about it.
    pub deciding: Vec<String>,
    /// Where the full log is.
    pub log_file: PathBuf,
}

impl Refusal {
    /// The refusal in libbpf's warnings about a load; `None` if no program was refused (a map failed, say).
    pub fn from_warnings(warnings: &[String]) -> Result<Option<Self>> {
        let Some((program, log)) = warnings.iter().find_map(|warning| split_warning(warning)) else {
            return Ok(None);
        };
        let log_file = write_log(program, log)
            .map_err(|error| Error::other(format!("cannot keep the verifier's log: {error}")))?;
        Ok(Some(Self { program: program.to_owned(), deciding: deciding_lines(log), log_file }))
    }

    pub fn into_error(self, input: &str) -> Error {
        Error::refused(format!(
            "{input}: the kernel verifier refused program {}: {} (full log: {})",
            self.program,
            self.deciding.join(" | "),
            self.log_file.display()
        ))
    }
}

/// Program name and log of libbpf's `libbpf: prog 'NAME': -- BEGIN PROG LOAD LOG -- ... -- END PROG LOAD LOG --`.
fn split_warning(warning: &str) -> Option<(&str, &str)> {
    let (head, rest) = warning.split_once(LOG_BEGIN)?;
    let program = head.split('\'').nth(1)?;
    Some((program, rest.split(LOG_END).next()?.trim()))
}

fn write_log(program: &str, log: &str) -> std::io::Result<PathBuf> {
    let safe: String = program.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let prefix = format!("wirewised-verifier-{safe}-");
    let mut file = tempfile::Builder::new().prefix(&prefix).suffix(".log").tempfile()?;
    file.write_all(log.as_bytes())?;
    file.write_all(b"\n")?;
    let (_, path) = file.keep()?;
    Ok(path)
}

/// The verifier ends with its reason, then with statistics. Before the reason stands the instruction it is about,
/// and before that (if the object has debug information) the source line.
fn deciding_lines(log: &str) -> Vec<String> {
    let lines: Vec<&str> = log.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let is_statistics = |line: &str| {
        ["processed ", "verification time ", "stack depth ", "peak_states "]
            .iter()
            .any(|s| line.starts_with(s))
    };
    let end = lines.iter().rposition(|line| !is_statistics(line)).map_or(0, |last| last + 1);
    let first_reason = lines[..end].iter().rposition(|line| !is_reason(line)).map_or(0, |last| last + 1);
    let before = &lines[..first_reason];
    let source = before.iter().rposition(|line| line.starts_with(';'));
    let instruction = before.iter().rposition(|line| is_instruction(line));
    let mut deciding: Vec<String> = Vec::new();
    // A source line heads the instructions made of it: one that follows the last instruction is about nothing.
    deciding.extend(source.filter(|s| instruction.is_none_or(|i| *s < i)).map(|i| lines[i].to_owned()));
    deciding.extend(instruction.map(|i| lines[i].to_owned()));
    let reasons = &lines[first_reason..end];
    deciding.extend(
        reasons[reasons.len().saturating_sub(MAX_DECIDING_LINES - 2)..].iter().map(|&l| l.to_owned()),
    );
    deciding
}

/// `12: (bf) r6 = r0 ; R0=...`
fn is_instruction(line: &str) -> bool {
    line.split_once(": (").is_some_and(|(number, _)| number.bytes().all(|b| b.is_ascii_digit()))
}

/// Neither an instruction, nor a source line, nor a register state (`R1=...`, `12: R0=...`, `from 3 to 7: ...`, ...).
fn is_reason(line: &str) -> bool {
    const STATE: [&str; 9] =
        [";", "from ", "mark_precise", "last_idx", "regs=", "frame", "caller", "callee", "safe"];
    let state = STATE.iter().any(|start| line.starts_with(start))
        || (line.starts_with('R') && line.split(' ').next().is_some_and(|word| word.contains('=')))
        || line.split_once(": ").is_some_and(|(number, _)| number.bytes().all(|b| b.is_ascii_digit()));
    // What it says of global functions it has finished with, or starts on.
    let progress = line.starts_with("Validating ") || line.starts_with("Func#");
    !state && !progress
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUT_OF_BOUNDS: &str = "\
0: R1=ctx() R10=fp0
; void *data = (void *)(long)ctx->data; @ fixture.c:10
0: (61) r2 = *(u32 *)(r1 +0)          ; R1=ctx() R2_w=pkt(r=0)
; return *(__u8 *)data; @ fixture.c:11
1: (71) r0 = *(u8 *)(r2 +0)
invalid access to packet, off=0 size=1, R2(id=0,off=0,r=0)
R2 offset is outside of the packet
processed 2 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0";

    #[test]
    fn the_reason_comes_with_its_source_line_and_instruction() {
        assert_eq!(
            deciding_lines(OUT_OF_BOUNDS),
            [
                "; return *(__u8 *)data; @ fixture.c:11",
                "1: (71) r0 = *(u8 *)(r2 +0)",
                "invalid access to packet, off=0 size=1, R2(id=0,off=0,r=0)",
                "R2 offset is outside of the packet",
            ]
        );
    }

    #[test]
    fn a_program_too_large_says_so() {
        let log = "17: (0f) r1 += r2\nBPF program is too large. Processed 1000001 insn\nprocessed 1000001 insns (limit 1000000) x";
        assert_eq!(
            deciding_lines(log),
            ["17: (0f) r1 += r2", "BPF program is too large. Processed 1000001 insn"]
        );
    }

    #[test]
    fn functions_already_found_safe_decide_nothing() {
        let log = "9: (95) exit\nFunc#1 ('ww_trees_1') is safe for any args that match its prototype\n\
                   combined stack size of 2 calls is 768. Too large\nprocessed 9 insns (limit 1000000) x";
        assert_eq!(deciding_lines(log), ["9: (95) exit", "combined stack size of 2 calls is 768. Too large"]);
    }

    #[test]
    fn any_log_gives_lines_without_a_panic() {
        for log in ["", "processed 1 insns", ";", "R1=1", "x: (", ": (", "1: R0=1\n\n;a"] {
            deciding_lines(log);
        }
    }

    #[test]
    fn libbpf_warnings_hold_program_and_log() {
        let warning = "libbpf: prog 'ww_main': -- BEGIN PROG LOAD LOG --\nreason\n-- END PROG LOAD LOG --\n";
        assert_eq!(split_warning(warning), Some(("ww_main", "reason")));
        assert_eq!(split_warning("libbpf: prog 'ww_main': BPF program load failed: -EACCES"), None);
    }
}

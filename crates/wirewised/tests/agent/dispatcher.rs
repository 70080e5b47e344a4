// SPDX-License-Identifier: Apache-2.0
//! A dispatcher of libxdp. Beside its own programs, on kernels that allow extensions: tests/matrix/dispatcher.py.

use crate::lab::{ATTACK, BENIGN, INTERFACE, Lab};
use crate::swap::lenient;

const RUN: &str = "run --bundle b.wirewise --policy p.yaml --mode enforce --yes --interface";

#[test]
fn a_run_priority_makes_a_dispatcher_or_the_kernel_says_why_not() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    lab.write("c.wirewise", &lenient());
    let run = format!("{RUN} {INTERFACE} --order 20");
    if lab.run(&run).status.code() == Some(3) {
        let error = lab.error(&run, 3);
        assert!(error.contains("BPF_PROG_TYPE_EXT") && error.contains("--plane tc-ingress"), "{error}");
        return lab.assert_untouched();
    }
    let verdicts = || (lab.send(1000, BENIGN, 3), lab.send(1000, ATTACK, 3));
    assert_eq!(lab.status()["run_priority"], 20);
    assert_eq!(verdicts(), (3, 0));
    lab.json("swap --bundle c.wirewise");
    assert_eq!(verdicts(), (3, 3));
    lab.json("rollback");
    assert_eq!(verdicts(), (3, 0));
    lab.error(&format!("{RUN} {INTERFACE} --order 30"), 1);
    lab.ok(&format!("detach --interface {INTERFACE}"));
    assert_eq!(verdicts(), (3, 3));
    lab.assert_untouched();
}

#[test]
fn a_run_priority_is_for_xdp() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    let error = lab.error(&format!("{RUN} {INTERFACE} --plane tc-ingress --order 20"), 2);
    assert!(error.contains("run priorities are for dispatchers of libxdp"), "{error}");
    let refused = lab.run(&format!("{RUN} {INTERFACE} --order second"));
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("first, last, or a run priority"));
}

// SPDX-License-Identifier: Apache-2.0
//! That tests run what they are meant to: optimised code that checks itself.

use std::hint::black_box;
use std::panic::{UnwindSafe, catch_unwind};

fn panics(work: impl FnOnce() + UnwindSafe) -> bool {
    catch_unwind(work).is_err()
}

#[test]
fn tests_are_built_with_all_checks() {
    const HOW: &str = "run the tests as `make test` does: cargo test --profile bench";
    assert!(
        panics(|| debug_assert!(black_box(false))),
        "no debug assertions, nor Cranelift's verifier; {HOW}"
    );
    assert!(panics(|| _ = black_box(black_box(u8::MAX) + black_box(1))), "no overflow checks; {HOW}");
}

//! Any JSON as a receipt: a typed error, or a receipt that is the same when written and read again, and whose requests
//! are refused or run.
#![no_main]

#[path = "../speaking.rs"]
mod speaking;

use std::sync::LazyLock;

use gristmill_engine::Engine;
use gristmill_engine::receipt::Receipt;
use libfuzzer_sys::fuzz_target;

/// Requests of a receipt that are run.
const MOST: usize = 4;

/// The engine of all inputs.
static ENGINE: LazyLock<Engine> = LazyLock::new(speaking::start);

fuzz_target!(init: speaking::allow_caught_panics(), |input: &[u8]| {
    let Ok(json) = serde_json::from_slice(input) else { return };
    let receipt = match Receipt::read(&json) {
        Ok(receipt) => receipt,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let written = serde_json::to_value(&receipt).expect("a receipt is JSON");
    let again = Receipt::read(&written).expect("a written receipt can be read");
    assert_eq!(serde_json::to_value(&again).expect("a receipt is JSON"), written);
    for request in receipt.requests().take(MOST) {
        if let Ok(pieces) = ENGINE.generate(request) {
            pieces.for_each(drop);
        }
    }
});

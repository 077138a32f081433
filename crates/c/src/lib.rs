//! The C interface: `libgristmill`, whose header is `crates/c/gristmill.h`.
//!
//! A request is JSON of the server's interfaces, and runs through the server's router without a port. So the fields of a
//! request, their checks and their error messages are those of `gristmill serve`, and a new field changes no function here.
//!
//! ```text
//! border ─► engine ─► router of gristmill-server
//!    │        ▲
//!    └► request: one thread ─► sse ─► event ─► callback
//! ```
//! - `abi` contains the types of the header, `border` its functions, and `open` the arguments that become an engine.
//! - `failure` is a status with a message, which `gm_last_error` returns on the thread of the call.
//! - `request` runs a request on a thread of its own, which is also the thread of its callbacks.
//!
//! # Unsafe code
//!
//! Only `border` is unsafe: it reads pointers of the caller, and calls the callback. *A function of `border` catches panics,
//! because unwinding into C is undefined;* tested by `a_panic_becomes_a_status`.

#![deny(unsafe_code)]

mod abi;
mod border;
mod engine;
mod event;
mod failure;
mod open;
mod request;
mod sse;

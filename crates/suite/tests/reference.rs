//! The op suite on the reference itself: a case that the reference does not pass is wrong.

use gristmill_kernels::reference::Reference;
use gristmill_suite::suite::{Repeats, Suite};
use gristmill_suite::testing::{DRAWN_FORMATS, run_part, seed};

fn run(part: &str) {
    let suite = Suite::new(&|_| Ok(Reference::backend()), seed()).expect("the reference is always there");
    run_part(part, "reference", suite.drawn_formats(DRAWN_FORMATS).repeated(Repeats::None));
}

macro_rules! parts {
    ($($part:ident = $module:ident::$function:ident,)*) => {
        $(#[test] fn $part() { run(stringify!($part)); })*
    };
}

gristmill_suite::with_parts!(parts);

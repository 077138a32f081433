//! What the cases of all refusals use.

pub(super) use super::super::common::*;
use crate::guarded::Element;
pub(super) use crate::guarded::buffer;
pub(super) use gristmill_kernels::Error;
use gristmill_kernels::tensor::Buffer;

/// The kinds of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) enum Kind {
    View,
    Shape,
    Range,
    Id,
    Bytes,
    Foreign,
    Layout,
    OutOfMemory,
}

pub(in crate::ops) fn kind_of(error: &Error) -> Option<Kind> {
    match error {
        Error::View { .. } => Some(Kind::View),
        Error::Shape { .. } | Error::TooSmall { .. } => Some(Kind::Shape),
        Error::ForeignLayout { .. } => Some(Kind::Layout),
        Error::Range { .. } => Some(Kind::Range),
        Error::Id { .. } => Some(Kind::Id),
        Error::Bytes { .. } | Error::Columns { .. } => Some(Kind::Bytes),
        Error::ForeignBuffer { .. } => Some(Kind::Foreign),
        Error::OutOfMemory { .. } => Some(Kind::OutOfMemory),
        _ => None,
    }
}

/// Whether the device checks ids in its own memory: it accepts the call, writes the other rows, and the next download
/// reports the id.
pub(in crate::ops) fn found_late(b: &Backend, kind: Kind) -> bool {
    kind == Kind::Id && b.device() != DeviceId::Cpu
}

/// Fails unless a call returned an error of this kind, with a message. See [`found_late`].
pub(in crate::ops) fn expect<T>(suite: &Suite, case: &str, kind: Kind, result: gristmill_kernels::Result<T>) {
    let result = match result {
        Ok(_) if kind == Kind::Id => {
            buffer(suite.backend(), &[0_u32]).view(1, 1).and_then(|word| suite.backend().download(word, &mut [0]))
        }
        other => other.map(drop),
    };
    match result {
        Ok(()) => suite.fail(&case, "was accepted"),
        Err(error) if kind_of(&error) != Some(kind) => suite.fail(&case, format_args!("{kind:?}, not {error:?}")),
        Err(error) => assert!(error.to_string().len() > 10, "{case}: says only {error}"),
    }
}

/// Fails unless outputs of a refused call are still poison; where the id is found late, only their guards are.
pub(in crate::ops) fn assert_refused<T: Element>(b: &Backend, case: &str, kind: Kind, out: &Guarded<T>) {
    if found_late(b, kind) {
        out.read(b);
    } else {
        out.assert_untouched(b, case);
    }
}

/// Fails unless a call on a poisoned output returns an error of this kind and writes nothing.
pub(in crate::ops) fn refused<T: Element>(
    suite: &Suite,
    case: &str,
    kind: Kind,
    (rows, cols): (usize, usize),
    call: impl FnOnce(&Backend, &mut Guarded<T>) -> gristmill_kernels::Result<()>,
) {
    let b = suite.backend();
    let mut out = Guarded::poisoned(b, rows, cols, Guard::ODD);
    expect(suite, case, kind, call(b, &mut out));
    assert_refused(b, case, kind, &out);
}

/// A matrix of ones.
pub(in crate::ops) fn ones(b: &Backend, rows: usize, cols: usize) -> Guarded<f32> {
    Guarded::of(b, &vec![1.0; rows * cols], rows, cols, Guard::ODD)
}

/// A column of ids.
pub(in crate::ops) fn ids(b: &Backend, ids: &[u32]) -> Guarded<u32> {
    Guarded::of(b, ids, ids.len(), 1, Guard::ODD)
}

/// A vector of ones.
pub(in crate::ops) fn vector(b: &Backend, len: usize) -> Buffer<f32> {
    buffer(b, &vec![1.0; len])
}

/// Runs with these words.
pub(in crate::ops) fn runs_of(b: &Backend, words: &[u32], count: usize) -> Runs {
    Runs { list: buffer(b, words), count }
}

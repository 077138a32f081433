//! Argmax and sampling.

use super::super::sample;
use super::common::*;

/// [`Argmax`] and [`Sample`].
pub fn sampling(suite: &Suite) {
    let b = suite.backend();
    let x = ones(b, 3, 4);
    refused(suite, "argmax: rows", Kind::Shape, (2, 1), |b, out| b.run(Argmax { x: x.view(), out: out.view_mut() }));
    refused(suite, "argmax: columns", Kind::Shape, (3, 2), |b, out| b.run(Argmax { x: x.view(), out: out.view_mut() }));
    let empty = ones(b, 3, 0);
    refused(suite, "argmax: of nothing", Kind::Range, (3, 1), |b, out| {
        b.run(Argmax { x: empty.view(), out: out.view_mut() })
    });
    parameters(suite);
}

/// Parameters of [`Sample`], and the shapes of what it reads and writes.
fn parameters(suite: &Suite) {
    let b = suite.backend();
    let options = SamplingOptions { temperature: 1.0, ..SamplingOptions::NONE };
    let plain = Sampling { options, ..sample::plain() };
    let check = |case: &str, kind, bad: Sampling| {
        refused(suite, case, kind, (2, 1), |b, out: &mut Guarded<u32>| {
            let mut logits = Guarded::<f32>::poisoned(b, 2, 40, Guard::ODD);
            // The first row is in order: it must not be drawn either.
            let result = b.run(Sample { logits: logits.view_mut(), parameters: &[plain, bad], out: out.view_mut() });
            logits.assert_untouched(b, case);
            result
        });
    };
    // Whole numbers saturate, so all that can be written is in range.
    for setting in SETTINGS.iter().filter(|setting| !setting.whole) {
        for value in [f64::NAN, f64::INFINITY, setting.most * 1.5, setting.least - setting.most] {
            let mut options = options;
            (setting.set)(&mut options, value);
            check(&format!("sample: {} {value}", setting.name), Kind::Range, Sampling { options, ..plain });
        }
    }
    check("sample: biased token", Kind::Id, Sampling { bias: &[(40, 1.0)], ..plain });
    check("sample: NaN bias", Kind::Range, Sampling { bias: &[(1, f32::NAN)], ..plain });
    check("sample: counted token", Kind::Id, Sampling { counts: &[(u32::MAX, 1)], ..plain });
    check("sample: short mask", Kind::Shape, Sampling { mask: Some(&[1]), ..plain });
    check("sample: long mask", Kind::Shape, Sampling { mask: Some(&[1, 0, 0]), ..plain });
    // Bits past the vocabulary allow nothing.
    check("sample: empty mask", Kind::Range, Sampling { mask: Some(&[0, 0xffff_ff00]), ..plain });
    refused(suite, "sample: rows", Kind::Shape, (3, 1), |b, out: &mut Guarded<u32>| {
        b.run(Sample {
            logits: Guarded::poisoned(b, 2, 40, Guard::ODD).view_mut(),
            parameters: &[plain; 2],
            out: out.view_mut(),
        })
    });
    refused(suite, "sample: parameters", Kind::Shape, (2, 1), |b, out: &mut Guarded<u32>| {
        b.run(Sample {
            logits: Guarded::poisoned(b, 2, 40, Guard::ODD).view_mut(),
            parameters: &[plain; 3],
            out: out.view_mut(),
        })
    });
    let none = b.run(Sample {
        logits: Guarded::poisoned(b, 1, 0, Guard::ODD).view_mut(),
        parameters: &[plain],
        out: Guarded::<u32>::poisoned(b, 1, 1, Guard::ODD).view_mut(),
    });
    expect(suite, "sample: no vocabulary", Kind::Range, none);
}

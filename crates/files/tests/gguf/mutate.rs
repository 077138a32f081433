//! Random damage to valid files: no panic, bounded time and memory, and what still reads can be read in full.

use std::time::{Duration, Instant};

use gristmill_files::gguf::{GgufError, GgufFile};
use proptest::prelude::*;

use crate::alloc::peak;
use crate::golden::golden;
use crate::hostile::memory_bound;
use crate::rewrite;

/// One act of damage; positions are taken modulo the length.
#[derive(Debug, Clone)]
enum Damage {
    Truncate(usize),
    Byte(usize, u8),
    Flip(usize, u8),
    U32(usize, u32),
    U64(usize, u64),
    Remove(usize, usize),
    Repeat(usize, usize),
}

impl Damage {
    fn apply(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let len = bytes.len();
        let write = |bytes: &mut Vec<u8>, at: usize, new: &[u8]| {
            bytes.iter_mut().skip(at % len).zip(new).for_each(|(b, n)| *b = *n);
        };
        let range = |at: usize, n: usize| at % len..(at % len + n).min(len);
        match *self {
            Damage::Truncate(n) => bytes.truncate(n % len),
            Damage::Byte(at, v) => write(bytes, at, &[v]),
            Damage::Flip(at, bit) => bytes[at % len] ^= 1 << (bit % 8),
            Damage::U32(at, v) => write(bytes, at, &v.to_le_bytes()),
            Damage::U64(at, v) => write(bytes, at, &v.to_le_bytes()),
            Damage::Remove(at, n) => drop(bytes.drain(range(at, n))),
            Damage::Repeat(at, n) => {
                let copy = bytes[range(at, n)].to_vec();
                bytes.splice(at % len..at % len, copy);
            }
        }
    }
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = || any::<usize>();
    let number = prop_oneof![
        0u64..20,
        Just(u64::MAX),
        Just(1 << 60),
        Just(1 << 32),
        Just(u64::from(u32::MAX)),
        Just(i64::MAX as u64),
        any::<u64>(),
    ];
    prop_oneof![
        1 => at().prop_map(Damage::Truncate),
        2 => (at(), any::<u8>()).prop_map(|(at, v)| Damage::Byte(at, v)),
        4 => (at(), any::<u8>()).prop_map(|(at, v)| Damage::Flip(at, v)),
        2 => (at(), 0u32..45).prop_map(|(at, v)| Damage::U32(at, v)),
        3 => (at(), number).prop_map(|(at, v)| Damage::U64(at, v)),
        1 => (at(), 1usize..64).prop_map(|(at, n)| Damage::Remove(at, n)),
        1 => (at(), 1usize..64).prop_map(|(at, n)| Damage::Repeat(at, n)),
    ]
}

proptest! {
    // No file of past failures: a case that matters becomes a line in hostile.rs.
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_files_do_no_harm(
        name in prop::sample::select(vec!["all_types.gguf", "aligned.gguf", "version2.gguf"]),
        damages in prop::collection::vec(damage(), 1..5),
    ) {
        let mut bytes = std::fs::read(golden(name)).unwrap();
        for damage in &damages {
            damage.apply(&mut bytes);
        }
        let start = Instant::now();
        let (result, peak) = peak(|| GgufFile::from_bytes(bytes.as_slice()));
        let taken = start.elapsed();
        let bound = bytes.len() + memory_bound(bytes.len());
        // Milliseconds at most; the rest is for a machine that is busy.
        prop_assert!(taken < Duration::from_secs(10), "{taken:?}");
        prop_assert!(peak <= bound, "{peak} bytes allocated, {bound} allowed");
        match result {
            Ok(file) => {
                // Names that only the reader accepts are not for the writer.
                let fit = |name: &str| !name.is_empty() && name.len() < 64;
                let names = file.tensors().iter().map(|t| t.name.as_str());
                if names.chain(file.metadata().iter().map(|(k, _)| k)).all(fit) {
                    let once = rewrite(&file);
                    prop_assert!(rewrite(&GgufFile::from_bytes(once.as_slice()).unwrap()) == once);
                }
            }
            Err(GgufError::Format { source, .. }) => {
                prop_assert!(source.offset <= bytes.len() as u64, "{source}");
                prop_assert!(!source.to_string().is_empty());
            }
            Err(GgufError::Metadata { .. } | GgufError::PartInMemory(_)) => {}
            Err(other) => prop_assert!(false, "{other:?}"),
        }
    }
}

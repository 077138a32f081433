//! Headers of safetensors files: whatever the bytes, what is returned lies within them and does not overlap.
#![no_main]

use gristmill_files::safetensors;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    if let Ok(tensors) = safetensors::read(file) {
        let mut end = None;
        for tensor in &tensors {
            assert!(file.get(tensor.data.clone()).is_some());
            assert!(end.is_none_or(|end| end == tensor.data.start));
            end = Some(tensor.data.end);
        }
        assert!(end.is_none_or(|end| end == file.len()));
    }
});

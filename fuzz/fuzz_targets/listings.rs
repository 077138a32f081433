//! Any bytes as a listing of the hub and as the name of a model: a typed error, or paths that stay in their folder and a
//! name that is the same when written and read again.
#![no_main]

use gristmill_hub::{Listing, Reference, choices, choose_by_name, tag_of};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let names =
        ["a/b", "a/b:Q4_K_M", "a/b:m-00001-of-00002.gguf"].map(|name| name.parse::<Reference>().expect("a name"));
    match Listing::read(input, "http://hub/") {
        Ok(listing) => {
            for file in &listing.files {
                assert!(
                    !file.path.starts_with('/') && file.path.split('/').all(|part| part != ".." && !part.is_empty())
                );
                assert!(tag_of(&file.path).is_none_or(|tag| !tag.is_empty()));
            }
            for name in &names {
                if let Ok(picked) = choose_by_name(&listing.files, name) {
                    let all = choices(&listing.files);
                    assert!(all.contains(&picked.model));
                    assert_eq!(all.len(), 1 + picked.others.len() + picked.companions.len());
                }
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if let Ok(Ok(reference)) = std::str::from_utf8(input).map(str::parse::<Reference>) {
        assert_eq!(reference.to_string().parse::<Reference>().expect("a written name"), reference);
    }
});

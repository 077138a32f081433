//! The sum that the hub lists for a file, which verifies a download and names it in the cache.

use std::fmt::{self, Display, Formatter};
use std::io::{self, Read};

use sha1::Sha1;
use sha2::{Digest, Sha256};

/// Bytes of one read.
const BUFFER: usize = 1 << 20;

/// A sum of a file's content, in hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sum {
    /// Of a large file.
    Sha256(String),
    /// Of a file that the hub keeps in Git itself: SHA-1 of a header with the size, and the content.
    Git(String),
}

impl Sum {
    /// The sum, if the text has the form of one.
    pub(crate) fn sha256(text: &str) -> Option<Sum> {
        is_hex(text, 64).then(|| Sum::Sha256(text.to_ascii_lowercase()))
    }

    /// The same of a file in Git.
    pub(crate) fn git(text: &str) -> Option<Sum> {
        is_hex(text, 40).then(|| Sum::Git(text.to_ascii_lowercase()))
    }

    /// The digits: the name of the content in the cache.
    pub fn digits(&self) -> &str {
        match self {
            Sum::Sha256(digits) | Sum::Git(digits) => digits,
        }
    }

    /// `SHA-256`, or `SHA-1 of Git`.
    pub fn method(&self) -> &'static str {
        match self {
            Sum::Sha256(_) => "SHA-256",
            Sum::Git(_) => "SHA-1 of Git",
        }
    }

    /// The sum of this kind of a content with `size` bytes. `read` gets the number of bytes after each read.
    pub(crate) fn of_content(&self, content: impl Read, size: u64, read: impl FnMut(u64)) -> io::Result<Sum> {
        match self {
            Sum::Sha256(_) => Ok(Sum::Sha256(digest(Sha256::new(), content, read)?)),
            Sum::Git(_) => {
                let start = Sha1::new().chain_update(format!("blob {size}\0"));
                Ok(Sum::Git(digest(start, content, read)?))
            }
        }
    }
}

impl Display for Sum {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        write!(f, "{} {}", self.method(), self.digits())
    }
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn digest(mut sum: impl Digest, mut content: impl Read, mut read: impl FnMut(u64)) -> io::Result<String> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let count = content.read(&mut buffer)?;
        if count == 0 {
            return Ok(sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect());
        }
        sum.update(&buffer[..count]);
        read(count as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sums that `sha256sum` and `git hash-object` print.
    #[test]
    fn sums_are_those_of_other_programs() {
        let text = b"what is up, doc?";
        for (kind, expected) in [
            (Sum::Sha256(String::new()), "SHA-256 af4e812d13b4eae6da91024f15f7679dae49d40aee3fb4c7216b56d04193f46c"),
            (Sum::Git(String::new()), "SHA-1 of Git bd9dbf5aae1a3862dd1526723246b20206e5fc37"),
        ] {
            let mut bytes = 0;
            let sum = kind.of_content(&text[..], text.len() as u64, |count| bytes += count).expect("it is read");
            assert_eq!((sum.to_string().as_str(), bytes), (expected, 16));
        }
    }
}

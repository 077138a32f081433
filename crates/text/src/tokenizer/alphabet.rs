//! The byte alphabet of GPT-2's byte-level BPE: a printable character for each of the 256 bytes.
//!
//! Printable Latin-1 characters stand for themselves; the other 68 bytes are numbered upwards from U+0100, so that a
//! space is `Ġ` and a newline `Ċ`. (Radford et al. 2019, `bytes_to_unicode` in the published `encoder.py`.)

/// The characters of all bytes, indexed by byte.
pub(super) fn byte_chars() -> [char; 256] {
    let mut next = 0x100;
    std::array::from_fn(|byte| {
        let byte = byte as u8;
        if matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff) {
            byte as char
        } else {
            let shifted = char::from_u32(next).unwrap_or(char::REPLACEMENT_CHARACTER);
            next += 1;
            shifted
        }
    })
}

/// The byte that a character stands for, if it is in the alphabet.
pub(super) fn char_byte(c: char) -> Option<u8> {
    match c as u32 {
        code @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => Some(code as u8),
        code @ 0x100..=0x120 => Some((code - 0x100) as u8),
        code @ 0x121..=0x142 => Some((code - 0x121 + 0x7f) as u8),
        0x143 => Some(0xad),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_is_a_bijection() {
        let chars = byte_chars();
        for (byte, &c) in chars.iter().enumerate() {
            assert_eq!(char_byte(c), Some(byte as u8), "{c:?}");
        }
        let outside = (0..=0x10ffff).filter_map(char::from_u32).filter(|c| !chars.contains(c)).find_map(char_byte);
        assert_eq!(outside, None);
        assert_eq!((chars[b' ' as usize], chars[b'\n' as usize], chars[b'a' as usize]), ('Ġ', 'Ċ', 'a'));
    }
}

//! Which bytes of a normal form come from which bytes of the text.

use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

/// Normal form C of a text, and the bytes of it, in ascending order, that no control token may include: those of
/// `barred` bytes of the text, and those that the normalisation changed. Otherwise a text could contain a control token
/// in a form that nobody looks for.
pub(super) fn nfc_with_barred(text: &str, barred: &[usize]) -> (String, Vec<usize>) {
    let mut normal = String::with_capacity(text.len());
    let mut places = Vec::new();
    let mut start = 0;
    while start < text.len() {
        let end = end_of_segment(text, start);
        let segment = &text[start..end];
        let at = normal.len();
        normal.extend(segment.nfc());
        let made = &normal[at..];
        if made == segment {
            let first = barred.partition_point(|&byte| byte < start);
            let within = barred[first..].iter().take_while(|&&byte| byte < end);
            places.extend(within.map(|byte| byte - start + at));
        } else {
            places.extend(made.char_indices().map(|(place, _)| place + at));
        }
        start = end;
    }
    (normal, places)
}

/// The end of the characters that are normalised together: no ASCII character merges with one before it.
fn end_of_segment(text: &str, start: usize) -> usize {
    let more = text.as_bytes()[start..].iter().skip(1).position(u8::is_ascii);
    more.map_or(text.len(), |more| start + 1 + more)
}

/// Whether a text may have another normal form C.
pub(super) fn nfc_may_change(text: &str) -> bool {
    is_nfc_quick(text.chars()) != IsNormalized::Yes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_followed_into_the_normal_form() {
        // "e" and an acute become one character; the Kelvin sign becomes K.
        let text = "ab\u{65}\u{301}<x>\u{212a}";
        let (normal, places) = nfc_with_barred(text, &[0, 5]);
        assert_eq!(normal, text.nfc().collect::<String>());
        // a, é, <, and both of the segment ">K".
        assert_eq!(places, [0, 2, 4, 6, 7]);
        assert_eq!(nfc_with_barred("", &[]), (String::new(), vec![]));
        assert!(!nfc_may_change("ab<x>") && nfc_may_change(text));
    }
}

//! Draft tokens that are looked up in the text (Saxena, *Prompt Lookup Decoding*, 2023).

/// Lengths of the endings of a text that are looked up, the longest first.
const ENDINGS: [usize; 3] = [4, 3, 2];

/// The `count` tokens that followed the text's ending when it last occurred; none if it is new.
pub(crate) fn look_up(text: &[u32], count: usize) -> Vec<u32> {
    let Some(start) = (count > 0).then(|| after_last_occurrence(text)).flatten() else { return Vec::new() };
    let mut draft = Vec::with_capacity(count);
    for at in start..start + count {
        // A text that repeats itself continues in its draft.
        draft.push(*text.get(at).unwrap_or_else(|| &draft[at - text.len()]));
    }
    draft
}

/// The position behind the last earlier occurrence of a text's ending.
fn after_last_occurrence(text: &[u32]) -> Option<usize> {
    let before = &text[..text.len().saturating_sub(1)];
    ENDINGS.into_iter().filter(|&length| length < text.len()).find_map(|length| {
        let ending = &text[text.len() - length..];
        Some(before.windows(length).rposition(|window| window == ending)? + length)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_followed_the_longest_ending_is_drafted() {
        // (1, 2, 3) was followed by 4, 5; the later (2, 3) by 9.
        assert_eq!(look_up(&[1, 2, 3, 4, 5, 2, 3, 9, 1, 2, 3], 2), [4, 5]);
        assert_eq!(look_up(&[7, 2, 3, 4, 7, 2, 3, 9, 1, 2, 3], 3), [9, 1, 2]);
        // A period continues.
        assert_eq!(look_up(&[6, 1, 2, 1, 2, 1, 2], 5), [1, 2, 1, 2, 1]);
        assert_eq!(look_up(&[5, 5, 5], 3), [5, 5, 5]);
        for text in [&[][..], &[1], &[1, 1], &[1, 2, 3], &[1, 2, 9, 2]] {
            assert_eq!(look_up(text, 4), [0; 0], "{text:?}");
        }
        assert_eq!(look_up(&[5, 5, 5], 0), [0; 0]);
    }
}

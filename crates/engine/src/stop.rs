//! Stop strings: text is held back as long as it may be the start of one.

/// Watches the text of one generation for stop strings, which may start and end anywhere in a piece.
///
/// Text that could be the start of a stop string is withheld until the next text decides; so no part of a stop
/// string is ever given out, and all other text is.
#[derive(Debug, Clone, Default)]
pub(super) struct StopStrings {
    stops: Vec<String>,
    /// Withheld: the longest suffix of the text so far that starts a stop string.
    held: String,
}

/// The result of a piece of text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Scan {
    /// Text to give out, possibly empty.
    Text(String),
    /// The stop string of this index was completed; this is the text before it.
    Stopped(String, usize),
}

impl StopStrings {
    /// Watches for these strings, but for empty ones.
    pub(super) fn new(stops: &[String]) -> StopStrings {
        StopStrings { stops: stops.to_vec(), held: String::new() }
    }

    /// The stop string of an index.
    pub(super) fn text(&self, index: usize) -> &str {
        self.stops.get(index).map_or("", String::as_str)
    }

    /// Takes the next text. After [`Scan::Stopped`] nothing more is expected.
    pub(super) fn push(&mut self, text: &str) -> Scan {
        self.held.push_str(text);
        // The first to start wins, whichever was completed first in one piece of text.
        let stops = || self.stops.iter().enumerate().filter(|(_, stop)| !stop.is_empty());
        if let Some((at, index)) = stops().filter_map(|(index, stop)| Some((self.held.find(stop)?, index))).min() {
            self.held.truncate(at);
            return Scan::Stopped(std::mem::take(&mut self.held), index);
        }
        let keep = stops().map(|(_, stop)| overlap(&self.held, stop)).max().unwrap_or(0);
        let kept = self.held.split_off(self.held.len() - keep);
        Scan::Text(std::mem::replace(&mut self.held, kept))
    }

    /// Ends the text and returns what was withheld.
    pub(super) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// The length in bytes of the longest suffix of `text` that is a proper prefix of `stop`.
fn overlap(text: &str, stop: &str) -> usize {
    let most = text.len().min(stop.len() - 1);
    (1..=most).rev().find(|&n| stop.is_char_boundary(n) && text.ends_with(&stop[..n])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let stops: Vec<String> = stops.iter().map(|s| s.to_string()).collect();
        let mut scan = StopStrings::new(&stops);
        let (mut out, mut seen) = (String::new(), String::new());
        for piece in pieces {
            seen += piece;
            match scan.push(piece) {
                Scan::Text(text) => out += &text,
                Scan::Stopped(text, index) => {
                    assert!(seen[out.len() + text.len()..].starts_with(&stops[index]), "{} of {seen:?}", stops[index]);
                    return (out + &text, true);
                }
            }
            // Nothing is out that starts a stop string, as far as can be seen.
            for (at, _) in out.char_indices() {
                assert!(
                    stops.iter().all(|stop| stop.is_empty() || !stop.starts_with(&seen[at..])),
                    "{out:?} of {seen:?}"
                );
            }
        }
        (out + &scan.finish(), false)
    }

    #[test]
    fn across_pieces() {
        assert_eq!(run(&["END"], &["a E", "N", "D b"]), ("a ".into(), true));
        assert_eq!(run(&["END"], &["a E", "N", "d b"]), ("a ENd b".into(), false));
        assert_eq!(run(&["END"], &["a EN"]), ("a EN".into(), false));
        assert_eq!(run(&["aab"], &["a", "a", "a", "b", "x"]), ("a".into(), true));
        assert_eq!(run(&["é!"], &["caf", "é", "!"]), ("caf".into(), true));
        assert_eq!(run(&["", "x"], &["ax"]), ("a".into(), true));
        assert_eq!(run(&[], &["a", "b"]), ("ab".into(), false));
        // The longer one started first, though the shorter one is complete.
        assert_eq!(run(&["bc", "abcd"], &["xabcd"]), ("x".into(), true));
    }

    proptest! {
        #[test]
        fn equals_search_in_the_whole_text(
            text in "[abé]{0,40}",
            stops in prop::collection::vec("[abé]{1,4}", 0..3),
            cuts in prop::collection::vec(1usize..5, 40)
        ) {
            let chars: Vec<char> = text.chars().collect();
            let mut pieces = Vec::new();
            let mut at = 0;
            for cut in cuts {
                let end = (at + cut).min(chars.len());
                pieces.push(chars[at..end].iter().collect::<String>());
                at = end;
            }
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let (out, stopped) = run(&stops, &pieces.iter().map(String::as_str).collect::<Vec<_>>());
            let whole: String = chars[..at].iter().collect();
            // The first stop string to be completed ends the text; of those completed by one piece, the first to start.
            if stopped {
                prop_assert!(stops.iter().any(|stop| whole[out.len()..].starts_with(stop)));
                prop_assert!(whole.starts_with(&out) && stops.iter().all(|stop| !out.contains(stop)));
            } else {
                prop_assert_eq!(&out, &whole);
                prop_assert!(stops.iter().all(|stop| !whole.contains(stop)));
            }
        }
    }
}

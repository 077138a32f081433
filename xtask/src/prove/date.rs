//! Date, commit and machine of a proof, for the headings of its page.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::root;

/// The date, and the commit as [`commit`] names it.
pub(crate) fn date_and_commit() -> String {
    format!("{}, commit {}", date(), commit().as_deref().unwrap_or("unknown"))
}

/// Year-month-day, UTC.
pub(crate) fn date() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs());
    let (year, month, day) = civil((seconds / 86_400) as i64);
    format!("{year}-{month:02}-{day:02}")
}

/// The commit's short id, with "-dirty" if the working tree differs in more than what proofs write.
pub(super) fn commit() -> Option<String> {
    let git = |words: &[&str]| Command::new("git").args(words).current_dir(root()).output().ok();
    let short = git(&["rev-parse", "--short", "HEAD"]).filter(|git| git.status.success())?;
    let short = String::from_utf8_lossy(&short.stdout).trim().to_owned();
    let clean = git(&["diff", "--quiet", "HEAD", "--", ".", ":!docs"]).is_some_and(|git| git.status.success());
    Some(if clean { short } else { format!("{short}-dirty") })
}

/// Days since 1970-01-01 to a date of the Gregorian calendar (Hinnant, "chrono-compatible low-level date algorithms").
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year + era * 400 + i64::from(month <= 2), month, of_year - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::civil;

    #[test]
    fn known_dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(20_453), (2025, 12, 31));
        assert_eq!(civil(20_454), (2026, 1, 1));
    }
}

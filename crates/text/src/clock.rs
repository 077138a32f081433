//! Dates and times as text, in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

const MONTHS: &str = "January February March April May June July August September October November December";
/// From the day of the week of 1970-01-01.
const DAYS: &str = "Thursday Friday Saturday Sunday Monday Tuesday Wednesday";

/// The time as `strftime` formats it in the C locale.
///
/// # Errors
/// The directive that is not known.
pub fn format(time: SystemTime, format: &str) -> Result<String, String> {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let name = |names: &'static str, index: u64| names.split(' ').nth(index as usize).unwrap_or_default();
    let (month_name, day_name) = (name(MONTHS, month - 1), name(DAYS, days % 7));
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let text = match chars.next() {
            Some('Y') => year.to_string(),
            Some('y') => format!("{:02}", year % 100),
            Some('m') => format!("{month:02}"),
            Some('d') => format!("{day:02}"),
            Some('B') => month_name.to_owned(),
            Some('b') => month_name.chars().take(3).collect(),
            Some('A') => day_name.to_owned(),
            Some('a') => day_name.chars().take(3).collect(),
            Some('H') => format!("{:02}", second / 3600),
            Some('I') => format!("{:02}", (second / 3600 + 11) % 12 + 1),
            Some('p') => if second < 43_200 { "AM" } else { "PM" }.to_owned(),
            Some('M') => format!("{:02}", second / 60 % 60),
            Some('S') => format!("{:02}", second % 60),
            Some('F') => format!("{year}-{month:02}-{day:02}"),
            Some('T') => format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60),
            Some('Z') => "UTC".to_owned(),
            Some('%') => "%".to_owned(),
            other => return Err(format!("%{}", other.map(String::from).unwrap_or_default())),
        };
        out.push_str(&text);
    }
    Ok(out)
}

/// Year, month and day of a number of days since 1970-01-01 (Gregorian calendar; years begin in March here, so that
/// the leap day is the last).
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let cases = [
            (0, "1970-01-01 00:00:00 Thursday"),
            (951_782_400, "2000-02-29 00:00:00 Tuesday"),
            (1_795_255_715, "2026-11-21 10:08:35 Saturday"),
            (4_107_542_399, "2100-02-28 23:59:59 Sunday"),
        ];
        for (seconds, expected) in cases {
            let time = UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(format(time, "%Y-%m-%d %H:%M:%S %A").as_deref(), Ok(expected));
        }
        let noon = UNIX_EPOCH + Duration::from_secs(1_795_255_715);
        assert_eq!(
            format(noon, "%d %b %Y, %I:%M %p %a %y %B %F %T %Z%%").as_deref(),
            Ok("21 Nov 2026, 10:08 AM Sat 26 November 2026-11-21 10:08:35 UTC%")
        );
        assert_eq!(format(noon, "%Q"), Err("%Q".to_owned()));
        assert_eq!(format(noon, "%"), Err("%".to_owned()));
    }
}

//! Dates and times as text, in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

const MONTHS: &str = "January February March April May June July August September October November December";
/// From the day of the week of 1970-01-01.
const DAYS: &str = "Thursday Friday Saturday Sunday Monday Tuesday Wednesday";

/// The widest field.
const MAX_WIDTH: usize = 999;

/// The time as Python's `strftime` formats it on Linux in the C locale, for a time without a zone. A directive that is
/// not known stays as it is.
pub fn format(time: SystemTime, format: &str) -> String {
    Moment::new(time).format(format)
}

/// What a directive writes.
enum Field {
    Text(String),
    /// A number with its width and what fills it.
    Number(u64, usize, char),
}

struct Moment {
    seconds: u64,
    year: u64,
    month: u64,
    day: u64,
    /// From 0 for the first of January.
    day_of_year: u64,
    /// From 0 for Sunday.
    weekday: u64,
    hour: u64,
    minute: u64,
    second: u64,
}

impl Moment {
    fn new(time: SystemTime) -> Moment {
        let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        let (year, month, day) = civil(days);
        let before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334][month as usize - 1];
        let day_of_year = before + day - 1 + u64::from(month > 2 && is_leap(year));
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        Moment { seconds, year, month, day, day_of_year, weekday: (days + 4) % 7, hour, minute, second }
    }

    fn format(&self, format: &str) -> String {
        let mut out = String::new();
        let mut rest = format;
        while let Some(at) = rest.find('%') {
            out.push_str(&rest[..at]);
            let directive = &rest[at..];
            let flags = directive[1..].len() - directive[1..].trim_start_matches(['_', '-', '0', '^', '#']).len();
            let (flags, after) = directive[1..].split_at(flags);
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            let (width, after) = after.split_at(digits);
            let after = after.strip_prefix(['E', 'O']).unwrap_or(after);
            let name = after.chars().next();
            rest = &after[name.map_or(0, char::len_utf8)..];
            match name.and_then(|name| self.field(name)) {
                Some(field) => out.push_str(&padded(&field, name, flags, width.parse().ok())),
                None => {
                    let text = Field::Text(directive[..directive.len() - rest.len()].to_owned());
                    out.push_str(&padded(&text, None, "", width.parse().ok()));
                }
            }
        }
        out + rest
    }

    fn field(&self, name: char) -> Option<Field> {
        let word = |words: &'static str, index: u64| words.split(' ').nth(index as usize).unwrap_or_default();
        // The list of days starts with a Thursday.
        let (month, weekday) = (word(MONTHS, self.month - 1), word(DAYS, (self.weekday + 3) % 7));
        let text = |text: &str| Some(Field::Text(text.to_owned()));
        let short = |text: &str| Some(Field::Text(text.chars().take(3).collect()));
        let number = |number: u64, width: usize| Some(Field::Number(number, width, '0'));
        let nested = |format: &str| Some(Field::Text(self.format(format)));
        let twelfth = (self.hour + 11) % 12 + 1;
        let (iso_year, iso_week) = self.iso_week();
        match name {
            'a' => short(weekday),
            'A' => text(weekday),
            'b' | 'h' => short(month),
            'B' => text(month),
            'c' => nested("%a %b %e %H:%M:%S %Y"),
            'C' => number(self.year / 100, 2),
            'd' => number(self.day, 2),
            'D' | 'x' => nested("%m/%d/%y"),
            'e' => Some(Field::Number(self.day, 2, ' ')),
            'f' => text("000000"),
            'F' => nested("%Y-%m-%d"),
            'g' => number(iso_year % 100, 2),
            'G' => number(iso_year, 1),
            'H' => number(self.hour, 2),
            'I' => number(twelfth, 2),
            'j' => number(self.day_of_year + 1, 3),
            'k' => Some(Field::Number(self.hour, 2, ' ')),
            'l' => Some(Field::Number(twelfth, 2, ' ')),
            'm' => number(self.month, 2),
            'M' => number(self.minute, 2),
            'n' => text("\n"),
            'p' => text(if self.hour < 12 { "AM" } else { "PM" }),
            'P' => text(if self.hour < 12 { "am" } else { "pm" }),
            'r' => nested("%I:%M:%S %p"),
            'R' => nested("%H:%M"),
            's' => number(self.seconds, 1),
            'S' => number(self.second, 2),
            't' => text("\t"),
            'T' | 'X' => nested("%H:%M:%S"),
            'u' => number((self.weekday + 6) % 7 + 1, 1),
            'U' => number((self.day_of_year + 7 - self.weekday) / 7, 2),
            'V' => number(iso_week, 2),
            'w' => number(self.weekday, 1),
            'W' => number((self.day_of_year + 7 - (self.weekday + 6) % 7) / 7, 2),
            'y' => number(self.year % 100, 2),
            'Y' => number(self.year, 1),
            // A time without a zone.
            'z' | 'Z' => text(""),
            '%' => text("%"),
            _ => None,
        }
    }

    /// The year and the week of ISO 8601: a week belongs to the year of its Thursday.
    fn iso_week(&self) -> (u64, u64) {
        let from_monday = (self.weekday + 6) % 7;
        let thursday = self.day_of_year as i64 - from_monday as i64 + 3;
        let length = |year: u64| 365 + i64::from(is_leap(year));
        let (year, day) = match thursday {
            day if day < 0 => (self.year - 1, day + length(self.year - 1)),
            day if day >= length(self.year) => (self.year + 1, day - length(self.year)),
            day => (self.year, day),
        };
        (year, day as u64 / 7 + 1)
    }
}

/// A field with flags of the C library: another filling, another case, a width.
fn padded(field: &Field, name: Option<char>, flags: &str, width: Option<usize>) -> String {
    let (text, usual, fill) = match field {
        Field::Text(text) => (text.clone(), 0, ' '),
        Field::Number(number, width, fill) => (number.to_string(), *width, *fill),
    };
    let fill = flags.chars().rfind(|flag| "_-0".contains(*flag)).unwrap_or(match fill {
        '0' => '0',
        _ => '_',
    });
    let text = match (flags.contains('^'), flags.contains('#')) {
        (true, _) => text.to_uppercase(),
        (_, true) if name == Some('p') => text.to_lowercase(),
        (_, true) => text.to_uppercase(),
        _ => text,
    };
    let width = match (fill, width) {
        (_, Some(width)) => width.min(MAX_WIDTH),
        ('-', None) => 0,
        (_, None) => usual,
    };
    let missing = width.saturating_sub(text.len());
    let fill = if fill == '0' { "0" } else { " " };
    fill.repeat(missing) + &text
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

/// Year, month and day of a number of days since 1970-01-01 (Gregorian calendar; years start in March here, so that
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
            assert_eq!(format(time, "%Y-%m-%d %H:%M:%S %A"), expected);
        }
    }

    // What Python writes with glibc.
    #[test]
    fn directives_are_those_of_python() {
        let noon = UNIX_EPOCH + Duration::from_secs(1_795_255_715);
        let cases: &[(&str, &str)] = &[
            ("%a", "Sat"),
            ("%A", "Saturday"),
            ("%b", "Nov"),
            ("%B", "November"),
            ("%c", "Sat Nov 21 10:08:35 2026"),
            ("%C", "20"),
            ("%d", "21"),
            ("%D", "11/21/26"),
            ("%e", "21"),
            ("%F", "2026-11-21"),
            ("%f", "000000"),
            ("%g", "26"),
            ("%G", "2026"),
            ("%h", "Nov"),
            ("%H", "10"),
            ("%I", "10"),
            ("%j", "325"),
            ("%k", "10"),
            ("%l", "10"),
            ("%m", "11"),
            ("%M", "08"),
            ("%n", "\n"),
            ("%p", "AM"),
            ("%P", "am"),
            ("%r", "10:08:35 AM"),
            ("%R", "10:08"),
            ("%S", "35"),
            ("%t", "\t"),
            ("%T", "10:08:35"),
            ("%u", "6"),
            ("%U", "46"),
            ("%V", "47"),
            ("%w", "6"),
            ("%W", "46"),
            ("%x", "11/21/26"),
            ("%X", "10:08:35"),
            ("%y", "26"),
            ("%Y", "2026"),
            ("%z", ""),
            ("%Z", ""),
            ("%%", "%"),
            ("%-d %B %Y", "21 November 2026"),
            ("%-m/%-d", "11/21"),
            ("%_d", "21"),
            ("%_m", "11"),
            ("%-H", "10"),
            ("%-I", "10"),
            ("%-j", "325"),
            ("%05d", "00021"),
            ("%^a", "SAT"),
            ("%^b", "NOV"),
            ("%#p", "am"),
            ("%#a", "SAT"),
            ("%10B", "  November"),
            ("%-10d", "        21"),
            ("%010B", "00November"),
            ("%_10d", "        21"),
            ("%-y", "26"),
            ("%Q", "%Q"),
            ("%!", "%!"),
            ("%Ey", "26"),
            ("%Od", "21"),
            ("%", "%"),
            ("a%", "a%"),
            ("%5", "   %5"),
            ("%-", "%-"),
            ("%--d", "21"),
            ("%-e", "21"),
            ("%0e", "21"),
            ("%_H", "10"),
            ("%^B %-d", "NOVEMBER 21"),
            ("%%-d", "%-d"),
            ("%3Y", "2026"),
            ("%6Y", "002026"),
            ("%-Y", "2026"),
            ("%12F", "  2026-11-21"),
            ("é%d", "é21"),
            ("%^c", "SAT NOV 21 10:08:35 2026"),
            ("%10D", "  11/21/26"),
        ];
        let weeks = [
            (1609632000, "2020-53 20 01 00 003 7 0"),
            (1546214400, "2019-01 19 52 53 365 1 1"),
            (1609372800, "2020-53 20 52 52 366 4 4"),
            (1672531200, "2022-52 22 01 00 001 7 0"),
            (1735516800, "2025-01 25 52 53 365 1 1"),
        ];
        for (seconds, expected) in weeks {
            assert_eq!(format(UNIX_EPOCH + Duration::from_secs(seconds), "%G-%V %g %U %W %j %u %w"), expected);
        }
        for (directive, expected) in cases {
            assert_eq!(format(noon, directive), *expected, "{directive}");
        }
    }
}

//! The Gregorian calendar, and dates as people write them.

/// A point in time in UTC, field by field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Utc {
    /// The year; 2005 is 2005.
    pub year: i64,
    /// 1 to 12.
    pub month: u8,
    /// 1 to 31.
    pub day: u8,
    /// 0 for Sunday.
    pub weekday: u8,
    /// Seconds since midnight.
    pub second_of_day: i64,
}

const DAY_SECONDS: i64 = 86_400;
const ERA_DAYS: i64 = 146_097;
/// Days from March 1st of the year 0 to 1970.
const EPOCH_DAYS: i64 = 719_468;

impl Utc {
    /// The time so many seconds after 1970.
    pub fn of(seconds: i64) -> Self {
        let days = seconds.div_euclid(DAY_SECONDS);
        let (year, month, day) = date_of(days);
        Self {
            year,
            month,
            day,
            weekday: low((days + 4).rem_euclid(7)),
            second_of_day: seconds.rem_euclid(DAY_SECONDS),
        }
    }
}

impl std::fmt::Display for Utc {
    /// As HTTP writes dates: `Fri, 27 May 2005 22:00:00 GMT`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let weekday = WEEKDAYS.get(usize::from(self.weekday)).copied().unwrap_or("???");
        let month = MONTHS
            .get(usize::from(self.month).wrapping_sub(1))
            .copied()
            .unwrap_or("???");
        let (hour, minute, second) = (
            self.second_of_day / 3_600,
            self.second_of_day / 60 % 60,
            self.second_of_day % 60,
        );
        write!(
            f,
            "{weekday}, {:02} {month} {:04} {hour:02}:{minute:02}:{second:02} GMT",
            self.day, self.year
        )
    }
}

/// Names of months as git and mail write them.
pub(crate) const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
/// Names of days, Sunday first.
pub(crate) const WEEKDAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];

/// Year, month and day of a day counted from 1970: by eras of 400 years whose years begin in March.
fn date_of(days: i64) -> (i64, u8, u8) {
    let days = days.saturating_add(EPOCH_DAYS);
    let (era, day_of_era) = (days.div_euclid(ERA_DAYS), days.rem_euclid(ERA_DAYS));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    (year_of_era + era * 400 + i64::from(month <= 2), low(month), low(day))
}

/// The day of a date, counted from 1970.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let shifted_month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
    era * ERA_DAYS + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - EPOCH_DAYS
}

fn low(number: i64) -> u8 {
    u8::try_from(number).unwrap_or(0)
}

/// Seconds after 1970 that a date means, in the forms that are not open to doubt: `@<seconds> <zone>`, seconds of nine
/// digits and more, `2005-05-27[ T]22:00[:00]`, `[Fri, ]27 May 2005 22:00[:00]`, each with or without a zone (UTC if there is none), a
/// day without a time (which takes the time of `now`), `now`, `yesterday`, and `<count> <unit> ago`. `None` for the
/// guesses that git makes beyond those.
pub fn parse_date(text: &str, now: i64) -> Option<i64> {
    let text = text.trim();
    let text = match text.strip_prefix('@') {
        Some(stamp) if stamp.contains(' ') => {
            let seconds = stamp.split(' ').next()?.parse().ok();
            return seconds.filter(|seconds: &i64| *seconds >= 0);
        }
        Some(stamp) => stamp,
        None => text,
    };
    match text.to_ascii_lowercase().as_str() {
        "now" => return Some(now),
        "yesterday" => return Some(now - DAY_SECONDS),
        lower if lower.ends_with("ago") => return ago(lower, now),
        _ => {}
    }
    let words: Vec<&str> = text.split([' ', ',', 'T']).filter(|word| !word.is_empty()).collect();
    let spaced: Vec<&str> = text.split([' ', ',']).filter(|word| !word.is_empty()).collect();
    let (day, rest) = match words.as_slice() {
        [seconds, rest @ ..] if seconds.len() >= 9 && seconds.bytes().all(|digit| digit.is_ascii_digit()) => {
            return (rest.len() <= 1).then(|| seconds.parse().ok())?;
        }
        [date, rest @ ..] if date.contains('-') => (iso_day(date)?, rest),
        _ => (mail_day(&spaced)?, spaced.get(mail_day_len(&spaced)..)?),
    };
    let time = match rest {
        [] => now.rem_euclid(DAY_SECONDS),
        [time] => clock(time)?,
        [time, zone] => clock(time)? - zone_seconds(zone)?,
        _ => return None,
    };
    Some(day * DAY_SECONDS + time).filter(|seconds| *seconds >= 0)
}

fn ago(text: &str, now: i64) -> Option<i64> {
    let mut words = text.split([' ', '.']).filter(|word| !word.is_empty());
    let (count, unit, last) = (words.next()?.parse::<u32>().ok()?, words.next()?, words.next()?);
    let seconds = match unit.trim_end_matches('s') {
        "second" => 1,
        "minute" => 60,
        "hour" => 3_600,
        "day" => DAY_SECONDS,
        "week" => 7 * DAY_SECONDS,
        _ => return None,
    };
    (last == "ago" && words.next().is_none()).then(|| now.saturating_sub(i64::from(count) * seconds).max(0))
}

fn iso_day(text: &str) -> Option<i64> {
    let mut fields = text.split('-').map(|field| field.parse::<i64>().ok());
    let (year, month, day) = (fields.next()??, fields.next()??, fields.next()??);
    fields.next().is_none().then(|| valid_day(year, month, day))?
}

/// `27 May 2005`, perhaps behind the day of the week.
fn mail_day(words: &[&str]) -> Option<i64> {
    let at = mail_day_len(words).checked_sub(3)?;
    let [day, month, year] = words.get(at..at + 3)? else {
        return None;
    };
    let name = month.get(..3)?;
    let month = MONTHS.iter().position(|known| known.eq_ignore_ascii_case(name))?;
    valid_day(year.parse().ok()?, i64::try_from(month).ok()? + 1, day.parse().ok()?)
}

fn mail_day_len(words: &[&str]) -> usize {
    let begins_with_a_name = words
        .first()
        .is_some_and(|word| word.starts_with(|letter: char| letter.is_ascii_alphabetic()));
    3 + usize::from(begins_with_a_name)
}

fn valid_day(year: i64, month: i64, day: i64) -> Option<i64> {
    let valid = (1970..10_000).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    valid.then(|| days_of(year, month, day))
}

fn clock(text: &str) -> Option<i64> {
    let (text, zone) = match text.strip_suffix('Z') {
        Some(text) => (text, 0),
        None => match text.rfind(['+', '-']) {
            Some(at) => (text.get(..at)?, zone_seconds(text.get(at..)?)?),
            None => (text, 0),
        },
    };
    let mut fields = text
        .split(':')
        .map(|field| field.split('.').next().and_then(|field| field.parse::<i64>().ok()));
    let (hour, minute, second) = (fields.next()??, fields.next()??, fields.next().unwrap_or(Some(0))?);
    let valid = (0..24).contains(&hour) && (0..60).contains(&minute) && (0..=60).contains(&second);
    (valid && fields.next().is_none()).then_some(hour * 3_600 + minute * 60 + second - zone)
}

fn zone_seconds(text: &str) -> Option<i64> {
    if matches!(text, "Z" | "UTC" | "GMT") {
        return Some(0);
    }
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let digits = text.strip_prefix(['+', '-'])?.replace(':', "");
    let number: i64 = digits.parse().ok()?;
    let (hours, minutes) = if digits.len() <= 2 {
        (number, 0)
    } else {
        (number / 100, number % 100)
    };
    (digits.len() <= 4 && hours < 24 && minutes < 60).then_some(sign * (hours * 3_600 + minutes * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        let now = 1_700_000_000;
        let table = [
            ("2002-02-02T02:02:02-0200", Some(1_012_622_522)),
            ("2002-02-02 02:02:02 -0200", Some(1_012_622_522)),
            ("2002-02-02T02:02:02-02:00", Some(1_012_622_522)),
            ("2005-05-27 22:00", Some(1_117_231_200)),
            ("Fri, 27 May 2005 22:00:00 +0000", Some(1_117_231_200)),
            ("27 May 2005 22:00:00", Some(1_117_231_200)),
            ("@0 +0000", Some(0)),
            ("@1117231200", Some(1_117_231_200)),
            ("@0", None),
            ("1117231200 +0200", Some(1_117_231_200)),
            ("1117231200", Some(1_117_231_200)),
            ("2005-05-27", Some(1_117_152_000 + now % DAY_SECONDS)),
            ("now", Some(now)),
            ("yesterday", Some(now - DAY_SECONDS)),
            ("2 hours ago", Some(now - 7_200)),
            ("2.days.ago", Some(now - 2 * DAY_SECONDS)),
            ("noon", None),
            ("2005-13-27", None),
            ("2005-05-27 25:00", None),
            ("", None),
            ("@-1", None),
        ];
        for (text, expected) in table {
            assert_eq!(parse_date(text, now), expected, "{text}");
        }
    }

    #[test]
    fn dates_of_http() {
        assert_eq!(Utc::of(1_117_231_200).to_string(), "Fri, 27 May 2005 22:00:00 GMT");
        assert_eq!(Utc::of(0).to_string(), "Thu, 01 Jan 1970 00:00:00 GMT");
    }

    #[test]
    fn days_and_dates_are_inverse() {
        for days in (-800_000..800_000).step_by(37) {
            let (year, month, day) = date_of(days);
            assert_eq!(days_of(year, i64::from(month), i64::from(day)), days);
        }
    }
}

//! Points in time as git writes them.

use crate::calendar::{MONTHS, Utc, WEEKDAYS};

/// A time in some zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Civil {
    local: Utc,
    /// As git writes zones: hours times hundred plus minutes.
    zone: i64,
}

/// Beyond this git takes a time for 1970, and so do we: its calendar ends there.
const TIME_MAX: i64 = 1 << 55;

impl Civil {
    /// The time `seconds` after 1970 in a zone such as `-130`.
    pub(super) fn new(seconds: i64, zone: i64) -> Self {
        let (seconds, zone) = if (0..=TIME_MAX).contains(&seconds) {
            (seconds, zone)
        } else {
            (0, 0)
        };
        let minutes = zone / 100 * 60 + zone % 100;
        Self {
            local: Utc::of(seconds + minutes * 60),
            zone,
        }
    }

    /// `%ad`, `%aD`, `%ai`, `%aI` and `%as`.
    pub(super) fn write(self, letter: u8) -> String {
        let Utc {
            year,
            month,
            day,
            weekday,
            second_of_day,
        } = self.local;
        let name = MONTHS.get(usize::from(month).wrapping_sub(1)).copied().unwrap_or("???");
        let weekday = WEEKDAYS.get(usize::from(weekday)).copied().unwrap_or("???");
        let (hour, minute, second) = (second_of_day / 3_600, second_of_day / 60 % 60, second_of_day % 60);
        let (time, zone) = (format!("{hour:02}:{minute:02}:{second:02}"), self.zone);
        match letter {
            b'd' => format!("{weekday} {name} {day} {time} {year} {zone:+05}"),
            b'D' => format!("{weekday}, {day} {name} {year} {time} {zone:+05}"),
            b'i' => format!("{year:04}-{month:02}-{day:02} {time} {zone:+05}"),
            b'I' if zone == 0 => format!("{year:04}-{month:02}-{day:02}T{time}Z"),
            b'I' => {
                let (sign, zone) = (if zone < 0 { '-' } else { '+' }, zone.abs());
                format!(
                    "{year:04}-{month:02}-{day:02}T{time}{sign}{:02}:{:02}",
                    zone / 100,
                    zone % 100
                )
            }
            _ => format!("{year:04}-{month:02}-{day:02}"),
        }
    }
}

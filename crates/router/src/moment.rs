//! Moments: as people write and read them, in their own time zone, and as machines do.

use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use chrono::{DateTime, Days, Local, NaiveDateTime, NaiveTime, SecondsFormat, TimeDelta, TimeZone, Utc};

/// What is right where a moment is expected.
const EXPECTED: &str = "expected 3:10, 3:10:30, '2026-11-27 3:10', 5m, 2h, 3d or now";

/// A moment as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// So long ago.
    Ago(TimeDelta),
    /// A time of the day.
    Clock(NaiveTime),
    /// A time of a day.
    Local(NaiveDateTime),
    /// A time with its zone.
    Exact(DateTime<Utc>),
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text == "now" {
            return Ok(Moment::Ago(TimeDelta::zero()));
        }
        if let Some(clock) = clock(text) {
            return Ok(Moment::Clock(clock));
        }
        if let Some((date, time)) = text.split_once([' ', 'T'])
            && let (Ok(date), Some(clock)) = (date.parse(), clock(time))
        {
            return Ok(Moment::Local(NaiveDateTime::new(date, clock)));
        }
        if let Ok(exact) = DateTime::parse_from_rfc3339(text) {
            return Ok(Moment::Exact(exact.to_utc()));
        }
        ago(text).map(Moment::Ago).ok_or_else(|| EXPECTED.to_owned())
    }
}

/// A time of the day: `3:10`, `03:10:30`.
fn clock(text: &str) -> Option<NaiveTime> {
    ["%H:%M:%S%.f", "%H:%M"].iter().find_map(|format| NaiveTime::parse_from_str(text, format).ok())
}

/// A length of time: `90s`, `5m`, `2h`, `3d`.
fn ago(text: &str) -> Option<TimeDelta> {
    let unit = text.chars().last()?;
    let number: u32 = text.strip_suffix(unit)?.parse().ok()?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return None,
    };
    TimeDelta::try_seconds(i64::from(number) * seconds)
}

impl Moment {
    /// Returns the moment that is meant at `now`: of a time of the day, the first after `after`, or else the last there was.
    fn at<Z: TimeZone>(self, now: &DateTime<Z>, after: Option<&DateTime<Utc>>) -> Option<DateTime<Utc>> {
        let zone = now.timezone();
        let exact =
            |local: NaiveDateTime| zone.from_local_datetime(&local).earliest().map(|moment| moment.to_utc());
        match self {
            Moment::Ago(time) => Some(now.to_utc() - time),
            Moment::Exact(moment) => Some(moment),
            Moment::Local(local) => exact(local),
            Moment::Clock(clock) => {
                let day = |of: DateTime<Utc>| of.with_timezone(&zone).date_naive();
                match after {
                    Some(after) => {
                        let moment = exact(day(*after).and_time(clock))?;
                        if moment >= *after {
                            Some(moment)
                        } else {
                            exact(day(*after + Days::new(1)).and_time(clock))
                        }
                    }
                    None => {
                        let moment = exact(day(now.to_utc()).and_time(clock))?;
                        if moment <= now.to_utc() {
                            Some(moment)
                        } else {
                            exact(day(now.to_utc() - Days::new(1)).and_time(clock))
                        }
                    }
                }
            }
        }
    }
}

/// Returns the moments between which something is wanted, in microseconds since 1970.
///
/// # Errors
/// The second is before the first, or the clock never showed it.
pub(crate) fn range(since: Option<Moment>, until: Option<Moment>) -> Result<(Option<u64>, Option<u64>)> {
    range_at(&Local::now(), since, until)
}

fn range_at<Z: TimeZone>(
    now: &DateTime<Z>,
    since: Option<Moment>,
    until: Option<Moment>,
) -> Result<(Option<u64>, Option<u64>)> {
    let number = |moment: DateTime<Utc>| moment.timestamp_micros().max(0) as u64;
    let skipped = "the clock was put forward past it; give another";
    let since = match since.map(|moment| moment.at(now, None)) {
        Some(None) => bail!("--since: {skipped}"),
        other => other.flatten(),
    };
    let until = match until.map(|moment| moment.at(now, since.as_ref())) {
        Some(None) => bail!("--until: {skipped}"),
        other => other.flatten(),
    };
    if let (Some(since), Some(until)) = (since, until)
        && until < since
    {
        bail!("--until: before --since; expected a later time");
    }
    Ok((since.map(number), until.map(number)))
}

/// Returns a moment in microseconds since 1970.
pub(crate) fn microseconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

/// Returns a moment as machines read it.
pub(crate) fn rfc3339(microseconds: u64) -> String {
    let moment = DateTime::from_timestamp_micros(microseconds as i64).unwrap_or_default();
    moment.to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// Returns a moment as people here read it: `2026-11-27 03:12:07.123`. What is not a moment stays as it is.
pub(crate) fn local(rfc3339: &str) -> String {
    let Ok(moment) = DateTime::parse_from_rfc3339(rfc3339) else { return rfc3339.to_owned() };
    moment.with_timezone(&Local).format("%Y-%m-%d %H:%M:%S%.3f").to_string()
}

#[cfg(test)]
mod tests {
    use chrono::FixedOffset;

    use super::*;

    /// What is meant at 10:00 on 27 November, two hours east of UTC.
    fn meant(since: &str, until: &str) -> String {
        let zone = FixedOffset::east_opt(7_200).unwrap();
        let now = zone.with_ymd_and_hms(2026, 11, 27, 10, 0, 0).unwrap();
        let moment = |text: &str| (!text.is_empty()).then(|| text.parse::<Moment>().unwrap());
        match range_at(&now, moment(since), moment(until)) {
            Ok((since, until)) => {
                let text =
                    |moment: Option<u64>| moment.map_or("-".to_owned(), rfc3339).replace(".000000Z", "");
                format!("{} {}", text(since), text(until))
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn moments_are_those_that_people_mean() {
        for (since, until, expected) in [
            ("3:10", "3:15", "2026-11-27T01:10:00 2026-11-27T01:15:00"),
            // What the clock has not shown today it showed yesterday.
            ("23:50", "0:10", "2026-11-26T21:50:00 2026-11-26T22:10:00"),
            ("23:50", "", "2026-11-26T21:50:00 -"),
            ("", "3:15:30", "- 2026-11-27T01:15:30"),
            ("5m", "now", "2026-11-27T07:55:00 2026-11-27T08:00:00"),
            ("2d", "36h", "2026-11-25T08:00:00 2026-11-25T20:00:00"),
            ("2026-11-20 3:10", "2026-11-20T03:12:01", "2026-11-20T01:10:00 2026-11-20T01:12:01"),
            ("2026-11-20T03:10:00Z", "", "2026-11-20T03:10:00 -"),
            ("5m", "2h", "--until: before --since; expected a later time"),
        ] {
            assert_eq!(meant(since, until), expected, "{since} {until}");
        }
        for wrong in ["", "3", "25:00", "5x", "-5m", "m", "yesterday", "2026-13-01 3:10"] {
            assert_eq!(wrong.parse::<Moment>(), Err(EXPECTED.to_owned()), "{wrong}");
        }
    }

    #[test]
    fn times_of_machines_are_read_by_people() {
        let text = rfc3339(1_795_749_127_123_456);
        assert_eq!(text, "2026-11-27T03:12:07.123456Z");
        let here = DateTime::parse_from_rfc3339(&text).unwrap().with_timezone(&Local);
        assert_eq!(local(&text), here.format("%Y-%m-%d %H:%M:%S.123").to_string());
        assert_eq!(local("x"), "x");
    }
}

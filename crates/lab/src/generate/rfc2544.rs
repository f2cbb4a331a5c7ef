//! RFC 2544's throughput test (section 26.1): the highest rate at which no packet is lost, for each frame size.
//!
//! "Throughput: the maximum rate at which none of the offered frames are dropped by the device" (RFC 1242, section 3.17).
//! The first trial runs at the highest rate; if it loses packets, halving the interval between the best rate without
//! loss and the lowest with loss finds the border to the resolution that was asked for.
//!
//! What the RFC asks for and what this does:
//!
//! | section | RFC 2544 | here |
//! | --- | --- | --- |
//! | 9.1 | frames of 64, 128, 256, 512, 1024, 1280, 1518 bytes | the same, or `--sizes` |
//! | 23 | send learning frames first | ARP for the gateway; answers to the router's ARP requests; a short trial |
//! | 23 | wait 2 seconds for residual frames | `--settle`, 2 by default; ends when all have come |
//! | 23 | wait 5 seconds for the device to restabilize | not done: the settle time is the pause |
//! | 24 | a trial takes at least 60 seconds; the search may use shorter ones | `--trial`, 5 by default |
//! | 26.1 | report frame size and rate | a table; `--json` for plotting |

use anyhow::Result;

use super::trial::Outcome;
use super::values::{FrameSize, Rate};

/// The frame sizes of RFC 2544, section 9.1, FCS counted.
pub(crate) const SIZES: [FrameSize; 7] = [
    FrameSize::Fixed(64),
    FrameSize::Fixed(128),
    FrameSize::Fixed(256),
    FrameSize::Fixed(512),
    FrameSize::Fixed(1_024),
    FrameSize::Fixed(1_280),
    FrameSize::Fixed(1_518),
];

/// Where a search stops, whatever its resolution: no rate without loss above this.
const LOWEST_RATE: f64 = 1.0;

/// What a search needs to know of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Offered {
    /// Packets a second that were really sent.
    pub(crate) pps: f64,
    pub(crate) passed: bool,
}

/// What a search found.
#[derive(Clone, Debug)]
pub(crate) struct Found<T> {
    /// The trial with the highest rate that passed; `None` when each one failed.
    pub(crate) best: Option<T>,
    /// The rate that the first trial, at the highest rate, really offered, in packets a second.
    pub(crate) highest_pps: f64,
    pub(crate) trials: u32,
}

/// Whether a trial passes: something was sent, and not more than `allowed_percent` of it was lost, doubled or corrupted.
pub(crate) fn judge(outcome: &Outcome, allowed_percent: f64) -> Offered {
    let passed = outcome.sent > 0 && outcome.faults_percent() <= allowed_percent;
    Offered { pps: outcome.offered_pps(), passed }
}

/// Searches the highest rate up to `highest` at which `trial` passes, to `resolution_percent` of the highest rate.
/// `trial` runs one at the rate it is given; `None` when the search was interrupted.
pub(crate) fn search<T>(
    highest: Rate,
    resolution_percent: f64,
    mut trial: impl FnMut(Rate) -> Result<Option<(Offered, T)>>,
) -> Result<Option<Found<T>>> {
    let Some((offered, outcome)) = trial(highest)? else { return Ok(None) };
    let highest_pps = offered.pps;
    let mut found = Found { best: None, highest_pps, trials: 1 };
    if offered.passed {
        found.best = Some(outcome);
        return Ok(Some(found));
    }
    let resolution = (highest_pps * resolution_percent / 100.0).max(LOWEST_RATE);
    let (mut passing, mut failing) = (0.0, highest_pps);
    while failing - passing > resolution {
        let rate = (passing + failing) / 2.0;
        let Some((offered, outcome)) = trial(Rate::Packets(rate))? else { return Ok(None) };
        found.trials += 1;
        if offered.passed {
            passing = rate;
            found.best = Some(outcome);
        } else {
            failing = rate;
        }
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A device that forwards `capacity` packets a second, offered by a generator that sends `most`.
    fn found(capacity: f64, most: f64, highest: Rate, resolution: f64) -> Found<f64> {
        let device = |rate: Rate| {
            let pps = match rate {
                Rate::Packets(pps) => pps.min(most),
                _ => most,
            };
            Ok(Some((Offered { pps, passed: pps <= capacity }, pps)))
        };
        search(highest, resolution, device).unwrap().unwrap()
    }

    #[test]
    fn a_device_faster_than_the_generator_takes_one_trial() {
        let found = found(2e6, 1e6, Rate::Max, 1.0);
        assert_eq!((found.best, found.trials, found.highest_pps), (Some(1e6), 1, 1e6));
    }

    #[test]
    fn a_dead_device_has_no_rate() {
        let found = found(0.5, 1e6, Rate::Max, 0.1);
        assert_eq!(found.best, None);
        assert_eq!(found.trials, 11);
    }

    #[test]
    fn an_interrupted_search_has_no_result() {
        assert!(search(Rate::Max, 1.0, |_| Ok(None::<(Offered, ())>)).unwrap().is_none());
    }

    proptest! {
        #[test]
        fn the_border_is_found_to_the_resolution(capacity in 1_000.0f64..9e5, resolution in 0.1f64..10.0) {
            let found = found(capacity, 1e6, Rate::Max, resolution);
            let best = found.best.unwrap_or(0.0);
            prop_assert!(best <= capacity && capacity - best <= 1e6 * resolution / 100.0, "{best}");
        }
    }
}

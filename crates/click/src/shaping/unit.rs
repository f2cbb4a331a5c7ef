//! What rates count, packets or bytes, and how much may pass at once. The elements that limit or measure a rate are one for
//! both units.

use elements::token_bucket::TokenBucket;
use graph::arguments::{Arguments, Bandwidth, Interval};
use graph::{ConfigError, Context, FromArgument, Verdict};
use packet::Batch;

/// What a rate counts.
pub(crate) trait Unit: Send + 'static {
    /// A rate as configurations write it.
    type Rate: FromArgument;
    /// The keyword for the size of a burst.
    const BURST_KEYWORD: &'static str;
    /// What an Unqueue's bucket holds beyond its burst.
    const SPARE_TOKENS: u64;
    /// What the handler `rate` is, where it is the argument.
    const RATE_DOC: &'static str;
    /// What it is where it is measured.
    const MEASURED_DOC: &'static str;
    /// What the handler `meters` is.
    const METERS_DOC: &'static str;

    /// The rate in tokens a second.
    fn tokens(rate: Self::Rate) -> u64;

    /// The tokens that a batch costs.
    fn cost(batch: &Batch) -> u64;

    /// Pulls packets behind those of `batch`, as many as surely fit what the bucket allows now and one at least, until there are `max`.
    /// Returns whether it allows any.
    fn pull_some(cx: &mut Context, bucket: &TokenBucket, now_ns: u64, batch: &mut Batch, max: usize) -> bool;

    /// Pulls up to `max` packets into `batch`, which is empty, as far as the bucket allows. Returns whether it allows any.
    fn pull(cx: &mut Context, bucket: &TokenBucket, now_ns: u64, batch: &mut Batch, max: usize) -> bool {
        while batch.len() < max {
            let before = batch.len();
            if !Self::pull_some(cx, bucket, now_ns, batch, max) {
                return before > 0;
            }
            if batch.len() == before {
                break;
            }
        }
        true
    }

    /// Leaves in `batch` what the bucket allows. The rest goes out by output 1.
    fn split(cx: &mut Context, bucket: &TokenBucket, batch: &mut Batch);
}

/// Packets.
pub(crate) struct Packets;

/// Bytes. A packet passes while anything is left of the allowance; what it is longer is owed.
pub(crate) struct Bytes;

/// Where packets beyond the rate go, and why they are dropped if they do.
const OVER_THE_RATE: Verdict = Verdict::Divert(1, "over the rate");

impl Unit for Packets {
    type Rate = u64;
    const BURST_KEYWORD: &'static str = "BURST_SIZE";
    const SPARE_TOKENS: u64 = 0;
    const RATE_DOC: &'static str = "The RATE argument.";
    const MEASURED_DOC: &'static str = "The measured rate in packets a second.";
    const METERS_DOC: &'static str = "The rates, one a line.";

    fn tokens(rate: u64) -> u64 {
        rate
    }

    fn cost(batch: &Batch) -> u64 {
        batch.len() as u64
    }

    fn pull_some(cx: &mut Context, bucket: &TokenBucket, now_ns: u64, batch: &mut Batch, max: usize) -> bool {
        let before = batch.len();
        let granted = bucket.take_up_to(now_ns, (max - before) as u64);
        if granted > 0 {
            cx.pull(0, batch, granted as usize);
            bucket.give_back(granted.saturating_sub((batch.len() - before) as u64));
        }
        granted > 0
    }

    fn pull(cx: &mut Context, bucket: &TokenBucket, now_ns: u64, batch: &mut Batch, max: usize) -> bool {
        Self::pull_some(cx, bucket, now_ns, batch, max)
    }

    fn split(cx: &mut Context, bucket: &TokenBucket, batch: &mut Batch) {
        let mut granted = bucket.take_up_to(cx.now_ns(), batch.len() as u64);
        if granted == batch.len() as u64 {
            return;
        }
        cx.filter(batch, |_| {
            if granted > 0 {
                granted -= 1;
                Verdict::Keep
            } else {
                OVER_THE_RATE
            }
        });
    }
}

/// The longest Ethernet packet, without its checksum. So many packets as fit the allowance at this length
/// are pulled at once.
const LONG_PACKET: u64 = 1514;

impl Unit for Bytes {
    type Rate = Bandwidth;
    const BURST_KEYWORD: &'static str = "BURST_BYTES";
    // As in Click a packet passes unless something is owed, so that one that uses up the allowance to the byte is
    // followed by another: one token more says so.
    const SPARE_TOKENS: u64 = 1;
    const RATE_DOC: &'static str = "The RATE argument, in bytes a second.";
    const MEASURED_DOC: &'static str = "The measured bandwidth in bytes a second.";
    const METERS_DOC: &'static str = "The rates in bytes a second, one a line.";

    fn tokens(rate: Bandwidth) -> u64 {
        rate.bytes_per_second
    }

    fn cost(batch: &Batch) -> u64 {
        batch.iter().map(|packet| packet.len() as u64).sum()
    }

    fn pull_some(cx: &mut Context, bucket: &TokenBucket, now_ns: u64, batch: &mut Batch, max: usize) -> bool {
        let available = bucket.available(now_ns);
        if available == 0 {
            return false;
        }
        let before = batch.len();
        let most = (available / LONG_PACKET).clamp(1, (max - before) as u64);
        cx.pull(0, batch, most as usize);
        let bytes: usize = batch.packets()[before..].iter().map(|packet| packet.len()).sum();
        bucket.take_anyway(bytes as u64);
        true
    }

    fn split(cx: &mut Context, bucket: &TokenBucket, batch: &mut Batch) {
        let available = bucket.available(cx.now_ns());
        let mut taken = 0;
        cx.filter(batch, |packet| {
            if taken < available {
                taken += packet.len() as u64;
                Verdict::Keep
            } else {
                OVER_THE_RATE
            }
        });
        bucket.take_anyway(taken);
    }
}

/// How much may pass at once after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Burst {
    /// What the rate gives in so many nanoseconds.
    Duration(u64),
    /// So many tokens.
    Tokens(u64),
}

impl Burst {
    /// 20 ms, as in Click.
    const DEFAULT: Self = Self::Duration(20_000_000);

    /// Reads `BURST_DURATION` and the keyword for tokens.
    pub(crate) fn from_arguments(
        arguments: &mut Arguments,
        tokens: &'static str,
    ) -> Result<Self, ConfigError> {
        let duration = arguments.keyword::<Interval>("BURST_DURATION")?;
        let size = arguments.keyword::<u64>(tokens)?;
        match (duration, size) {
            (Some(_), Some(_)) => Err(format!("cannot specify both BURST_DURATION and {tokens}").into()),
            (Some(duration), None) => Ok(Self::Duration(duration.ns)),
            (None, Some(size)) => Ok(Self::Tokens(size)),
            (None, None) => Ok(Self::DEFAULT),
        }
    }

    /// Tokens at `rate` a second, 1 or more.
    pub(crate) fn tokens(self, rate: u64) -> u64 {
        let tokens = match self {
            Self::Tokens(tokens) => tokens,
            Self::Duration(ns) => {
                let product = u128::from(rate) * u128::from(ns) / 1_000_000_000;
                u64::try_from(product).unwrap_or(u64::MAX)
            }
        };
        tokens.clamp(1, u64::MAX >> 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts() {
        assert_eq!(Burst::DEFAULT.tokens(2_000), 40);
        assert_eq!(Burst::DEFAULT.tokens(2), 1);
        assert_eq!(Burst::Duration(25_000_000_000).tokens(2), 50);
        assert_eq!(Burst::Tokens(0).tokens(2), 1);
    }
}

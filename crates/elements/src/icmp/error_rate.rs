//! How many ICMP errors a second are sent: RFC 1812, 4.3.2.8, and RFC 4443, 2.4 (f), "an IPv6 node MUST limit
//! the rate of ICMPv6 error messages it originates", and recommends a token bucket. Sweeps for hosts and
//! loops would be answered packet by packet otherwise.

use std::sync::Arc;

use graph::{ConfigError, FromArgument, Setup};

use crate::token_bucket::TokenBucket;

/// Why an error is not sent.
pub(super) const TOO_MANY: &str = "too many ICMP errors";

/// The limit of an element, for all its copies together.
pub(super) struct ErrorRate {
    bucket: Arc<TokenBucket>,
    burst: u64,
}

impl ErrorRate {
    /// Reads RATE and BURST: 1,000 errors a second, and 100 at once, by default. That is a traceroute of
    /// everybody in a small network, and no work for the slow thread.
    pub(super) fn read(setup: &mut Setup<'_>) -> Result<Self, ConfigError> {
        let rate = setup.arguments.keyword_or("RATE", 1000)?;
        let burst = setup.arguments.keyword_or("BURST", 100)?;
        if burst == 0 {
            return Err("BURST: expected at least 1, got 0".to_owned().into());
        }
        let bucket = setup.shared_by_copies(|| Ok::<_, ConfigError>(TokenBucket::new(rate, burst, burst)))?;
        Ok(Self { bucket, burst })
    }

    /// Takes one error from the rate, if one more may be sent now.
    pub(super) fn check(&self, now_ns: u64) -> Result<(), &'static str> {
        if self.bucket.take_up_to(now_ns, 1) == 1 { Ok(()) } else { Err(TOO_MANY) }
    }

    /// Errors a second; 0 sets no limit.
    pub(super) fn get(&self) -> u64 {
        self.bucket.rate()
    }

    /// Sets errors a second, as written to a handler.
    pub(super) fn set(&self, now_ns: u64, value: &str) -> Result<(), String> {
        self.bucket.set(now_ns, u64::from_value(value)?, self.burst);
        Ok(())
    }
}

//! How many ICMP errors a second are sent: RFC 1812, 4.3.2.8, and RFC 4443, 2.4 (f), "an IPv6 node MUST limit
//! the rate of ICMPv6 error messages it originates", and recommends a token bucket. Sweeps for hosts and
//! loops would be answered packet by packet otherwise.

use std::sync::Arc;

use graph::arguments::Arguments;
use graph::{ConfigError, FromArgument, Setup};

use crate::token_bucket::TokenBucket;

/// Why an error is not sent.
pub(super) const TOO_MANY: &str = "too many ICMP errors";

/// The RATE and BURST arguments.
pub(super) struct Limits {
    rate: u64,
    burst: u64,
}

impl Limits {
    /// Reads them: 1,000 errors a second, and 100 at once, by default. That is a traceroute of everybody in a
    /// small network, and no work for the slow thread.
    pub(super) fn read(arguments: &mut Arguments) -> Result<Self, ConfigError> {
        let rate = arguments.keyword_or("RATE", 1000)?;
        let burst = arguments.keyword_or("BURST", 100)?;
        if burst == 0 {
            return Err("BURST: expected at least 1, got 0".to_owned().into());
        }
        Ok(Self { rate, burst })
    }
}

/// The limit of an element, for all its copies together.
pub(super) struct ErrorRate {
    bucket: Arc<TokenBucket>,
    burst: u64,
}

impl ErrorRate {
    pub(super) fn new(setup: &Setup<'_>, limits: &Limits) -> Result<Self, ConfigError> {
        let &Limits { rate, burst } = limits;
        let bucket = setup.shared_by_copies(|| Ok::<_, ConfigError>(TokenBucket::new(rate, burst, burst)))?;
        Ok(Self { bucket, burst })
    }

    /// Whether one more error may be sent now.
    pub(super) fn allows(&self, now_ns: u64) -> bool {
        self.bucket.take_up_to(now_ns, 1) == 1
    }

    /// Errors a second; 0 is no limit.
    pub(super) fn get(&self) -> u64 {
        self.bucket.rate()
    }

    /// Sets errors a second, as a handler was told.
    pub(super) fn set(&self, now_ns: u64, value: &str) -> Result<(), String> {
        self.bucket.set(now_ns, u64::from_value(value)?, self.burst);
        Ok(())
    }
}

//! Elements that choose among patterns for a rewriter: what they choose, and how rewriters find them.
//!
//! The rewriters of a copy look at the choice in place; nothing is called.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use graph::{ConfigError, Setup};

use super::flow::Tuple;
use super::pattern::Pattern;

/// How a mapper chooses.
#[derive(Debug)]
pub(super) enum Choice {
    /// One after the other; the number of the next.
    RoundRobin(AtomicUsize),
    /// By the source address: points on a ring, in order, each with the number of its pattern.
    SourceHash(Vec<(u32, usize)>),
}

/// Patterns with their outputs, and how one is chosen.
#[derive(Debug)]
pub(super) struct Mapper {
    pub(super) patterns: Vec<(Arc<Pattern>, [u16; 2])>,
    pub(super) choice: Choice,
}

/// Where a rewriter finds a mapper that may be made later.
pub(super) type MapperSlot = OnceLock<Mapper>;

/// The classes of mappers.
const CLASSES: [&str; 2] = ["RoundRobinIPMapper", "SourceIPHashMapper"];

/// Spreads a number over all 32 bits (the finaliser of MurmurHash3).
pub(super) fn mix(number: u32) -> u32 {
    let number = (number ^ number >> 16).wrapping_mul(0x85eb_ca6b);
    let number = (number ^ number >> 13).wrapping_mul(0xc2b2_ae35);
    number ^ number >> 16
}

impl Mapper {
    fn slot(setup: &Setup<'_>, name: &str) -> Result<Arc<MapperSlot>, ConfigError> {
        let key = format!("IP mapper {name} on {}", setup.copy().index);
        setup.shared().get_or_make(&key, || Ok(MapperSlot::new()))
    }

    /// The mapper called `name`, as the element being made sees it. `None`: no element has that name.
    pub(super) fn find(setup: &Setup<'_>, name: &str) -> Option<Result<Arc<MapperSlot>, ConfigError>> {
        let element = setup.find(name)?;
        Some(match CLASSES.contains(&element.class.as_str()) {
            true => Self::slot(setup, &element.name),
            false => Err(format!("'{name}' is a {}, not an IP mapper", element.class).into()),
        })
    }

    /// Lets rewriters find this mapper under the name of the element being made.
    pub(super) fn publish(self, setup: &Setup<'_>) -> Result<(), ConfigError> {
        let _ = Self::slot(setup, setup.name())?.set(self);
        Ok(())
    }

    /// The numbers of the patterns to try for a flow.
    pub(super) fn candidates(&self, flow: Tuple) -> impl Iterator<Item = &(Arc<Pattern>, [u16; 2])> {
        let count = self.patterns.len();
        let (first, tries) = match &self.choice {
            Choice::RoundRobin(next) => (next.load(Relaxed), count),
            Choice::SourceHash(points) => {
                let hash = mix(flow.source);
                let at = points.partition_point(|(point, _)| *point < hash);
                (points.get(at).or(points.first()).map_or(0, |(_, pattern)| *pattern), 1)
            }
        };
        (0..tries).filter_map(move |step| {
            let number = (first + step) % count.max(1);
            if let Choice::RoundRobin(next) = &self.choice {
                next.store((number + 1) % count.max(1), Relaxed);
            }
            self.patterns.get(number)
        })
    }
}

//! Back-pressure: while a `ToDevice` that may not drop has more than it can send, the `FromDevice`s whose packets lead to
//! it receive nothing, and packets wait in the receive rings.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use graph::Setup;
use graph::setup::Direction;

use super::SENDER;

/// Which copies of a `ToDevice` want receivers to wait; each copy writes its own.
#[derive(Debug)]
pub(super) struct Congestion {
    /// Whether the element holds receivers back at all.
    blocks: AtomicBool,
    copies: Vec<AtomicBool>,
}

impl Congestion {
    /// That of the `ToDevice` called `name`.
    pub(super) fn of(setup: &Setup<'_>, name: &str) -> Arc<Self> {
        let make = || {
            let copies = (0..setup.copy().count()).map(|_| AtomicBool::new(false)).collect();
            Ok::<_, std::convert::Infallible>(Self { blocks: AtomicBool::new(false), copies })
        };
        match setup.shared().get_or_make(&format!("congestion of {name}"), make) {
            Ok(congestion) => congestion,
            Err(never) => match never {},
        }
    }

    /// Those of all `ToDevice`s that the running element's packets may come to.
    pub(super) fn downstream(setup: &Setup<'_>) -> Vec<Arc<Self>> {
        let senders = setup.nearest(Direction::Downstream(0), SENDER);
        senders.names.iter().map(|name| Self::of(setup, name)).collect()
    }

    /// Says that the element holds receivers back.
    pub(super) fn block(&self) {
        self.blocks.store(true, Ordering::Relaxed);
    }

    /// Whether the element holds receivers back; known once all elements are made.
    pub(super) fn blocks(&self) -> bool {
        self.blocks.load(Ordering::Relaxed)
    }

    /// Whether receivers are to wait that give their packets to copy `copy`, or to any (`None`).
    #[inline]
    pub(super) fn holds(&self, copy: Option<usize>) -> bool {
        match copy {
            Some(copy) => self.copies.get(copy).is_some_and(|copy| copy.load(Ordering::Relaxed)),
            None => self.copies.iter().any(|copy| copy.load(Ordering::Relaxed)),
        }
    }

    /// Copy `copy` has more than it can send, or no longer.
    pub(super) fn set(&self, copy: usize, congested: bool) {
        if let Some(copy) = self.copies.get(copy) {
            copy.store(congested, Ordering::Relaxed);
        }
    }
}

//! Where the policies come from while a router runs: whoever follows the kernel's says when there are some.
//!
//! Without policies and associations IpsecPolicy and EspToHost do nothing to packets, and may be part of runs ([`graph::runs`]). They
//! must have left them before the first policy counts. So whoever replaces the contents of a [`Database`](super::Database) first calls
//! [`Lead::set_active`], then writes to the elements' handlers `refresh`, which returns when all copies have left the runs, then calls
//! `Database::replace`. Elements of a configuration that takes another's place later never enter runs.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use graph::runs::Ordinary;
use graph::setup::Shared;
use graph::{Context, Setup};

/// What elements know of whoever says what the policies are.
#[derive(Debug)]
pub struct Lead {
    is_starting: AtomicBool,
    is_active: AtomicBool,
}

impl Lead {
    const KEY: &str = "ipsec lead!";

    /// Takes the lead of the router whose elements will share this, before they are made.
    pub fn take(shared: &Shared) -> Arc<Self> {
        let new = || Self { is_starting: AtomicBool::new(true), is_active: AtomicBool::new(false) };
        let Ok(lead) = shared.get_or_make(Self::KEY, || Ok::<_, Infallible>(new()));
        lead
    }

    /// Returns that of a router, if somebody has taken it.
    pub fn of(shared: &Shared) -> Option<Arc<Self>> {
        shared.get(Self::KEY)
    }

    /// Says that all elements of the first configuration are made.
    pub fn has_started(&self) {
        self.is_starting.store(false, Ordering::SeqCst);
    }

    /// Says whether there are policies or associations. The handlers `refresh` have to be written afterwards.
    pub fn set_active(&self, is_active: bool) {
        self.is_active.store(is_active, Ordering::SeqCst);
    }

    /// Returns whether there are policies or associations, as was said last.
    pub fn is_active(&self) -> bool {
        self.is_active.load(Ordering::SeqCst)
    }
}

/// Whether an element may be part of runs.
pub(super) struct Idle {
    lead: Option<Arc<Lead>>,
    is_active: bool,
}

impl Idle {
    /// That of an element that is made.
    pub(super) fn of_element(setup: &Setup<'_>) -> Self {
        let lead = Lead::of(setup.shared()).filter(|lead| lead.is_starting.load(Ordering::SeqCst));
        Self { is_active: lead.as_ref().is_none_or(|lead| lead.is_active()), lead }
    }

    /// Looks again.
    pub(super) fn refresh(&mut self) {
        self.is_active = self.lead.as_ref().is_none_or(|lead| lead.is_active());
    }

    /// What the element does to ordinary packets: nothing, as long as there is nothing to do.
    pub(super) fn ordinary(&self) -> Option<Ordinary> {
        if self.is_active { None } else { crate::runs::ordinary([]) }
    }
}

/// An element that does nothing without policies.
pub(super) trait HasIdle: 'static {
    fn idle(&mut self) -> &mut Idle;

    /// Writes the handler `refresh`.
    fn refresh(&mut self, _cx: &mut Context, _value: &str) -> Result<(), String> {
        self.idle().refresh();
        Ok(())
    }
}

/// The documentation of the handler `refresh`.
pub(super) const REFRESH: &str =
    "Looks whether there are policies or associations. `brickway run` writes it when that changes.";

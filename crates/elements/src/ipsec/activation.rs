//! When IPsec's elements may be part of runs.
//!
//! Without policies and associations IpsecPolicy and EspToHost do nothing to packets, and may be part of runs ([`graph::runs`]). They
//! must leave the runs before the first policy counts. The owner of the contents, in `brickway run` what follows the kernel, does so in
//! three steps:
//!
//! 1. [`Activation::set_active`].
//! 2. Write to the elements' handlers `refresh`. That returns when all copies have left the runs.
//! 3. [`Database::replace`](super::Database::replace).
//!
//! Elements of a configuration that takes another's place later never enter runs.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use graph::runs::Ordinary;
use graph::setup::Shared;
use graph::{Context, Setup};

/// Whether there are policies or associations, as the owner of the contents said last.
#[derive(Debug)]
pub struct Activation {
    is_starting: AtomicBool,
    is_active: AtomicBool,
}

impl Activation {
    const KEY: &str = "ipsec activation!";

    /// Returns that of a router, whose elements may be part of runs from now on. It is made before they are.
    pub fn take(shared: &Shared) -> Arc<Self> {
        let new = || Self { is_starting: AtomicBool::new(true), is_active: AtomicBool::new(false) };
        let Ok(activation) = shared.get_or_make(Self::KEY, || Ok::<_, Infallible>(new()));
        activation
    }

    /// Returns that of a router, if it has an owner of contents.
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
    activation: Option<Arc<Activation>>,
    is_active: bool,
}

impl Idle {
    /// That of an element that is made.
    pub(super) fn of_element(setup: &Setup<'_>) -> Self {
        let activation =
            Activation::of(setup.shared()).filter(|activation| activation.is_starting.load(Ordering::SeqCst));
        Self { is_active: activation.as_ref().is_none_or(|activation| activation.is_active()), activation }
    }

    /// Looks again.
    pub(super) fn refresh(&mut self) {
        self.is_active = self.activation.as_ref().is_none_or(|activation| activation.is_active());
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

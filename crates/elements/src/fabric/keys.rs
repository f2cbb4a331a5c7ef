//! The keys of hellos, as the control plane gives them to elements.

use packet::sync::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use fabric::Keys;

/// The keys by which nodes of the cluster prove who they are. The control plane puts them under [`FabricKeys::KEY`] into what the
/// elements share before the graph is made, and changes them at any time.
#[derive(Debug)]
pub struct FabricKeys {
    keys: Mutex<Keys>,
    /// Grows when `keys` changes.
    version: AtomicU64,
}

impl FabricKeys {
    /// Where elements look for it.
    pub const KEY: &'static str = "fabric keys";

    /// Keys from their bytes: hellos are tagged with the first and believed with any.
    pub fn new(keys: &[[u8; Keys::KEY_LEN]]) -> FabricKeys {
        FabricKeys { keys: Mutex::new(Keys::new(keys)), version: AtomicU64::new(0) }
    }

    /// Makes the keys these. Nodes may change one after the other: no link goes down as long as each accepts what its neighbours use.
    pub fn set(&self, keys: &[[u8; Keys::KEY_LEN]]) {
        *lock(&self.keys) = Keys::new(keys);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// A number that changes when the keys do.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The keys.
    pub(super) fn keys(&self) -> Keys {
        lock(&self.keys).clone()
    }
}

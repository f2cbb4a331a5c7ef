//! The keys of the fabric's hellos: read from the cluster's key file, and read again while the node runs.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use control::cluster::key::{KeyFile, KeyFileError};
use elements::fabric::FabricKeys;
use graph::setup::Shared;

/// Time between two looks at the key file.
const PERIOD: Duration = Duration::from_secs(1);

/// What the keys of hellos are derived for.
const PURPOSE: &str = "fabric hellos";

/// See the top of the file.
pub(super) struct HelloKeys {
    file: KeyFile,
    keys: Arc<FabricKeys>,
    looked: Instant,
    /// Why the file could not be read again, as it was reported.
    reported: Option<String>,
}

fn derived(file: &KeyFile) -> Vec<[u8; 32]> {
    file.keys().iter().map(|key| key.derive(PURPOSE)).collect()
}

impl HelloKeys {
    /// Reads the key file, and gives its keys to the elements.
    pub(super) fn load(path: &Path, shared: &Shared) -> Result<HelloKeys> {
        let file = KeyFile::load(path)?;
        let keys = shared
            .get_or_make(FabricKeys::KEY, || Ok::<_, anyhow::Error>(FabricKeys::new(&derived(&file))))?;
        Ok(HelloKeys { file, keys, looked: Instant::now(), reported: None })
    }

    /// Reads the file again if it was written, at most once a second. Returns what an operator has to know.
    pub(super) fn look(&mut self) -> Option<String> {
        if self.looked.elapsed() < PERIOD {
            return None;
        }
        self.looked = Instant::now();
        let refreshed = self.file.refresh();
        self.follow(refreshed)
    }

    fn follow(&mut self, refreshed: Result<bool, KeyFileError>) -> Option<String> {
        match refreshed {
            Ok(true) => {
                let keys = derived(&self.file);
                self.keys.set(&keys);
                self.reported = None;
                Some(format!("key file '{}' was read again: {} keys", self.file.path().display(), keys.len()))
            }
            Ok(false) => None,
            Err(error) => {
                let text = format!("{error}; the keys of before stay in force");
                let is_news = self.reported.as_ref() != Some(&text);
                self.reported = Some(text.clone());
                is_news.then_some(text)
            }
        }
    }
}

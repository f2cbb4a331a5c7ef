//! Words of a configuration that are secret: handlers print `***` in their place.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Mutex;

use packet::sync::lock;

/// The secret words of a router.
#[derive(Default)]
pub(crate) struct Secrets(Mutex<BTreeSet<(Reverse<usize>, String)>>);

impl Secrets {
    /// Under which key they lie.
    pub(crate) const KEY: &str = "secret-words";

    /// Adds a word, as the configuration writes it.
    pub(crate) fn add(&self, word: String) {
        if !word.is_empty() {
            lock(&self.0).insert((Reverse(word.len()), word));
        }
    }

    /// Returns the text with `***` in the place of each secret word, the longest first.
    pub(crate) fn hidden_in(&self, text: String) -> String {
        lock(&self.0).iter().fold(text, |text, (_, word)| {
            if text.contains(word.as_str()) { text.replace(word.as_str(), "***") } else { text }
        })
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_word_goes_first() {
        let secrets = Secrets::default();
        ["", "key", "a-key-b"].iter().for_each(|word| secrets.add((*word).to_owned()));
        assert_eq!(secrets.hidden_in("key a-key-b monkey".to_owned()), "*** *** mon***");
    }
}

//! Lists in messages from outside that have a greatest length.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

/// Reads a list of at most `MOST` items. A longer one is refused before memory is taken for it.
pub(crate) fn at_most<'de, D, T, const MOST: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_seq(Items::<T, MOST>(PhantomData))
}

struct Items<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Items<T, MOST> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {MOST} items")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        let expected = items.size_hint().unwrap_or(0);
        let mut list = Vec::new();
        while expected <= MOST && list.len() < MOST {
            match items.next_element()? {
                Some(item) => list.push(item),
                None => return Ok(list),
            }
        }
        // A list of exactly that length has no next one.
        match list.len() == MOST && expected <= MOST && items.next_element::<T>()?.is_none() {
            true => Ok(list),
            false => Err(A::Error::invalid_length(expected.max(list.len()), &self)),
        }
    }
}

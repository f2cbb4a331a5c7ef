//! What many routes have in common, stored once: values by number, each counted by its users.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// A key, what belongs to it, and how many use its number.
#[derive(Debug)]
pub(crate) struct Interned<K, V> {
    pub(crate) key: Arc<K>,
    pub(crate) value: V,
    pub(crate) users: u32,
}

/// Keys by number.
#[derive(Debug)]
pub(crate) struct Interner<K, V = ()> {
    numbers: HashMap<Arc<K>, u32>,
    slots: Vec<Option<Interned<K, V>>>,
    free: Vec<u32>,
}

impl<K, V> Default for Interner<K, V> {
    fn default() -> Self {
        Interner { numbers: HashMap::new(), slots: Vec::new(), free: Vec::new() }
    }
}

impl<K: Eq + Hash, V> Interner<K, V> {
    /// Returns the number of a key that is there, with one user more.
    pub(crate) fn find(&mut self, key: &K) -> Option<u32> {
        let number = *self.numbers.get(key)?;
        self.get_mut(number).users += 1;
        Some(number)
    }

    /// Gives a key a number, with one user.
    pub(crate) fn add(&mut self, key: Arc<K>, value: V) -> u32 {
        let number = self.free.pop().unwrap_or(self.slots.len() as u32);
        if number as usize == self.slots.len() {
            self.slots.push(None);
        }
        self.numbers.insert(Arc::clone(&key), number);
        self.slots[number as usize] = Some(Interned { key, value, users: 1 });
        number
    }

    /// From now on nobody finds this number by its key.
    pub(crate) fn hide(&mut self, number: u32) {
        let key = Arc::clone(&self.get(number).key);
        if self.numbers.get(&key) == Some(&number) {
            self.numbers.remove(&key);
        }
    }

    /// One user of a number less. After the last it is free, and what belonged to it is returned.
    pub(crate) fn release(&mut self, number: u32) -> Option<V> {
        let known = self.get_mut(number);
        known.users -= 1;
        if known.users > 0 {
            return None;
        }
        self.hide(number);
        self.free.push(number);
        self.slots[number as usize].take().map(|known| known.value)
    }

    pub(crate) fn get(&self, number: u32) -> &Interned<K, V> {
        self.slots[number as usize].as_ref().expect("a number in use has a key")
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> &mut Interned<K, V> {
        self.slots[number as usize].as_mut().expect("a number in use has a key")
    }

    /// Returns the numbers in use with what they stand for.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Interned<K, V>)> {
        (0..).zip(&self.slots).filter_map(|(number, slot)| Some((number, slot.as_ref()?)))
    }
}

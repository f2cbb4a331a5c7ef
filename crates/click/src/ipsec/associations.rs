//! The associations of a router, by SPI, for the elements of all workers.
//!
//! Each lookup element has associations of its own, which its copies share ([`Owned`]); workers see those of all together
//! ([`Table`]). A change makes a new table and publishes it ([`fib::publish`]), so workers neither wait nor need a message.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use fib::publish::{Reader, Readers, Writer, pair};
use graph::{Context, Setup, Verdict};
use ipsec::Fault;
use packet::sync::lock;
use packet::{Batch, Packet};

use super::association::{Association, Settings};

/// Why packets without an association are dropped.
pub(super) const NO_ASSOCIATION: &str = "IPsec: no association";

/// Offset of the SPI annotation, which is Click's: 4 bytes.
const SPI_ANNOTATION: usize = 32;

/// The associations that packets can have, in the order of their SPIs.
#[derive(Default)]
pub(super) struct Table(Box<[Arc<Association>]>);

impl Table {
    /// Returns the association of an SPI.
    pub(super) fn get(&self, spi: u32) -> Option<&Association> {
        let place = self.0.binary_search_by_key(&spi, |association| association.settings.spi).ok()?;
        Some(&self.0[place])
    }

    /// Returns the association of a packet.
    pub(super) fn of(&self, packet: &Packet) -> Option<&Association> {
        self.get(packet.annotations().u32_at(SPI_ANNOTATION).filter(|spi| *spi != 0)?)
    }
}

/// Writes the SPI of a packet's association.
pub(super) fn mark(packet: &mut Packet, spi: u32) {
    packet.annotations_mut().set_u32_at(SPI_ANNOTATION, spi);
}

/// An element's access to the associations.
pub(super) struct Access(Reader<Arc<Table>>);

impl Access {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        Self(Associations::of(setup).readers.register())
    }

    /// Returns the associations that there are now.
    pub(super) fn enter(&mut self) -> impl std::ops::Deref<Target = Arc<Table>> {
        self.0.enter()
    }

    /// Does `work` to each packet with its association, and drops packets that fail or have none.
    pub(super) fn each(
        &mut self,
        cx: &mut Context,
        batch: &mut Batch,
        mut work: impl FnMut(&mut Packet, &Association) -> Result<(), Fault>,
    ) {
        let table = self.0.enter();
        cx.filter(batch, |packet| match table.of(packet).map(|association| work(packet, association)) {
            Some(Ok(())) => Verdict::Keep,
            Some(Err(fault)) => Verdict::Drop(fault.reason()),
            None => Verdict::Drop(NO_ASSOCIATION),
        });
    }
}

/// Those of one lookup element.
struct Owner {
    number: u64,
    element: String,
    associations: Vec<Arc<Association>>,
}

struct Writing {
    writer: Writer<Arc<Table>>,
    owners: Vec<Owner>,
    next_number: u64,
}

/// The associations of a router.
pub(super) struct Associations {
    writing: Mutex<Writing>,
    readers: Readers<Arc<Table>>,
}

impl Associations {
    /// Its name among what elements share.
    const KEY: &str = "click-ipsec";

    fn of(setup: &Setup<'_>) -> Arc<Self> {
        let make = || {
            let (writer, readers) = pair(Arc::<Table>::default(), Arc::<Table>::default());
            let writing = Mutex::new(Writing { writer, owners: Vec::new(), next_number: 0 });
            Ok::<_, Infallible>(Self { writing, readers })
        };
        let Ok(associations) = setup.shared().get_or_make(Self::KEY, make);
        associations
    }
}

impl Writing {
    /// Has workers see what the owners have. Of two with one SPI the later one counts: its configuration is newer.
    fn publish(&mut self) {
        let all = self.owners.iter().flat_map(|owner| &owner.associations);
        let by_spi: BTreeMap<u32, _> =
            all.map(|association| (association.settings.spi, association.clone())).collect();
        let table = Arc::new(Table(by_spi.into_values().collect()));
        *self.writer.both().0 = table.clone();
        self.writer.publish();
        // The other copy too, so that no key stays that was replaced.
        *self.writer.both().0 = table;
    }

    fn owned(&mut self, number: u64) -> &mut Vec<Arc<Association>> {
        let owner = self.owners.iter_mut().find(|owner| owner.number == number);
        &mut owner.expect("an owner is there until it is dropped").associations
    }
}

/// The associations of one lookup element, which its copies share. They go with it.
pub(super) struct Owned {
    all: Arc<Associations>,
    number: u64,
}

impl Owned {
    /// Makes that of an element, with these associations.
    ///
    /// # Errors
    ///
    /// Two associations have one SPI.
    pub(super) fn new(setup: &Setup<'_>, settings: Vec<Settings>) -> Result<Self, String> {
        let all = Associations::of(setup);
        let owned = {
            let mut writing = lock(&all.writing);
            writing.next_number += 1;
            let number = writing.next_number;
            let element = setup.name().to_owned();
            writing.owners.push(Owner { number, element, associations: Vec::new() });
            Self { all: all.clone(), number }
        };
        owned.change(settings, || Ok(()), None)?;
        Ok(owned)
    }

    /// Adds associations, makes a change of routes, and takes away what the routes then do not use, where `used` says that. If
    /// the change fails the associations are as before.
    ///
    /// # Errors
    ///
    /// Two associations have one SPI, or the change failed.
    pub(super) fn change(
        &self,
        settings: Vec<Settings>,
        change: impl FnOnce() -> Result<(), String>,
        used: Option<&dyn Fn() -> BTreeSet<u32>>,
    ) -> Result<(), String> {
        let mut writing = lock(&self.all.writing);
        let before = writing.owned(self.number).clone();
        let mut after = before.clone();
        for (at, wanted) in settings.iter().enumerate() {
            let spi = wanted.spi;
            if settings[..at].iter().any(|other| other.spi == spi && other != wanted) {
                return Err(format!(
                    "SPI {spi}: two routes differ in its keys or numbers; expected the same"
                ));
            }
            let element =
                &writing.owners.iter().find(|owner| owner.number == self.number).map(|o| &o.element);
            let known = writing.owners.iter().flat_map(|owner| {
                owner.associations.iter().map(move |association| (&owner.element, association))
            });
            let same_spi = known.filter(|(_, association)| association.settings.spi == spi);
            let mut association = None;
            for (other, known) in same_spi {
                if known.settings == *wanted {
                    // It goes on, with its numbers.
                    association = Some(known.clone());
                } else if Some(other) != *element {
                    return Err(format!(
                        "SPI {spi}: '{other}' has other keys or numbers for it; expected the same, or another SPI"
                    ));
                }
            }
            after.retain(|known| known.settings.spi != spi);
            after.push(association.unwrap_or_else(|| Arc::new(Association::new(wanted.clone()))));
        }
        // Packets find the association of a route as soon as they find the route.
        *writing.owned(self.number) = after;
        writing.publish();
        let result = change();
        match (&result, used) {
            (Err(_), _) => *writing.owned(self.number) = before,
            (Ok(()), Some(used)) => {
                let used = used();
                writing.owned(self.number).retain(|known| used.contains(&known.settings.spi));
            }
            (Ok(()), None) => return Ok(()),
        }
        writing.publish();
        result
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let mut writing = lock(&self.all.writing);
        writing.owners.retain(|owner| owner.number != self.number);
        writing.publish();
    }
}

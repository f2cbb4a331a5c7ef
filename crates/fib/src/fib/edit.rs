//! Changes of a FIB, and their publication.

use super::{EditError, Fib, Half, MAIN, PutOff, State, Tables, Vrf};
use crate::{AnyTable, Change, FibFamily, NextHopIndex, NextHops, Rib, TableError};
use ipnet::IpNet;
use packet::{Family, pulse};
use std::hash::Hash;

/// One change of a route.
#[derive(Clone, Copy)]
enum Step {
    Insert(NextHopIndex),
    Replace(NextHopIndex),
    Remove,
}

impl<P: Copy + Eq + Hash + Send + Sync> Fib<P> {
    /// The next hops, to add, change, fail and remove.
    ///
    /// Routes hold theirs: release only what you have held yourself.
    ///
    /// One that no route uses any more can be removed before the publication: workers still in the older state have
    /// their own copy of it.
    pub fn next_hops_mut(&mut self) -> &mut NextHops<P> {
        self.has_unpublished = true;
        &mut self.next_hops
    }

    /// Adds a VRF with this table number, without routes.
    ///
    /// # Errors
    ///
    /// [`EditError::VrfExists`]; [`EditError::Table`] if there is no memory for it.
    pub fn add_vrf(&mut self, table: u32) -> Result<(), EditError> {
        if self.vrfs.contains_key(&table) {
            return Err(EditError::VrfExists { table });
        }
        let (mut now, mut later) = (Tables::new(self.kinds)?, Tables::new(self.kinds)?);
        let region = self.shared.as_ref().map(|shared| shared.region());
        if region.is_some() {
            now.relocate(region)?;
            later.relocate(region)?;
        }
        let (passive, _) = self.writer.both();
        let index = passive.vrfs.iter().position(Option::is_none).unwrap_or(passive.vrfs.len());
        self.vrfs.insert(table, Vrf::new(index, &now));
        put(passive, index, Some(now));
        self.has_unpublished = true;
        self.vrfs_behind.push((index, Some(later)));
        Ok(())
    }

    /// Removes a VRF with all its routes.
    ///
    /// # Errors
    ///
    /// [`EditError::UnknownVrf`], [`EditError::MainStays`].
    pub fn remove_vrf(&mut self, table: u32) -> Result<(), EditError> {
        if table == MAIN {
            return Err(EditError::MainStays);
        }
        let vrf = self.vrfs.remove(&table).ok_or(EditError::UnknownVrf { table })?;
        self.has_unpublished = true;
        release_all(&mut self.next_hops, &vrf.ipv4.rib);
        release_all(&mut self.next_hops, &vrf.ipv6.rib);
        put(self.writer.both().0, vrf.index, None);
        self.vrfs_behind.push((vrf.index, None));
        Ok(())
    }

    /// Adds a route to the VRF with this table number.
    ///
    /// # Errors
    ///
    /// As [`Rib::insert`]; and if the next hop or the VRF is unknown or the table is full.
    pub fn insert(&mut self, table: u32, prefix: IpNet, next_hop: NextHopIndex) -> Result<Change, EditError> {
        self.step(table, prefix, Step::Insert(next_hop))
    }

    /// Adds a route, in the place of the one that the prefix has, if there is one.
    ///
    /// # Errors
    ///
    /// As [`Rib::replace`]; and if the next hop or the VRF is unknown or the table is full.
    pub fn replace(
        &mut self,
        table: u32,
        prefix: IpNet,
        next_hop: NextHopIndex,
    ) -> Result<Change, EditError> {
        self.step(table, prefix, Step::Replace(next_hop))
    }

    /// Removes the route to this prefix.
    ///
    /// # Errors
    ///
    /// As [`Rib::remove`]; and if the VRF is unknown or the table is full (flattened, fewer routes can take more room).
    pub fn remove(&mut self, table: u32, prefix: IpNet) -> Result<Change, EditError> {
        self.step(table, prefix, Step::Remove)
    }

    fn step(&mut self, table: u32, prefix: IpNet, step: Step) -> Result<Change, EditError> {
        let vrf = self.vrfs.get_mut(&table).ok_or(EditError::UnknownVrf { table })?;
        let (passive, _) = self.writer.both();
        let tables =
            passive.vrfs[vrf.index].as_mut().expect("a VRF that the control side has is in its state");
        let change = match prefix {
            IpNet::V4(prefix) => change(&mut vrf.ipv4, &mut tables.ipv4, &mut self.next_hops, prefix, step),
            IpNet::V6(prefix) => change(&mut vrf.ipv6, &mut tables.ipv6, &mut self.next_hops, prefix, step),
        }?;
        self.has_unpublished |= change.is_visible();
        Ok(change)
    }

    /// Takes all IPv4 routes of a VRF from `rib`, in the place of those it has: the quickest way to load a table.
    ///
    /// # Errors
    ///
    /// If a next hop or the VRF is unknown, or the table is full or has no memory. The routes are then as before.
    pub fn load4(&mut self, table: u32, rib: Rib<u32>) -> Result<(), EditError> {
        self.has_unpublished = true;
        let vrf = self.vrfs.get_mut(&table).ok_or(EditError::UnknownVrf { table })?;
        let (passive, _) = self.writer.both();
        let tables =
            passive.vrfs[vrf.index].as_mut().expect("a VRF that the control side has is in its state");
        load(&mut vrf.ipv4, &mut tables.ipv4, &mut self.next_hops, rib)
    }

    /// The same for IPv6.
    ///
    /// # Errors
    ///
    /// As [`Fib::load4`].
    pub fn load6(&mut self, table: u32, rib: Rib<u128>) -> Result<(), EditError> {
        self.has_unpublished = true;
        let vrf = self.vrfs.get_mut(&table).ok_or(EditError::UnknownVrf { table })?;
        let (passive, _) = self.writer.both();
        let tables =
            passive.vrfs[vrf.index].as_mut().expect("a VRF that the control side has is in its state");
        load(&mut vrf.ipv6, &mut tables.ipv6, &mut self.next_hops, rib)
    }

    /// Whether there may be changes that workers do not see.
    pub fn has_unpublished(&self) -> bool {
        self.has_unpublished
    }

    /// Makes all changes visible to workers, in one step. When it returns, no worker uses the state from before.
    pub fn publish(&mut self) {
        self.has_unpublished = false;
        let (passive, _) = self.writer.both();
        for vrf in self.vrfs.values_mut() {
            pulse::beat();
            if let Some(tables) = passive.vrfs[vrf.index].as_mut() {
                compile_put_off(&mut vrf.ipv4, &mut tables.ipv4);
                compile_put_off(&mut vrf.ipv6, &mut tables.ipv6);
            }
        }
        passive.resolver.catch_up(self.next_hops.resolver());
        self.follow_shared();
        self.writer.publish();
        let (behind, ahead) = self.writer.both();
        for (index, tables) in self.vrfs_behind.drain(..) {
            put(behind, index, tables);
        }
        for vrf in self.vrfs.values_mut() {
            pulse::beat();
            let both = (behind.vrfs[vrf.index].as_mut(), ahead.vrfs[vrf.index].as_ref());
            let (Some(behind), Some(ahead)) = both else { continue };
            catch_up(&mut vrf.ipv4, &mut behind.ipv4, &ahead.ipv4);
            catch_up(&mut vrf.ipv6, &mut behind.ipv6, &ahead.ipv6);
        }
        behind.resolver.catch_up(self.next_hops.resolver());
    }

    /// Has readers outside the process see the passive state, once it is published.
    fn follow_shared(&mut self) {
        let generation = self.writer.generation() + 1;
        if let Some(shared) = &self.shared {
            self.writer.both().0.follow_shared(shared, &self.shared_rules, generation);
        }
    }
}

fn put<P>(state: &mut State<P>, index: usize, tables: Option<Tables>) {
    if index == state.vrfs.len() {
        state.vrfs.push(None);
    }
    state.vrfs[index] = tables;
}

fn catch_up<A: FibFamily>(half: &mut Half<A>, behind: &mut AnyTable<A>, ahead: &AnyTable<A>) {
    if half.is_ahead {
        behind.catch_up(&mut half.compiler, &**ahead);
        half.is_ahead = false;
    }
}

fn hold<P: Copy + Eq + Hash>(next_hops: &mut NextHops<P>, index: NextHopIndex) {
    if index.is_some() {
        next_hops.hold(index).expect("the next hop of a route was found to exist");
    }
}

fn release<P: Copy + Eq + Hash>(next_hops: &mut NextHops<P>, index: NextHopIndex) {
    if index.is_some() {
        next_hops.release(index).expect("a route holds its next hop");
    }
}

fn release_all<P: Copy + Eq + Hash, A: Family>(next_hops: &mut NextHops<P>, rib: &Rib<A>) {
    rib.iter().for_each(|found| {
        pulse::beat();
        release(next_hops, found.next_hop);
    });
}

/// Changes one route in the RIB, the table and the books of the next hops, or nothing.
fn change<P: Copy + Eq + Hash, A: FibFamily>(
    half: &mut Half<A>,
    table: &mut AnyTable<A>,
    next_hops: &mut NextHops<P>,
    prefix: A::Net,
    step: Step,
) -> Result<Change, EditError> {
    pulse::beat();
    if let Step::Insert(next_hop) | Step::Replace(next_hop) = step
        && !next_hops.exists(next_hop)
    {
        return Err(EditError::UnknownNextHop { prefix: prefix.into(), next_hop });
    }
    let change = match step {
        Step::Insert(next_hop) => half.rib.insert(prefix, next_hop),
        Step::Replace(next_hop) => half.rib.replace(prefix, next_hop),
        Step::Remove => half.rib.remove(prefix),
    }?;
    if !change.is_visible() {
        return Ok(change);
    }
    half.is_ahead = true;
    if let Err(error) = compile(half, table, prefix) {
        half.rib.undo(prefix, change);
        rebuild(half, table);
        return Err(error.into());
    }
    if let Some(next_hop) = change.after {
        hold(next_hops, next_hop);
    }
    if let Some(next_hop) = change.before {
        release(next_hops, next_hop);
    }
    Ok(change)
}

/// Brings the table in line after the route at a prefix was changed, or puts that off if the table is certain to have room.
fn compile<A: FibFamily>(
    half: &mut Half<A>,
    table: &mut AnyTable<A>,
    prefix: A::Net,
) -> Result<(), TableError> {
    if table.surely_fits(&half.rib) {
        half.put_off.note(&half.rib, prefix);
        Ok(())
    } else if half.put_off.is_empty() {
        table.update(&mut half.compiler, &half.rib, prefix)
    } else {
        // Without this change there is room for what was put off.
        half.put_off = PutOff::All;
        half.put_off.compile(table, &mut half.compiler, &half.rib)
    }
}

fn compile_put_off<A: FibFamily>(half: &mut Half<A>, table: &mut AnyTable<A>) {
    let compiled = half.put_off.compile(table, &mut half.compiler, &half.rib);
    compiled.expect("what was put off fits");
}

fn rebuild<A: FibFamily>(half: &mut Half<A>, table: &mut AnyTable<A>) {
    half.put_off = PutOff::default();
    let rebuilt = table.rebuild(&mut half.compiler, &half.rib);
    rebuilt.expect("a table that held these routes holds them again");
}

/// Takes all routes from `rib`.
fn load<P: Copy + Eq + Hash, A: FibFamily>(
    half: &mut Half<A>,
    table: &mut AnyTable<A>,
    next_hops: &mut NextHops<P>,
    rib: Rib<A>,
) -> Result<(), EditError> {
    if let Some(found) = rib.iter().find(|found| !next_hops.exists(found.next_hop)) {
        let (prefix, next_hop) = (found.prefix.into(), found.next_hop);
        return Err(EditError::UnknownNextHop { prefix, next_hop });
    }
    table.check_memory(rib.len())?;
    let before = std::mem::replace(&mut half.rib, rib);
    half.is_ahead = true;
    half.put_off = PutOff::default();
    if let Err(error) = table.rebuild(&mut half.compiler, &half.rib) {
        half.rib = before;
        rebuild(half, table);
        return Err(error.into());
    }
    half.rib.iter().for_each(|found| {
        pulse::beat();
        hold(next_hops, found.next_hop);
    });
    release_all(next_hops, &before);
    Ok(())
}

//! What Linux has of IPsec, followed while the router runs.
//!
//! A thread of its own hears of each change and makes the tables of the elements anew ([`Database::replace`]). It also reports to the
//! kernel what associations did (`report`), and judges ESP that Linux handles (`caught`).
//!
//! **From nothing to something.** Without policies IPsec's elements may be part of runs, and Linux's forwarding in the kernel may
//! pass by them. Before the first policy counts, that ends: the thread asks the main thread, which has the router
//! ([`Follower::prepare`]).

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use control::cluster::member::MemberShared;
use control::cluster::protection::Told;
use control::esp_hooks::EspHooksError;
use control::netlink::xfrm::{
    Action, Defaults, Event, Mode, Policy as KernelPolicy, PolicyIndex, Protocol, Rank, Requests, Sa, SaId,
    Watch, WatchOptions,
};
use control::supervisor::{LONGEST_WAIT, Pulse, Supervisor};
use elements::devices::OpenPort;
use elements::devices::follow_linux::Followed;
use elements::ipsec::{Activation, Contents, Database, Entry, Kept, PolicyAction};
use graph::setup::Shared;
use ipsec::{Association, Backend};
use packet::pulse::Holder;
use packet::sync::lock;
use ports::PERMITTED_MARK;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::caught::Caught;
use super::in_cluster::InCluster;
use super::path_mtu::{PathMtus, path_mtu};
use super::report::Reported;
use super::translation;
use crate::features::{Follower, Protector, ProtectorOptions};

/// Time between two reports to the kernel.
const PERIOD: Duration = Duration::from_secs(1);

/// Time between two attempts to catch ESP of Linux's own, each of which may have the kernel look for modules.
const RETRY: Duration = Duration::from_secs(10);

/// How long the kernel may take to tell what it has.
pub(super) const LONGEST_DUMP: Duration = Duration::from_secs(30);

/// How long there must have been nothing before the elements become part of runs again.
const REST: Duration = Duration::from_secs(10);

/// Numbers that an association leaves out when another one takes its place under traffic.
const LEFT_OUT: u64 = 4_096;

/// Why an association is Linux's though the fast path could do it.
const NOT_CAUGHT: &str = "its ESP is not caught";

/// The same where its numbers are not known.
const NO_NUMBERS: &str = "Linux does not tell its sequence numbers";

/// An association of the kernel.
pub(super) struct Known {
    pub(super) sa: Sa,
    /// Ours, or why Linux keeps it.
    pub(super) association: Result<Arc<Association>, String>,
    /// Whether it is Linux's only because ESP of Linux's own is not caught.
    is_uncaught: bool,
    /// The later it was installed, the higher.
    order: u64,
    pub(super) reported: Reported,
}

#[cfg(test)]
impl Known {
    pub(super) fn for_test(sa: Sa, association: Association) -> Self {
        let reported = Reported::default();
        Self { sa, association: Ok(Arc::new(association)), is_uncaught: false, order: 0, reported }
    }
}

/// What there is.
#[derive(Default)]
pub(super) struct State {
    pub(super) sas: BTreeMap<SaId, Known>,
    pub(super) policies: BTreeMap<Rank, KernelPolicy>,
    ranks: HashMap<PolicyIndex, Rank>,
    pub(super) defaults: Option<Defaults>,
    next_order: u64,
    pub(super) path_mtus: PathMtus,
    /// Associations that were heard of just now.
    new: Vec<SaId>,
    is_synchronised: bool,
    /// Whether the main thread has to get the elements ready for what there is ([`Follower::prepare`]).
    needs_main: bool,
    /// Since when there is nothing.
    empty_since: Option<Instant>,
    /// Whether each port hands over ESP to this host.
    steered: HashMap<String, bool>,
    /// Whether ESP of Linux's own is caught. Without that, two would count the numbers of an association.
    pub(super) catches: bool,
    /// Why it is not.
    not_caught: Option<String>,
    /// Policies that the fast path leaves to Linux, and what went wrong.
    problems: Vec<String>,
    /// Why Linux cannot be followed.
    fault: Option<String>,
    /// Why a port does not hand over ESP, or leave it to Linux.
    not_steered: Option<String>,
    /// On a node of a cluster.
    cluster: Option<InCluster>,
}

struct Common {
    state: Mutex<State>,
    holder: Holder,
    synchronised: Condvar,
    shared: Shared,
    ports: Vec<String>,
    /// The smallest window against replays.
    window: u32,
    waker: OwnedFd,
    ends: AtomicBool,
    wake_main: Mutex<Option<Arc<dyn Fn() + Send + Sync>>>,
}

/// What Linux has of IPsec, and the thread that follows it.
pub(crate) struct LinuxIpsec {
    common: Arc<Common>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl LinuxIpsec {
    const KEY: &str = "ipsec of linux!";

    /// Begins to follow Linux, for ports of these names. `None` where the kernel has no IPsec.
    ///
    /// # Errors
    ///
    /// The kernel lets us not.
    pub(crate) fn start(
        ports: Vec<String>,
        window: u32,
        shared: &Shared,
        supervisor: &Supervisor,
    ) -> Result<Option<Arc<Self>>> {
        let Some(kernel) = open()? else { return Ok(None) };
        let state = State::default();
        Ok(Some(Self::start_with(Some(kernel), state, ports, window, shared, supervisor)?))
    }

    /// The same on a node of a cluster, which follows Linux only while it leads.
    ///
    /// # Errors
    ///
    /// The kernel lets us not.
    pub(crate) fn start_in_cluster(
        options: &ProtectorOptions,
        window: u32,
        shared: &Shared,
        supervisor: &Supervisor,
    ) -> Result<Arc<Self>> {
        let kernel = if options.ignores { None } else { open()? };
        let state = State {
            cluster: Some(InCluster::new(options.hold, options.checked_source)),
            is_synchronised: kernel.is_none(),
            ..State::default()
        };
        // No port of a node leaves anything to Linux by itself.
        Self::start_with(kernel, state, Vec::new(), window, shared, supervisor)
    }

    fn start_with(
        kernel: Option<(Watch, Requests)>,
        state: State,
        ports: Vec<String>,
        window: u32,
        shared: &Shared,
        supervisor: &Supervisor,
    ) -> Result<Arc<Self>> {
        Activation::take(shared);
        let common = Arc::new(Common {
            state: Mutex::new(state),
            holder: Holder::default(),
            synchronised: Condvar::new(),
            shared: shared.clone(),
            ports,
            window,
            waker: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
            ends: AtomicBool::new(false),
            wake_main: Mutex::default(),
        });
        let copy = common.clone();
        let thread = supervisor.spawn("ipsec", move |pulse| work(&copy, kernel, pulse))?;
        let make = || Ok::<_, std::convert::Infallible>(Self { common, thread: Mutex::new(Some(thread)) });
        let Ok(made) = shared.get_or_make(Self::KEY, make);
        Ok(made)
    }

    /// Returns that of the router whose elements share this, if it has one.
    pub(crate) fn of(shared: &Shared) -> Option<Arc<Self>> {
        shared.get(Self::KEY)
    }

    /// Returns what the operator should know.
    pub(crate) fn problems(&self) -> Vec<String> {
        self.state().problems()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.common.lock()
    }
}

impl Follower for LinuxIpsec {
    fn on_change(&self, wake: Arc<dyn Fn() + Send + Sync>) {
        *lock(&self.common.wake_main) = Some(wake);
    }

    fn wait(&self) -> Option<String> {
        // Elements that are made later are in a configuration that takes the place of this one.
        Activation::take(&self.common.shared).has_started();
        let state = self.state();
        let is_unknown = |state: &mut State| !state.is_synchronised && state.fault.is_none();
        let (mut state, was_told) =
            packet::pulse::wait_while(&self.common.synchronised, state, LONGEST_DUMP, is_unknown);
        // Nothing is forwarded by policies that nobody knows.
        state.needs_main |= !state.is_synchronised;
        let late = || {
            let seconds = LONGEST_DUMP.as_secs();
            format!(
                "Linux did not tell its policies of IPsec within {seconds} s; nothing is forwarded before"
            )
        };
        state.fault.clone().or_else(|| (!was_told).then(late))
    }

    fn set_own_addresses(&self, addresses: &[IpAddr]) {
        if let Some(database) = Database::of(&self.common.shared) {
            database.set_own(addresses.to_vec());
        }
    }

    fn prepare(&self, write: &mut dyn FnMut(Followed)) -> bool {
        let activation = Activation::take(&self.common.shared);
        let mut state = self.state();
        let begins = state.needs_main && !activation.is_active();
        let is_over =
            state.empty_since.is_some_and(|since| since.elapsed() >= REST) && activation.is_active();
        if begins {
            activation.set_active(true);
            drop(state);
            write(Followed::Ipsec);
        } else if is_over {
            // The thread waits for us before it brings anything new.
            state.empty_since = None;
            activation.set_active(false);
            write(Followed::Ipsec);
        }
        begins || is_over
    }

    fn publish(&self) {
        let mut state = self.state();
        if std::mem::take(&mut state.needs_main) {
            self.common.publish(&mut state);
        }
    }

    /// Ends the thread, which reports to the kernel first.
    fn end(&self) {
        self.common.ends.store(true, Ordering::SeqCst);
        self.common.wake();
        if let Some(thread) = lock(&self.thread).take() {
            let _ = thread.join();
        }
    }
}

impl Protector for LinuxIpsec {
    fn set_logged(&self, told: Option<&Told>) {
        let mut state = self.state();
        if state.cluster.as_mut().is_some_and(|cluster| cluster.set_logged(told)) {
            self.common.publish(&mut state);
        }
    }

    fn is_in_force(&self) -> bool {
        !self.state().needs_main
    }

    fn begin_to_lead(&self, told: Option<&Told>, member: &Arc<MemberShared>) {
        let mut state = self.state();
        if let Some(cluster) = &mut state.cluster {
            cluster.begin(told, member.clone());
            self.common.publish(&mut state);
        }
        drop(state);
        self.common.wake();
    }

    fn lead_is_over(&self) {
        if let Some(cluster) = &mut self.state().cluster {
            cluster.is_over();
        }
        if let Some(wake) = &*lock(&self.common.wake_main) {
            wake();
        }
    }

    fn leads(&self) -> bool {
        let state = self.state();
        !state.needs_main && state.cluster.as_ref().is_some_and(InCluster::leads)
    }

    fn is_to_stop(&self) -> bool {
        self.state().cluster.as_ref().is_some_and(InCluster::is_to_stop)
    }

    fn stop_leading(&self) {
        let mut state = self.state();
        if state.cluster.as_mut().is_some_and(InCluster::stop) {
            self.common.publish(&mut state);
        }
        drop(state);
        self.common.wake();
    }
}

/// Opens what follows the kernel; `None` where it has no IPsec.
fn open() -> Result<Option<(Watch, Requests)>> {
    let open = || -> io::Result<_> { Ok((Watch::open(&WatchOptions::default())?, Requests::open()?)) };
    let (watch, requests) = open().context("Linux's policies of IPsec cannot be read")?;
    Ok(watch.zip(requests))
}

impl Common {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.holder.lock(&self.state)
    }

    /// Has the thread look around.
    fn wake(&self) {
        // A full counter wakes it as well.
        let _ = rustix::io::write(&self.waker, &1u64.to_ne_bytes());
    }

    /// Whether associations are the fast path's. On a node of a cluster they are while it leads, if it routes.
    fn takes_associations(&self, state: &State) -> bool {
        state.counts() && (state.cluster.is_none() || Database::of(&self.shared).is_some())
    }

    /// Makes the elements' tables of what there is, or has the main thread see to it that they count.
    fn publish(&self, state: &mut State) {
        let activation = Activation::take(&self.shared);
        let database = Database::of(&self.shared);
        let mut contents = state.contents();
        if let Some(cluster) = state.cluster.as_ref().filter(|cluster| cluster.leads()) {
            // What nobody knows yet is nothing to tell.
            if state.is_synchronised {
                cluster.tell(&mut contents, !state.sas.is_empty(), database.is_some());
            }
        }
        let is_empty = is_empty(&contents);
        // The elements are there before the activation is active. A node of a cluster that does not route has none.
        if database.is_none() && activation.is_active() {
            return;
        }
        if let Some(database) = database.filter(|_| activation.is_active()) {
            let receives = !contents.associations.is_empty();
            if !receives {
                self.steer(state, false);
            }
            database.replace(contents);
            if receives {
                self.steer(state, true);
            }
            match is_empty {
                true => _ = state.empty_since.get_or_insert_with(Instant::now),
                false => state.empty_since = None,
            }
        } else if !is_empty {
            state.needs_main = true;
            if let Some(wake) = &*lock(&self.wake_main) {
                wake();
            }
        }
    }

    /// Has the ports hand over ESP that is for this host, or leave it to Linux.
    fn steer(&self, state: &mut State, takes: bool) {
        state.not_steered = None;
        for port in &self.ports {
            if state.steered.get(port).copied().unwrap_or(false) == takes {
                continue;
            }
            let Some(open) = self.shared.get::<OpenPort>(&OpenPort::key(port)) else { continue };
            match open.on_host(|host| host.take_esp(takes)) {
                Ok(()) => _ = state.steered.insert(port.clone(), takes),
                Err(error) => state.not_steered = Some(error.to_string()),
            }
        }
    }
}

impl State {
    /// Makes one for which ESP of Linux's own is caught, and all is known.
    pub(super) fn catching() -> Self {
        Self { catches: true, is_synchronised: true, ..Self::default() }
    }
}

impl State {
    /// Whether this machine's Linux is the one that counts.
    pub(super) fn counts(&self) -> bool {
        self.cluster.as_ref().is_none_or(InCluster::leads)
    }

    /// Whether this is the leader of a cluster.
    pub(super) fn leads(&self) -> bool {
        self.cluster.as_ref().is_some_and(InCluster::leads)
    }

    /// Returns what the operator should know.
    pub(super) fn problems(&self) -> Vec<String> {
        let Self { fault, not_caught, not_steered, problems, .. } = self;
        fault.iter().chain(not_caught).chain(not_steered).chain(problems).cloned().collect()
    }

    /// Takes in what the kernel says of an association.
    pub(super) fn take(&mut self, sa: Sa, window: u32) {
        if sa.is_larval() || sa.id.protocol != Protocol::Esp {
            return;
        }
        match self.sas.get_mut(&sa.id).filter(|known| is_same(&known.sa, &sa)) {
            Some(known) => known.sa = sa,
            None => self.replace(sa, window),
        }
    }

    /// Puts an association in the place of the one that the kernel has replaced or changed, if there was one.
    fn replace(&mut self, sa: Sa, window: u32) {
        graph::files::leave_no_core_dump();
        let known = self.sas.remove(&sa.id);
        let settings = translation::settings(&sa, Backend::best(), window);
        let is_uncaught = settings.is_ok() && !self.catches;
        let settings = if is_uncaught { Err(NOT_CAUGHT.to_owned()) } else { settings };
        let association = settings.map(|mut settings| {
            if let Some(old) = known.and_then(|known| known.association.ok()) {
                let has_sent = old.sequence() > old.settings().sequence;
                let sent = if has_sent { old.sequence().saturating_add(LEFT_OUT) } else { 0 };
                settings.sequence = settings.sequence.max(old.window().highest()).max(sent);
            }
            let association = Association::new(settings);
            association.set_path_mtu(self.path_mtus.of(&association.settings().endpoints, &mut path_mtu));
            Arc::new(association)
        });
        let reported = Reported::default();
        self.new.push(sa.id);
        self.next_order += 1;
        self.sas.insert(sa.id, Known { association, is_uncaught, order: self.next_order, reported, sa });
    }

    /// Leaves all associations to Linux, and keeps the problem that is the reason. Returns those that were ours.
    fn leave_associations(&mut self, problem: Option<String>) -> Vec<(SaId, Arc<Association>)> {
        (self.catches, self.not_caught) = (false, problem);
        self.new.clear();
        let mut ours = Vec::new();
        for (id, known) in &mut self.sas {
            let Ok(association) = &known.association else { continue };
            ours.push((*id, association.clone()));
            (known.association, known.is_uncaught) = (Err(NOT_CAUGHT.to_owned()), true);
        }
        ours
    }

    /// The same because its ESP is not caught any more.
    pub(super) fn stop_catching(&mut self, reason: &EspHooksError) -> Vec<(SaId, Arc<Association>)> {
        self.leave_associations(Some(format!("IPsec: Linux protects all packets: {reason}")))
    }

    /// Takes in how catching ESP of Linux's own began: from now on Linux uses no numbers of its own.
    fn has_started_to_catch(&mut self, started: Result<Caught>) -> Option<Caught> {
        match started {
            Ok(caught) => {
                (self.catches, self.not_caught) = (true, None);
                Some(caught)
            }
            Err(error) => {
                self.not_caught = Some(format!("IPsec: Linux protects all packets: {error:#}"));
                None
            }
        }
    }

    /// Has new associations begin with the numbers that Linux has now, as `ask` says. Linux used numbers of its own until we knew their
    /// SPI. Returns whether the tables have to be made anew.
    pub(super) fn catch_up(&mut self, ask: &mut dyn FnMut(&SaId) -> Option<Sa>, window: u32) -> bool {
        let mut has_changed = false;
        for id in std::mem::take(&mut self.new) {
            let Some(Known { association: Ok(association), .. }) = self.sas.get(&id) else { continue };
            let begin = association.settings().sequence;
            match ask(&id) {
                Some(sa) if sa.replay.sent.max(sa.replay.received) <= begin => continue,
                Some(sa) => self.replace(sa, window),
                // It is gone, and reported as gone soon. Else nobody knows which numbers were used.
                None => {
                    let known = self.sas.get_mut(&id).into_iter();
                    known.for_each(|known| known.association = Err(NO_NUMBERS.to_owned()));
                }
            }
            has_changed = true;
        }
        self.new.clear();
        has_changed
    }

    /// Takes the associations that are Linux's only because its ESP was not caught, and has them catch up.
    pub(super) fn take_over(&mut self, window: u32) {
        let uncaught = self.sas.values().filter(|known| known.is_uncaught);
        let sas: Vec<Sa> = uncaught.map(|known| known.sa.clone()).collect();
        sas.into_iter().for_each(|sa| self.replace(sa, window));
    }

    pub(super) fn put(&mut self, policy: KernelPolicy, rank: Rank) {
        self.remove(policy.index);
        self.ranks.insert(policy.index, rank);
        self.policies.insert(rank, policy);
    }

    fn remove(&mut self, index: PolicyIndex) {
        if let Some(rank) = self.ranks.remove(&index) {
            self.policies.remove(&rank);
        }
    }

    /// Takes in an event. Returns whether the tables have to be made anew.
    pub(super) fn apply(&mut self, event: Event, window: u32) -> bool {
        match event {
            Event::Sa(sa) => self.take(*sa, window),
            Event::SaGone(id) => _ = self.sas.remove(&id),
            Event::Policy(policy, rank) => self.put(*policy, rank),
            Event::PolicyGone(index) => self.remove(index),
            Event::Defaults(defaults) => self.defaults = Some(defaults),
            Event::Synchronised => self.is_synchronised = true,
            // The kernel expires them itself; one that is gone is reported as gone.
            Event::SaExpired(..) | Event::PolicyExpired(..) => return false,
        }
        true
    }

    /// Returns all of it as the elements want it.
    pub(super) fn contents(&mut self) -> Contents {
        if let Some(cluster) = self.cluster.as_ref().filter(|cluster| !cluster.leads()) {
            let (contents, problem) = cluster.of_log();
            self.problems = problem.into_iter().collect();
            return contents;
        }
        if !self.is_synchronised {
            return Contents { discards: [true; 2], ..Contents::default() };
        }
        let mut ours: Vec<(&Known, &Arc<Association>)> = Vec::new();
        let mut kept = Vec::new();
        for known in self.sas.values() {
            match &known.association {
                Ok(association) => ours.push((known, association)),
                Err(_) => kept.push(Kept { spi: known.sa.id.spi, destination: known.sa.id.destination }),
            }
        }
        // The kernel takes the youngest.
        ours.sort_by_key(|(known, _)| (known.sa.usage.added_at, known.order));
        let associations =
            ours.into_iter().map(|(known, association)| Entry::new(association.clone(), known.sa.request_id));
        let (mut policies, mut of_linux) = (Vec::new(), Vec::new());
        for known in self.policies.values() {
            let Some(policy) = translation::policy(known) else { continue };
            if policy.action == PolicyAction::Discard && known.action == Action::Allow {
                of_linux.push(format!(
                    "IPsec: {}: its packets are dropped: its mark's mask has the router's bit {PERMITTED_MARK:#x}; expected a \
                     mask without it",
                    translation::name(known)
                ));
            }
            if let PolicyAction::Linux(lack) = &policy.action
                && !translation::is_of_host_itself(known)
            {
                of_linux.push(format!("IPsec: {}: left to Linux: {lack}", translation::name(known)));
            }
            policies.push(policy);
        }
        let kept_tunnels = self.sas.values().filter_map(|known| match &known.association {
            Err(lack) if known.sa.mode == Mode::Tunnel && !known.is_uncaught => {
                Some(format!("IPsec: {}: left to Linux: {lack}", known.sa.id))
            }
            _ => None,
        });
        self.problems = of_linux.into_iter().chain(kept_tunnels).collect();
        let defaults = self.defaults.unwrap_or(Defaults::ALLOW);
        let discards = [blocks(defaults.output), blocks(defaults.forward)];
        Contents { associations: associations.collect(), kept, takes_esp: false, policies, discards }
    }
}

/// Whether all packets pass, and nothing is opened.
pub(super) fn is_empty(contents: &Contents) -> bool {
    contents.associations.is_empty() && contents.policies.is_empty() && contents.discards == [false; 2]
}

/// Whether packets that no policy matches are dropped.
pub(super) fn blocks(default: Action) -> bool {
    matches!(default, Action::Block | Action::Other(_))
}

/// Whether two descriptions of an association differ in nothing but what it has done.
fn is_same(known: &Sa, new: &Sa) -> bool {
    let done = Sa {
        usage: known.usage,
        replay: known.replay.clone(),
        last_used_at: known.last_used_at,
        failures: known.failures,
        ..new.clone()
    };
    done == *known && (known.replay.form, known.replay.window) == (new.replay.form, new.replay.window)
}

/// The thread: follows the kernel, reports to it, judges what was caught.
fn work(common: &Arc<Common>, kernel: Option<(Watch, Requests)>, pulse: &Pulse) {
    let (mut watch, mut requests) = kernel.unzip();
    let mut starting: Option<Receiver<Result<Caught>>> = None;
    let mut caught: Option<Caught> = None;
    let mut due = Instant::now() + PERIOD;
    let mut retry = Instant::now();
    while !common.ends.load(Ordering::SeqCst) {
        pulse.beat();
        wait(common, watch.as_ref(), caught.as_ref(), due);
        let mut state = common.lock();
        let mut has_changed = false;
        let received = watch.as_mut().map_or(Ok(()), |watch| {
            watch.receive(&mut |event| has_changed |= state.apply(event, common.window))
        });
        match received {
            Ok(()) => state.fault = None,
            Err(error) => {
                state.fault = Some(format!("Linux's policies of IPsec cannot be followed: {error}"))
            }
        }
        let is_due = due <= Instant::now();
        let takes = common.takes_associations(&state);
        if !takes && caught.is_some() {
            let ours = state.leave_associations(None);
            if let Some(requests) = &mut requests {
                super::report::report_to_go_on(&state, &ours, requests);
            }
            caught = None;
        }
        let needs_catching = takes && state.sas.values().any(|known| known.is_uncaught);
        if !needs_catching {
            state.not_caught = None;
        }
        if needs_catching && caught.is_none() && starting.is_none() && retry <= Instant::now() {
            retry = Instant::now() + RETRY;
            let source = state.cluster.as_ref().map(InCluster::checked_source);
            match begin_to_catch(common, source) {
                Ok(result) => starting = Some(result),
                Err(error) => _ = state.has_started_to_catch(Err(error)),
            }
        }
        let started = match starting.as_ref().map(Receiver::try_recv) {
            None | Some(Err(TryRecvError::Empty)) => None,
            Some(Ok(started)) => Some(started),
            Some(Err(TryRecvError::Disconnected)) => Some(Err(anyhow!("a fault of the router"))),
        };
        if let Some(started) = started {
            starting = None;
            caught = state.has_started_to_catch(started);
            if caught.is_some() && common.takes_associations(&state) {
                state.take_over(common.window);
                has_changed = true;
            }
        }
        // Before what was caught is judged, and before the tables are made.
        let mut ask = |id: &SaId| requests.as_mut()?.ask(id).ok().flatten();
        has_changed |= state.catch_up(&mut ask, common.window);
        if let Some(caught) = &mut caught {
            if has_changed {
                caught.set_ports(&state.sas);
            }
            caught.receive(&state.sas);
        }
        if is_due {
            due = Instant::now() + PERIOD;
            if let Some(requests) = &mut requests {
                has_changed |= super::report::report(&mut state, requests);
            }
            has_changed |= state.cluster.as_mut().is_some_and(InCluster::let_go);
            if let Some(reason) = Caught::lost().filter(|_| caught.is_some()) {
                let ours = state.stop_catching(&reason);
                state.not_caught.iter().for_each(|problem| tracing::warn!("{problem}"));
                // First no worker has them any more, then Linux gets numbers that none has used, then what it makes passes.
                common.publish(&mut state);
                if let Some(requests) = &mut requests {
                    super::report::report_to_go_on(&state, &ours, requests);
                }
                caught = None;
                retry = Instant::now() + RETRY;
            }
            if let Some(database) = Database::of(&common.shared) {
                database.forget_gone();
            }
            // Ports that were not open before.
            if state.steered.values().any(|takes| *takes) {
                common.steer(&mut state, true);
            }
        }
        if has_changed && state.is_synchronised {
            common.publish(&mut state);
        }
        if state.is_synchronised || state.fault.is_some() {
            common.synchronised.notify_all();
        }
    }
    if let Some(requests) = &mut requests {
        super::report::report_at_end(&mut common.lock(), requests);
    }
}

/// Begins to catch ESP of Linux's own, on a thread that wakes this one with its result. The kernel may have to load modules, which takes
/// seconds: policies that come meanwhile count at once, and Linux protects their packets.
fn begin_to_catch(common: &Arc<Common>, source: Option<[u8; 6]>) -> Result<Receiver<Result<Caught>>> {
    let (sender, receiver) = channel();
    let common = common.clone();
    let catch = move || {
        // Nobody wants it any more where the router has ended.
        let _ = sender.send(Caught::start(source));
        common.wake();
    };
    std::thread::Builder::new().name("esp-hooks".to_owned()).spawn(catch)?;
    Ok(receiver)
}

/// Waits until there is something to do.
fn wait(common: &Common, watch: Option<&Watch>, caught: Option<&Caught>, due: Instant) {
    let left = due.saturating_duration_since(Instant::now()).min(LONGEST_WAIT);
    let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
    let mut polled = vec![PollFd::from_borrowed_fd(common.waker.as_fd(), PollFlags::IN)];
    polled.extend(watch.map(|watch| PollFd::from_borrowed_fd(watch.fd(), PollFlags::IN)));
    let queues = caught.into_iter().flat_map(Caught::fds);
    polled.extend(queues.map(|queue| PollFd::from_borrowed_fd(queue, PollFlags::IN)));
    // A signal may interrupt it.
    let _ = poll(&mut polled, Some(&left));
    // Read, so that it wakes the thread once. An error means that nobody has written.
    let _ = rustix::io::read(&common.waker, &mut [0; 8]);
}

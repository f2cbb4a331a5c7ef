//! The control thread: it waits for the kernel and for FRR, brings what they tell into the mirror, and publishes.
//!
//! Everything lives behind one lock, which the thread holds for a bounded piece of work at a time, so that a thread that wants to
//! look at routes or counters waits some milliseconds at most. Workers never take it.
//!
//! # When changes are published
//!
//! A publication interrupts each worker for some microseconds, so a flood of changes is gathered: for [`LONGEST_GATHERING`] at
//! most, and no longer than the sources have something to say.
//!
//! # Neighbours that the kernel forgets
//!
//! The kernel asks a neighbour again only when it sends to it, and it does not see what we forward. So neighbours that have
//! become stale are brought to its attention ([`Kernel::ask_neighbour`]): they stay known while they answer, and are gone
//! when they do not. So are those that routes lead through and that did not answer: they may have been slow to come up.
//!
//! # Settings of interfaces
//!
//! Whether Linux forwards what comes in by a port, and its like ([`crate::switches`]), is read when Linux notifies of a change
//! or a link has changed, and a few times a second for what changes without a notification.
//!
//! # Who follows links
//!
//! What keeps link addresses, MTUs and the host's addresses in step with the ports is called as soon as one of them has changed
//! ([`Service::on_link_change`]), before routes are gathered. And the workers' slow path asks for neighbours ([`Service::questions`]).

use packet::pulse::Holder;
use packet::sync::lock;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use fib::{Kinds, NextHopIndex};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::change::Source;
use crate::cluster::member::{self, Cluster, MemberOptions};
use crate::fpm::{self, Server, ServerOptions};
use crate::mirror::{Mirror, VlanPort};
use crate::netlink::{self, Kernel, KernelOptions};
use crate::supervisor::{LONGEST_WAIT, Pulse, Supervisor};
use crate::switches;

/// How long changes may wait for each other.
const LONGEST_GATHERING: Duration = Duration::from_millis(20);

/// Time between two looks at which neighbours have become stale, or have not answered.
const NEIGHBOUR_PERIOD: Duration = Duration::from_secs(5);

/// Neighbours that are brought to the kernel's attention in one look: a link full of them is spread over several.
const MOST_ASKED: usize = 512;

/// How to run a [`Service`].
#[derive(Clone, Debug, Default)]
pub struct ServiceOptions {
    /// The ports by the names of their interfaces, with their numbers in adjacencies.
    pub ports: Vec<(String, u16)>,
    /// What Linux calls the interfaces of ports that have other names; see [`Mirror::set_interface`].
    pub interfaces: Vec<(u16, String)>,
    /// Ports that are VLANs of other ports; see [`Mirror::set_vlan`].
    pub vlans: Vec<VlanPort>,
    /// The kinds of forwarding tables.
    pub tables: Kinds,
    /// Where FRR's forwarding plane manager connects, and who may; `None` for no server.
    pub fpm: Option<ServerOptions>,
    /// Who watches the control thread.
    pub supervisor: Supervisor,
    /// Whether something in Linux may give packets marks; see [`Mirror::set_marks`].
    pub may_be_marked: bool,
}

/// Why a [`Service`] cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The kernel's routes cannot be read.
    #[error("cannot follow Linux's routes over netlink: {0}")]
    Netlink(#[source] io::Error),
    /// The address for FRR cannot be listened on.
    #[error("cannot listen on {0} for FRR's forwarding plane manager: {1}")]
    Fpm(SocketAddr, #[source] io::Error),
    /// There is no memory for the tables.
    #[error(transparent)]
    Table(#[from] fib::TableError),
    /// No thread, no event descriptor.
    #[error("cannot start the control thread: {0}")]
    Thread(#[source] io::Error),
}

/// What the control thread keeps.
pub struct State {
    /// Routes, next hops and neighbours.
    pub mirror: Mirror,
    /// Linux. On a node of a cluster `None`: its leader tells what Linux says.
    pub kernel: Option<Kernel>,
    /// FRR.
    pub fpm: Option<Server>,
    /// On a node of a cluster.
    pub cluster: Option<Cluster>,
    /// Errors of the sockets, which are not expected to fail.
    pub socket_errors: u64,
    ends: bool,
}

impl State {
    /// Whether all that the kernel knows is here.
    pub fn is_synchronised(&self) -> bool {
        self.kernel.as_ref().is_none_or(Kernel::is_synchronised)
    }

    /// Whether the service is to end.
    pub(crate) fn ends(&self) -> bool {
        self.ends
    }
}

pub(crate) struct Common {
    state: Mutex<State>,
    holder: Holder,
    synchronised: Condvar,
    waker: OwnedFd,
    /// Called when a link or an address has changed.
    on_link_change: Mutex<Option<Box<dyn Fn() + Send>>>,
    /// Neighbours to ask for: the number of a next hop, and a destination.
    questions: Mutex<Vec<(NextHopIndex, IpAddr)>>,
}

/// Most questions for neighbours that wait for the control thread. Who asks repeats it.
const MOST_QUESTIONS: usize = 1024;

impl Common {
    fn new(
        mirror: Mirror,
        kernel: Option<Kernel>,
        fpm: Option<Server>,
        cluster: Option<Cluster>,
    ) -> io::Result<Common> {
        let waker = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let state = Mutex::new(State { mirror, kernel, fpm, cluster, socket_errors: 0, ends: false });
        let (on_link_change, questions) = (Mutex::default(), Mutex::default());
        let (holder, synchronised) = (Holder::default(), Condvar::new());
        Ok(Common { state, holder, synchronised, waker, on_link_change, questions })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.holder.lock(&self.state)
    }

    /// Takes the neighbours to ask for, which are not asked for again.
    pub(crate) fn take_questions(&self) -> Vec<(NextHopIndex, IpAddr)> {
        std::mem::take(&mut *lock(&self.questions))
    }

    /// Has the thread look around.
    fn wake(&self) {
        // A full counter wakes it as well.
        let _ = rustix::io::write(&self.waker, &1u64.to_ne_bytes());
    }
}

/// Where neighbours are asked for; see [`Service::questions`].
#[derive(Clone)]
pub struct Questions(Arc<Common>);

impl Questions {
    /// Has Linux resolve the neighbour through which a next hop leads to a destination. Does not wait. A question too many
    /// is lost.
    pub fn ask(&self, number: NextHopIndex, destination: IpAddr) {
        let mut questions = lock(&self.0.questions);
        if questions.len() < MOST_QUESTIONS {
            questions.push((number, destination));
        }
        drop(questions);
        self.0.wake();
    }
}

impl std::fmt::Debug for Questions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Questions(..)")
    }
}

/// The control thread; it ends when this is dropped.
pub struct Service {
    common: Arc<Common>,
    threads: Vec<JoinHandle<()>>,
}

impl Service {
    /// Starts it, in the network namespace of this thread.
    ///
    /// # Errors
    ///
    /// [`ServiceError`] says what is missing.
    pub fn start(options: &ServiceOptions) -> Result<Service, ServiceError> {
        let mut mirror = Mirror::of_kinds(options.ports.iter().cloned(), options.tables)?;
        options.interfaces.iter().for_each(|(port, name)| mirror.set_interface(*port, name));
        options.vlans.iter().for_each(|&vlan| mirror.set_vlan(vlan));
        mirror.set_marks(options.may_be_marked);
        let kernel = Kernel::open(&KernelOptions::default()).map_err(ServiceError::Netlink)?;
        let fpm = options
            .fpm
            .as_ref()
            .map(|options| Server::open(options).map_err(|error| ServiceError::Fpm(options.address, error)));
        let fpm = fpm.transpose()?;
        let common = Common::new(mirror, Some(kernel), fpm, None).map_err(ServiceError::Thread)?;
        let common = Arc::new(common);
        let copy = common.clone();
        let descriptors = descriptors(&common.lock()).map_err(ServiceError::Thread)?;
        let thread = options.supervisor.spawn("control", move |pulse| work(&copy, &descriptors, pulse));
        let thread = thread.map_err(ServiceError::Thread)?;
        Ok(Service { common, threads: vec![thread] })
    }

    /// Starts that of a node of a cluster: `mirror` and `tables` follow the leader.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Thread`].
    pub fn of_cluster(
        mirror: Mirror,
        cluster: Cluster,
        options: MemberOptions,
    ) -> Result<Service, ServiceError> {
        let common = Common::new(mirror, None, None, Some(cluster)).map_err(ServiceError::Thread)?;
        let common = Arc::new(common);
        let threads = member::start(&common, options).map_err(ServiceError::Thread)?;
        Ok(Service { common, threads })
    }

    /// What the thread keeps. It waits meanwhile: look and let go.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.common.lock()
    }

    /// Calls `act` whenever a link or an address of the host has changed, on the control thread: it should only wake somebody.
    pub fn on_link_change(&self, act: impl Fn() + Send + 'static) {
        *lock(&self.common.on_link_change) = Some(Box::new(act));
    }

    /// Where neighbours are asked for.
    pub fn questions(&self) -> Questions {
        Questions(self.common.clone())
    }

    /// Waits until the mirror has all that the kernel knows; false if that took longer than `timeout`.
    pub fn wait_synchronised(&self, timeout: Duration) -> bool {
        let waiting = |state: &mut State| !state.is_synchronised();
        packet::pulse::wait_while(&self.common.synchronised, self.common.lock(), timeout, waiting).1
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.common.lock().ends = true;
        self.common.wake();
        for thread in self.threads.drain(..) {
            // A panic has been printed; there is nobody left to tell.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Service(..)")
    }
}

/// Descriptors of the sources, to wait for them without holding the lock.
fn descriptors(state: &State) -> io::Result<Vec<OwnedFd>> {
    let fpm = state.fpm.iter().map(|server| server.fd().try_clone_to_owned());
    state.kernel.iter().map(|kernel| kernel.fd().try_clone_to_owned()).chain(fpm).collect()
}

/// The thread's life.
fn work(common: &Common, descriptors: &[OwnedFd], pulse: &Pulse) {
    let mut gathering_since: Option<Instant> = None;
    let mut next_look = Instant::now() + NEIGHBOUR_PERIOD;
    let mut links = None;
    let mut next_settings = Instant::now();
    loop {
        let now = Instant::now();
        let wait = match gathering_since {
            Some(since) => LONGEST_GATHERING.saturating_sub(now - since).min(Duration::from_millis(1)),
            None => next_look.min(next_settings).saturating_duration_since(now).min(LONGEST_WAIT),
        };
        pulse.beat();
        let is_idle = !wait_for(common, descriptors, wait);
        let mut state = common.lock();
        if state.ends {
            return;
        }
        let state = &mut *state;
        let changed = state.receive();
        let is_due = Instant::now() >= next_settings;
        let has_news = state.kernel.as_mut().is_some_and(Kernel::take_settings_changed);
        if is_due || has_news || links != Some(state.mirror.link_generations()) {
            next_settings = Instant::now() + switches::PERIOD;
            state.read_settings();
        }
        if links.replace(state.mirror.link_generations()) != Some(state.mirror.link_generations())
            && let Some(act) = &*lock(&common.on_link_change)
        {
            act();
        }
        for (number, destination) in common.take_questions() {
            state.mirror.ask_about(number, destination);
        }
        if changed {
            gathering_since.get_or_insert_with(Instant::now);
        }
        if gathering_since.is_some_and(|since| is_idle || since.elapsed() >= LONGEST_GATHERING) {
            gathering_since = None;
            state.mirror.publish();
        }
        for (index, address) in state.mirror.take_neighbours_to_ask() {
            // The interface may be gone by now; then so is the question.
            let _ = state.kernel.as_mut().map(|kernel| kernel.ask_neighbour(index, address));
        }
        if Instant::now() >= next_look {
            next_look = Instant::now() + NEIGHBOUR_PERIOD;
            if state.mirror.has_room_again() {
                // An error is one of the timer: the next dump does it then.
                let _ = state.kernel.as_mut().map(Kernel::request_resync);
                state.mirror.publish();
            }
            state.ask_neighbours_again();
        }
        if gathering_since.is_none() && state.is_synchronised() {
            common.synchronised.notify_all();
        }
    }
}

/// Waits until a source has something to say; false if none had within `limit`.
fn wait_for(common: &Common, descriptors: &[OwnedFd], limit: Duration) -> bool {
    let all = descriptors.iter().map(AsFd::as_fd).chain([common.waker.as_fd()]);
    let mut fds: Vec<PollFd<'_>> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
    // An interrupted wait is as good as one that is over.
    let is_ready = poll(&mut fds, Some(&limit)).is_ok_and(|ready| ready > 0);
    // Read, so that it wakes the thread once. An error means that nobody has written.
    let _ = rustix::io::read(&common.waker, &mut [0; 8]);
    is_ready
}

impl State {
    /// Takes in what the sources have to say, a bounded piece of it; whether there was anything.
    fn receive(&mut self) -> bool {
        let Self { mirror, kernel, fpm, socket_errors, .. } = self;
        let mut changed = false;
        let Some(kernel) = kernel else { return false };
        mirror.set_time(SystemTime::now());
        let received = kernel.receive(&mut |event| {
            changed = true;
            match event {
                netlink::Event::DumpBegins(part) => mirror.dump_begins(Source::Netlink, part),
                netlink::Event::DumpEnds(part) => mirror.dump_ends(Source::Netlink, part),
                netlink::Event::Change(change) => mirror.apply(Source::Netlink, change),
            }
        });
        *socket_errors += u64::from(received.is_err());
        if let Some(server) = fpm {
            let received = server.receive(&mut |event| {
                changed = true;
                fpm_event(mirror, event);
            });
            *socket_errors += u64::from(received.is_err());
        }
        changed
    }

    /// Reads the settings of the ports' interfaces.
    fn read_settings(&mut self) {
        for (index, name) in self.mirror.port_interfaces() {
            let vrf = self.mirror.vrf_name(index).map(str::to_owned);
            if let Some(switches) = switches::of_link(index, &name, vrf.as_deref()) {
                self.mirror.set_switches(index, switches);
            }
        }
    }

    /// Has the kernel ask neighbours again.
    fn ask_neighbours_again(&mut self) {
        let due: Vec<_> = self.mirror.neighbours_to_ask_again().take(MOST_ASKED).collect();
        for (index, address) in due {
            // As above.
            let _ = self.kernel.as_mut().map(|kernel| kernel.ask_neighbour(index, address));
        }
    }
}

/// Zebra sends all it has when it connects, so what it no longer has is known when it has said all.
fn fpm_event(mirror: &mut Mirror, event: fpm::Event) {
    use crate::change::Part::{Objects, Routes4, Routes6};
    match event {
        fpm::Event::Connected(_) => {
            for part in [Objects, Routes4, Routes6] {
                mirror.dump_begins(Source::Fpm, part);
            }
        }
        fpm::Event::ReplayEnds => {
            for part in [Objects, Routes4, Routes6] {
                mirror.dump_ends(Source::Fpm, part);
            }
        }
        fpm::Event::Change(change) => mirror.apply(Source::Fpm, change),
        // Forwarding goes on with what there is.
        fpm::Event::Disconnected(_) => {}
    }
}

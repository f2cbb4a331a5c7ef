//! What runs, shared between the thread that watches it and those who ask and change it over the control socket.

use packet::pulse::{Holder, aside};
use packet::sync::lock;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use control::api::{DriftChecks, Server, Sockets, Unanswered};
use control::backstop::BackstopDrops;
use control::service::Service;
use control::supervisor::{Pulse, Supervisor};
use elements::devices::{OpenPort, RECEIVER, SENDER};
use graph::hotswap::Swap;
use graph::lang::{FlatConfig, Options, Source, first_name, nearest};
use graph::router::{Control, Router};
use graph::setup::Shared;
use packet::PoolOptions;
use ports::{Event, Links, Spec};

use super::capture::Captures;
use super::deaf::Deaf;
use super::doors::{self, Doors, Listeners};
use super::meter::{self, DeviceMeter, Meter, Work};
use super::{RunArguments, Signals, subject};
use crate::beside_linux;
use crate::cluster::{NodeHost, Relaying};
use crate::drop_in::{self, Filtered, Follow, Graph, Guard};
use crate::features::Running;
use crate::load::{self, Messages};
use crate::notify::Notify;
use crate::settings::Settings;
use crate::settings::options::Opt;
use crate::whole_frames;

/// What a reload cannot bring: the graph has no place for it.
const FIRST_FILTER: &str = "what filters, in a router that began without it,";

/// A router that runs, and all that belongs to it.
pub(super) struct Live {
    /// `None` once it is to end.
    router: Mutex<Option<Router>>,
    router_holder: Holder,
    /// What mirrors Linux.
    pub(super) service: Option<Service>,
    following: Mutex<Option<Box<dyn Follow>>>,
    /// What keeps Linux from forwarding past the filters.
    guard: Mutex<Option<Guard>>,
    settings: Mutex<Settings>,
    /// The command line, from which settings are made again.
    arguments: RunArguments,
    /// What its elements share.
    pub(super) shared: Shared,
    /// When it began.
    pub(super) began: Instant,
    /// Counts of a moment ago, for rates.
    pub(super) meter: Mutex<Meter>,
    pub(super) devices: Mutex<DeviceMeter>,
    /// Ports whose device receives what the router does not see.
    pub(super) deaf: Mutex<Deaf>,
    /// What the last look at problems found.
    pub(super) looks: Mutex<Looks>,
    /// Of which ports it was said why Linux gets most packets.
    told_left: Mutex<BTreeSet<(String, &'static str)>>,
    /// Bytes of a packet that a frame holds.
    pub(super) frame_bytes: usize,
    /// In a few words, for the service manager.
    pub(super) status: String,
    pub(super) notify: Notify,
    pub(super) supervisor: Supervisor,
    pub(super) signals: Signals,
    /// Held by who reads settings or configuration again: one at a time.
    reloading: Mutex<()>,
    /// What the checks of the forwarding tables have found, once there was one.
    pub(super) drift: Mutex<Option<DriftChecks>>,
    /// Held by who measures what steps cost.
    pub(super) measuring: Mutex<()>,
    /// Captures and traces that go on.
    pub(super) captures: Mutex<Captures>,
}

/// How long packets may come after they were given to Linux, and how long none has to come until the last one has.
const LONGEST_HAND_OVER: Duration = Duration::from_millis(200);
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// What is said to those who come too late.
const ENDING: &str = "the router is ending";

/// A look at problems every so often.
#[derive(Default)]
pub(super) struct Looks {
    last: Option<Instant>,
    thread: Option<JoinHandle<()>>,
    /// How many there were.
    pub(super) problems: Option<usize>,
    /// What was not forwarded, because Linux does not forward it.
    not_forwarded: Vec<String>,
}

/// Between two looks at problems.
const BETWEEN_PROBLEMS: Duration = Duration::from_secs(30);

impl Live {
    #[allow(clippy::too_many_arguments, reason = "made in one place, of what that has made")]
    pub(super) fn new(
        router: Router,
        mirror: Option<(Service, Box<dyn Follow>)>,
        guard: Option<Guard>,
        settings: Settings,
        arguments: RunArguments,
        shared: Shared,
        source: Source,
        supervisor: Supervisor,
        signals: Signals,
        frame_bytes: usize,
        devices: DeviceMeter,
    ) -> Arc<Live> {
        let (service, following) = mirror.unzip();
        Arc::new(Live {
            router: Mutex::new(Some(router)),
            router_holder: Holder::default(),
            service,
            following: Mutex::new(following),
            guard: Mutex::new(guard),
            settings: Mutex::new(settings),
            arguments,
            shared,
            began: Instant::now(),
            meter: Mutex::default(),
            devices: Mutex::new(devices),
            deaf: Mutex::default(),
            looks: Mutex::default(),
            told_left: Mutex::default(),
            frame_bytes: PoolOptions::held_bytes(frame_bytes),
            status: format!("{} runs", source.name),
            notify: Notify::from_environment(),
            supervisor,
            signals,
            reloading: Mutex::default(),
            drift: Mutex::default(),
            measuring: Mutex::default(),
            captures: Mutex::default(),
        })
    }

    /// Opens what clients connect to, if that was not done before. The control socket is opened where it was asked for, and for
    /// every router with interfaces of Linux. Where another router has the usual place, one that was not asked for is left out. So
    /// is that of a configuration whose process may not write there.
    pub(super) fn open_doors(&self) -> Result<Doors> {
        let settings = self.settings();
        let (is_wanted, is_configuration) = (settings.control.socket.is_some(), self.service.is_none());
        let sockets = if !is_wanted && is_configuration && !self.has_interfaces()? {
            None
        } else {
            match doors::control_sockets(&settings.control, self.arguments.config.is_some()) {
                Err(_) if !is_wanted && is_configuration => None,
                opened => opened?,
            }
        };
        Ok(Doors { sockets, http: Listeners::open(&settings)? })
    }

    /// Answers at the control sockets.
    pub(super) fn serve(self: &Arc<Self>, sockets: Option<Sockets>) -> Result<Option<Server>> {
        let serve = |sockets| Server::serve(sockets, &self.supervisor, self.clone());
        sockets.map(serve).transpose().context("no control socket")
    }

    /// Returns whether packets come in or leave by an interface of Linux.
    fn has_interfaces(&self) -> Result<bool> {
        let config = self.with_router(|router| router.config().clone()).map_err(anyhow::Error::msg)?;
        let mut devices = (config.elements.iter())
            .filter(|element| element.has(RECEIVER) || element.has(SENDER))
            .filter_map(|element| first_name(&element.config));
        let links = Links::ask().unwrap_or_default();
        Ok(devices.any(|device| Spec::parse(&device).is_ok_and(|spec| links.named(spec.name()).is_some())))
    }

    /// Serves metrics and the web page where the settings say, and returns the addresses for people.
    #[cfg(feature = "web")]
    pub(super) fn serve_http(
        self: &Arc<Self>,
        listeners: Listeners,
    ) -> Result<Option<(crate::web::Web, Vec<String>)>> {
        crate::web::Web::start(listeners, self.clone(), &self.supervisor)
    }

    /// This program was built without it.
    #[cfg(not(feature = "web"))]
    pub(super) fn serve_http(self: &Arc<Self>, Listeners: Listeners) -> Result<Option<((), Vec<String>)>> {
        Ok(None)
    }

    /// Does something with the router; an error once it is ending.
    pub(super) fn with_router<R>(&self, act: impl FnOnce(&mut Router) -> R) -> Result<R, String> {
        self.router_holder.lock(&self.router).as_mut().map(act).ok_or_else(|| ENDING.to_owned())
    }

    /// Has the router's `control` woken when a link or an address of Linux has changed, so that [`Live::follow`] is called at once.
    pub(super) fn on_link_change(&self, control: &Arc<Control>) {
        if let Some(service) = &self.service {
            let control = control.clone();
            let wake = Arc::new(move || control.wake());
            if let Some(following) = &*lock(&self.following) {
                following.on_change(wake.clone());
            }
            service.on_link_change(move || wake());
        }
    }

    /// Takes counts for rates, once a second.
    pub(super) fn measure(&self) {
        if !lock(&self.meter).is_due() {
            return;
        }
        let Ok((ports, copies)) = self.count() else { return };
        let due = lock(&self.deaf).look(&ports);
        let open = |port: &str| self.shared.get::<OpenPort>(&OpenPort::key(port));
        if let Some((port, tries, open)) =
            due.and_then(|(port, tries)| Some((port.clone(), tries, open(&port)?)))
        {
            // Some cards begin anew with it.
            let opened = aside(|| open.with(|port| port.open_anew(tries)));
            lock(&self.deaf).opened(&port, opened);
        }
        // Of other drivers no device gets more queues.
        let follow = ports.keys().filter_map(|port| Some((port, open(port)?)));
        let follow: Vec<_> = follow.filter(|(_, open)| open.info().driver == "af_xdp").collect();
        let followed =
            || follow.iter().map(|(_, open)| open.with(|port| port.follow_queues())).collect::<Vec<_>>();
        let followed = if follow.is_empty() { Vec::new() } else { aside(followed) };
        for ((port, _), queues) in follow.iter().zip(followed) {
            match queues {
                Ok(Some(queues)) => {
                    tracing::info!(
                        event = "port",
                        port,
                        "{port}: its device has {queues} receive queues now"
                    );
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(event = "port", port, "{error}"),
            }
        }
        lock(&self.meter).take(ports, copies);
        let is_new = |port: &str, reason| lock(&self.told_left).insert((port.to_owned(), reason));
        if self.has_backstop() {
            for (port, reason, problem) in self.dropped_by_backstop() {
                if is_new(&port, reason) {
                    tracing::warn!("{problem}");
                }
            }
            return;
        }
        for (port, share, reason) in lock(&self.meter).mostly_left() {
            if is_new(port, reason) {
                let remedy = meter::remedy(reason).unwrap_or_default();
                tracing::info!(
                    "{port}: Linux forwards {share} % of what comes in, at its own speed: {reason}; {remedy}"
                );
            }
        }
    }

    /// Counts the problems for those who watch the router, and reports when Linux forwards no more. On a thread of its own, as Linux is
    /// asked for its rules.
    pub(super) fn look_at_problems(self: &Arc<Self>) {
        let mut looks = lock(&self.looks);
        let is_due = looks.last.is_none_or(|last| last.elapsed() >= BETWEEN_PROBLEMS);
        if self.service.is_none()
            || !is_due
            || looks.thread.as_ref().is_some_and(|thread| !thread.is_finished())
        {
            return;
        }
        let is_first = looks.last.replace(Instant::now()).is_none();
        let live = self.clone();
        let look = move |pulse: &Pulse| {
            pulse.beat();
            aside(|| live.count_problems(is_first));
        };
        looks.thread = self.supervisor.spawn("problems", look).ok();
    }

    fn count_problems(&self, is_first: bool) {
        let (Ok(problems), Ok(not_forwarded)) = (self.problems(), self.not_forwarded()) else { return };
        let mut looks = lock(&self.looks);
        // The start has reported what it found.
        for problem in
            not_forwarded.iter().filter(|problem| !is_first && !looks.not_forwarded.contains(problem))
        {
            tracing::warn!(event = "problem", "{problem}");
        }
        (looks.problems, looks.not_forwarded) = (Some(problems.len()), not_forwarded);
    }

    /// Returns the ports of which Linux got packets in the last second that the filters' backstop drops there: the port, the reason, and
    /// a sentence with what may be done.
    pub(super) fn dropped_by_backstop(&self) -> Vec<(String, &'static str, String)> {
        if !self.has_backstop() {
            return Vec::new();
        }
        let left: Vec<(String, u64, &'static str)> = (lock(&self.meter).left().into_iter())
            .map(|(port, packets, reason)| (port.to_owned(), packets, reason))
            .collect();
        let problem = |(port, packets, reason): (String, u64, &'static str)| {
            let too_small =
                (reason == Event::LeftLong.name()).then(|| self.frames_too_small(&port)).flatten();
            let why = too_small
                .unwrap_or_else(|| format!("{reason}; {}", meter::remedy(reason).unwrap_or_default()));
            let text = format!(
                "{port}: {packets} packets of the last second went to Linux, where the router's filters drop them: {why}"
            );
            (port, reason, text)
        };
        left.into_iter().map(problem).collect()
    }

    /// Brings to ports and elements what changed in Linux.
    pub(super) fn follow(&self) {
        drop_in::follow_paths(&self.shared);
        // Before anything new is forwarded.
        if let Some(guard) = &mut *lock(&self.guard)
            && let Err(error) = guard.follow()
        {
            tracing::warn!("the filters' backstop does not follow Linux's interfaces: {error}");
        }
        let mut following = lock(&self.following);
        let (Some(service), Some(following)) = (&self.service, &mut *following) else { return };
        let problems = self.with_router(|router| following.look(service, router));
        problems.into_iter().flatten().for_each(|problem| tracing::warn!("{problem}"));
    }

    /// Returns what Linux forwards in the place of the fast path, because of what stands above ports.
    pub(super) fn problems_above(&self) -> Vec<String> {
        lock(&self.following)
            .as_ref()
            .map_or_else(Vec::new, |following| following.problems(self.has_backstop()))
    }

    /// Says of which ports packets are captured, so that the kernel leaves them to the graph, and whether somebody watches the graph at
    /// all.
    pub(super) fn set_captured(&self, is_captured: impl Fn(&str) -> bool, is_watched: bool) {
        if let Some(in_kernel) = drop_in::InKernel::of(&self.shared) {
            lock(&*in_kernel).set_captured(is_captured, is_watched);
            self.follow();
        }
    }

    /// Returns how the packets of a port travel.
    pub(super) fn path(&self, port: &str) -> Option<drop_in::Path> {
        if let Some(relaying) = Relaying::of(&self.shared) {
            return lock(&*relaying).path(port);
        }
        lock(&*drop_in::InKernel::of(&self.shared)?).path(port)
    }

    /// Returns what was forwarded in the kernel, by port.
    pub(super) fn paths(&self) -> Vec<(String, drop_in::Path)> {
        if let Some(relaying) = Relaying::of(&self.shared) {
            return lock(&*relaying).paths();
        }
        let in_kernel = drop_in::InKernel::of(&self.shared);
        in_kernel.map_or_else(Vec::new, |in_kernel| {
            lock(&*in_kernel).paths().map(|(name, path)| (name.to_owned(), path)).collect()
        })
    }

    /// Keeps Linux from forwarding past the filters from now on.
    pub(super) fn raise_guard(&self, filtered: &Filtered) -> Result<()> {
        let fail = self.settings().general.fail;
        let mut guard = lock(&self.guard);
        let raised = Guard::raise(&filtered.ports, fail, filtered.source)?;
        *guard = Some(raised.after(guard.take()));
        Ok(())
    }

    /// Opens what another router left closed beside the ports of this one, which has begun.
    pub(super) fn begin_guard(&self) {
        if let Some(Err(error)) = lock(&self.guard).as_mut().map(Guard::begin) {
            tracing::warn!("the filters' backstop still has what an earlier router closed: {error}");
        }
    }

    /// Whether Linux forwards from the ports only what the filters have permitted.
    pub(super) fn has_backstop(&self) -> bool {
        lock(&self.guard).is_some()
    }

    /// What Linux was kept from forwarding past the filters.
    pub(super) fn backstop_drops(&self) -> Result<Vec<BackstopDrops>, String> {
        let mut guard = lock(&self.guard);
        let drops = guard.as_mut().map(|guard| guard.backstop.drops()).transpose();
        let drops = drops.map_err(|error| format!("the counts of the filters' backstop: {error}"))?;
        Ok(drops.unwrap_or_default())
    }

    /// Has others go round the router, before a fault ends it.
    pub(super) fn leave(&self) {
        if let Some(following) = &mut *lock(&self.following) {
            // Nobody has the router when somebody has taken it: it has ended.
            let _ = self.with_router(|router| following.leave(router));
        }
    }

    /// Gives all packets to Linux, as the router ends, and waits until those that came before have left: none is lost in between.
    pub(super) fn hand_over(&self, router: &mut Router) {
        // A node of a cluster is left by its neighbours, and its Linux does not forward.
        if self.service.is_none() || NodeHost::of(&self.shared).is_some() {
            return;
        }
        // Linux forwards what is not closed for good.
        *lock(&self.guard) = None;
        for port in &self.settings().ports {
            if let Some(open) = self.shared.get::<OpenPort>(&OpenPort::key(&port.name)) {
                // Where it fails packets are lost until the port is closed.
                let _ = open.on_host(|host| host.set_stations(&[]).and(host.give_way(true)));
            }
        }
        let config = router.config().clone();
        let mut received =
            || -> u64 { Work::of_copies(&config, &router.stats()).iter().map(|work| work.packets).sum() };
        let (begin, mut last) = (Instant::now(), received());
        while begin.elapsed() < LONGEST_HAND_OVER {
            std::thread::sleep(BETWEEN_LOOKS);
            let now = received();
            if now == last {
                break;
            }
            last = now;
        }
    }

    /// The router, which from now on nobody else gets at.
    ///
    /// # Panics
    ///
    /// When called twice.
    pub(super) fn take_router(&self) -> Router {
        lock(&self.router).take().expect("it is taken once, at the end")
    }

    pub(super) fn settings(&self) -> Settings {
        lock(&self.settings).clone()
    }

    /// Changes a setting that can be changed under traffic; what was done.
    pub(super) fn set(&self, option: &str, value: &str) -> Result<String, String> {
        let mut settings = lock(&self.settings);
        // Those of features change by a reload.
        let live: Vec<&Opt> = Settings::options_beside_features().filter(|known| known.is_live).collect();
        let Some(known) = live.iter().find(|known| known.name() == option) else {
            let names: Vec<String> = live.iter().map(|known| known.name()).collect();
            if Settings::options().any(|known| known.is_live && known.name() == option) {
                return Err(format!(
                    "'{option}' changes with the settings file: write it there, then `brickway reload`"
                ));
            }
            if !Settings::options().any(|known| known.name() == option) {
                let right = match nearest(option, names.iter().map(String::as_str)) {
                    Some(near) => format!("did you mean '{near}'?"),
                    None => {
                        format!("expected one of {}; a handler is written with --handler", names.join(", "))
                    }
                };
                return Err(format!("unknown option '{option}'; {right}"));
            }
            return Err(format!(
                "'{option}' cannot be set while the router runs; {} can, others are read from the settings file at the \
                 start; a handler is written with --handler",
                names.join(", ")
            ));
        };
        let mut new = settings.clone();
        new.set(known, value).map_err(|right| format!("'{value}' is wrong for {option}; {right}"))?;
        *settings = new;
        Ok(format!("{option} = {value}"))
    }

    /// Reads the settings file, or the configuration, again, and returns what was done: all that changed, or nothing.
    pub(super) fn reload(&self) -> Result<Vec<String>, Unanswered> {
        let _turn = lock(&self.reloading);
        self.end_captures();
        self.notify.reloading();
        let done = self.reload_settings();
        self.notify.ready(&self.status);
        match &done {
            Ok((lines, warnings)) if lines.is_empty() && warnings.is_empty() => {
                tracing::info!(event = "reload", "reload: nothing changed");
            }
            Ok((lines, warnings)) => {
                lines.iter().for_each(|line| tracing::info!(event = "reload", "reload: {line}"));
                warnings.iter().for_each(|line| tracing::warn!(event = "reload", "reload: {line}"));
            }
            Err(error) => {
                let reason = error.to_string();
                tracing::error!(event = "reload", reason, "reload failed: {reason}");
            }
        }
        done.map(|(lines, warnings)| [lines, warnings].concat())
    }

    /// Returns what was done, and warnings.
    fn reload_settings(&self) -> Result<(Vec<String>, Vec<String>), Unanswered> {
        if let Some(script) = &self.arguments.script {
            let reload = format!("{}.reload", drop_in::LUA_ELEMENT);
            self.with_router(|router| router.write(&reload, ""))??;
            return Ok((vec![format!("{} runs anew", script.file)], Vec::new()));
        }
        let is_file = subject::is_file(&self.arguments);
        let has_file = self.arguments.options().given().any(|(_, option)| option.is_live);
        if self.arguments.config.is_none() && !has_file && !is_file {
            return Err(
                "there is nothing to read again; --config FILE or --acl FILE at the start gives it".into()
            );
        }
        if is_file {
            return Ok((self.reload_configuration()?, Vec::new()));
        }
        let new = super::settings_of(&self.arguments).map_err(|error| format!("{error:#}"))?;
        let mut new = new.map_err(|mistakes| mistakes.render(false).trim_end().to_owned())?;
        let old = self.settings();
        let has_backstop = self.has_backstop();
        if new.filters() && !has_backstop {
            return Err(Unanswered::NeedsRestart(vec![FIRST_FILTER.to_owned()]));
        }
        // The start added this to the ports' options; without it here, each port would seem changed.
        new.follows_ipsec = old.follows_ipsec;
        new.ports.iter_mut().for_each(|port| port.fit_as(&old.ports));
        let changed = old.differences(&new);
        let done = self.with_running(|running| {
            let (mut done, mut others, mut fixed) = (Vec::new(), Vec::new(), Vec::new());
            let features = new.features.all();
            for option in Settings::options().filter(|option| changed.contains(&option.name())) {
                let of_feature = features.iter().find(|feature| feature.has(option));
                let has_none = of_feature.is_some_and(|feature| !feature.can_reload(running));
                if option.is_live && has_none && of_feature.is_some_and(|feature| feature.filters()) {
                    fixed.push(FIRST_FILTER.to_owned());
                } else if !option.is_live || has_none {
                    fixed.push(option.name());
                } else if of_feature.is_none() {
                    let name = option.name();
                    others.push(match new.value(&name).filter(|value| !value.is_empty()) {
                        Some(value) => format!("{name} = {value}"),
                        None => format!("{name} has no value any more"),
                    });
                }
            }
            fixed.extend(changed.iter().filter(|name| *name == "port").cloned());
            fixed.dedup();
            if !fixed.is_empty() {
                return Err(Unanswered::NeedsRestart(fixed));
            }
            for feature in features.iter().filter(|feature| feature.can_reload(running)) {
                let has_changed = feature.options().iter().any(|option| changed.contains(&option.name()));
                // A file that it names may have changed while its name stays.
                if has_changed || !feature.files().is_empty() {
                    done.extend(feature.reload(running)?);
                }
            }
            done.extend(others);
            Ok(done)
        })?;
        let done = done?;
        *lock(&self.settings) = new.clone();
        let mut warnings = beside_linux::problems(&new);
        warnings.extend(self.feature_problems());
        Ok((done, warnings))
    }

    /// Reads the configuration's file again and has it take the place of the one that runs; its warnings, and what stayed. If
    /// anything is wrong with it, the one that runs goes on.
    fn reload_configuration(&self) -> Result<Vec<String>, String> {
        let (file, parameters) = self.arguments.what.split_first().ok_or("there is no file")?;
        if file == "-" {
            return Err("standard input cannot be read again; run a file".to_owned());
        }
        let parameters = parameters.iter().map(|text| load::parameter(text)).collect::<Result<_, _>>()?;
        let source = load::read(Path::new(file)).map_err(|error| format!("{error:#}"))?;
        let registry = crate::classes();
        let libraries = load::Libraries::new(None);
        let (mut flat, warnings) = load::compile_quietly(
            &source,
            &Options { parameters, ..Options::default() },
            &registry,
            &libraries,
        )?;
        let running = self.with_router(|router| router.running())?;
        if drop_in::ports_of(&flat) != drop_in::ports_of(running.config()) {
            return Err(
                "the ports that forward by Linux's tables cannot change while the router runs".to_owned()
            );
        }
        if Graph::File(&flat, &self.arguments.ports).filters() && lock(&self.guard).is_none() {
            return Err(format!(
                "{file} may drop packets, which Linux would forward now; expected a restart for a configuration that filters"
            ));
        }
        // A port has one owner until the router ends, which a new element would be the second of.
        let devices = |config: &FlatConfig| -> BTreeSet<String> {
            let devices =
                config.elements.iter().filter(|element| element.has(RECEIVER) || element.has(SENDER));
            devices.map(|element| format!("{}({})", element.class, element.config)).collect()
        };
        let gone: Vec<String> = devices(running.config()).difference(&devices(&flat)).cloned().collect();
        if !gone.is_empty() {
            return Err(format!(
                "elements with ports cannot change or go while the router runs: {}; expected them as they are, or a restart",
                gone.join(", ")
            ));
        }
        whole_frames::allow_again(&mut flat, &self.shared);
        let begin = Instant::now();
        let globals = load::globals(&registry, &source.text);
        let swap = Swap::prepare(&running, &Arc::new(flat), &registry, globals, 0).map_err(|problems| {
            Messages { plain: true, warnings: false }.text(problems, false).trim_end().to_owned()
        })?;
        let (stay, all) = (swap.moving(), swap.running().config().elements.len());
        let ready = Instant::now();
        self.with_router(|router| router.apply(swap))?;
        let mut lines: Vec<String> = warnings.lines().map(str::to_owned).collect();
        lines.push(format!(
            "{file} read: {stay} of {all} elements stay as they are; {:.2} s to make the others, {:.1} ms to change over",
            (ready - begin).as_secs_f64(),
            ready.elapsed().as_secs_f64() * 1e3
        ));
        Ok(lines)
    }

    /// Does something with the router as features see it, whose lock is free meanwhile.
    pub(super) fn with_running<R>(&self, act: impl FnOnce(&Running<'_>) -> R) -> Result<R, String> {
        let config = self.with_router(|router| router.config().clone())?;
        let read = |handler: &str| self.with_router(|router| router.read(handler))?;
        Ok(act(&Running { config, shared: &self.shared, read: &read }))
    }

    /// Returns what the operator should know of the features.
    pub(super) fn feature_problems(&self) -> Vec<String> {
        let settings = self.settings();
        self.with_running(|running| settings.features.problems(running)).unwrap_or_default()
    }
}

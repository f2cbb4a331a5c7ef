//! The rows of `brickway show`, and what `brickway set` and `reload` do: the answers of a running router.
//!
//! The locks of the router and of the mirror are held for a page of rows at most, never while a client takes its time.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;

use control::api::{
    Action, Backend, ConfigFilter, CountRow, CounterRow, DropRow, EdgeRow, ElementRow, HandlerFilter,
    HandlerRow, LookupRow, MemberRow, NeighbourRow, NextHopRow, PathRow, PortFilter, PortRow, PuntRow,
    QueueRow, Request, RouteFilter, RouteQuery, RouteRow, RouteTableRow, Rows, Show, SystemRow, TableQuery,
    TextRow, Unanswered, WayRow, WorkerRow,
};
use control::change::{Hops, Link, mac_text};
use control::drift;
use control::mirror::{FoundBy, Mirror, NextHopReport, PortReport, RouteReport};
use control::service::{Service, State};
use elements::devices::OpenPort;
use elements::devices::balance::{QueueShare, queue_shares};
use fib::{Decision, MAIN, NextHop, NextHopIndex};
use graph::context::ElementStats;
use graph::lang::{FlatConfig, FlatElement, first_name, nearest};
use graph::router::CopyStats;
use packet::sync::lock;
use serde_json::Value;

use packet::IpVersion;
use ports::{Links, mtu_problem};

use super::edges::{self, Through};
use super::live::Live;
use super::meter::{self, PortCounts, Work};
use crate::beside_linux;
use crate::cluster::{self, NodeHost};
use crate::doctor;
use crate::drop_in::Obeyed;
use crate::features::FeatureSettings;
use crate::settings::Host;

/// Rows that are made with a lock held.
const PAGE: usize = 1024;

type Answered = Result<(), Unanswered>;

impl Backend for Live {
    fn answer(&self, request: &Request, rows: &mut Rows<'_>) -> Answered {
        match request {
            Request::Show(show) => self.show(show, rows),
            Request::Table(query) => send(rows, self.table(query)?),
            Request::Do(action) => self.act(action, rows),
        }
    }
}

impl Live {
    fn show(&self, show: &Show, rows: &mut Rows<'_>) -> Answered {
        match show {
            Show::Ports(PortFilter { port }) => {
                self.check_port(port.as_deref())?;
                send(rows, self.ports()?)
            }
            Show::History(PortFilter { port }) => {
                self.check_port(port.as_deref())?;
                let moments = lock(&self.meter).history.moments();
                moments.iter().try_for_each(|moment| send(rows, moment.rows()))
            }
            Show::Routes(filter) => self.routes(filter, rows),
            Show::Route(query) => send(rows, [self.route(query)?]),
            Show::Neighbours(_) => {
                let all = neighbours(&self.state()?.mirror);
                send(rows, all)
            }
            Show::NextHops(_) => {
                let all = next_hops(&self.state()?.mirror);
                send(rows, all)
            }
            Show::Workers(_) => send(rows, self.workers()?),
            Show::Cost(filter) => {
                let all = self.cost(filter, rows)?;
                send(rows, all)
            }
            Show::Queues(PortFilter { port }) => {
                self.check_port(port.as_deref())?;
                send(rows, self.queues()?)
            }
            Show::Drops(_) => send(rows, self.drops()?),
            Show::Punts(_) => send(rows, self.punts()?),
            Show::Elements(_) => send(rows, self.elements()?),
            Show::System(_) => send(rows, [self.system()?]),
            Show::Config(ConfigFilter { click }) => {
                let text = if *click {
                    // The handler's text has no keys.
                    self.with_router(|router| router.read("config"))??
                } else {
                    self.settings().to_toml()
                };
                send(rows, [TextRow { text: text.trim_end().to_owned() }])
            }
            Show::Drift(_) => self.drift(rows),
            Show::Cluster(_) => {
                let host = NodeHost::of(&self.shared).ok_or(
                    "this router is not a node of a cluster; `brickway cluster run FILE NODE` makes one"
                        .to_owned(),
                )?;
                let all =
                    self.state()?.cluster.as_ref().map_or_else(Vec::new, |known| cluster::rows(&host, known));
                send(rows, all)
            }
            Show::Changes(filter) => self.changes(filter, rows),
            Show::Netlink(_) => {
                let all = netlink(&*self.state()?);
                send(rows, all)
            }
            Show::Fpm(_) => {
                let all = fpm(&*self.state()?)?;
                send(rows, all)
            }
            Show::Problems(_) => {
                let problems = self.problems()?;
                send(rows, problems.into_iter().map(|text| TextRow { text }))
            }
            Show::Handlers(HandlerFilter { name }) => send(rows, self.handlers(name.as_deref())?),
            Show::Capture(query) => self.capture(query, rows),
            Show::Trace(query) => self.trace(query, rows),
            Show::Log(query) => crate::log::answer(query, rows),
        }
    }

    fn act(&self, action: &Action, rows: &mut Rows<'_>) -> Answered {
        let lines = match action {
            Action::Set { option, value } => vec![self.set(option, value)?],
            Action::Write { handler, value } => {
                self.with_router(|router| router.write(handler, value))??;
                Vec::new()
            }
            Action::Reload {} => self.reload()?,
        };
        send(rows, lines.into_iter().map(|text| TextRow { text }))
    }

    fn service(&self) -> Result<&Service, Unanswered> {
        self.service.as_ref().ok_or_else(|| {
            "this router has tables of its own and does not mirror Linux's; `brickway show handlers` lists what its elements \
             say"
            .into()
        })
    }

    pub(super) fn state(&self) -> Result<std::sync::MutexGuard<'_, State>, Unanswered> {
        Ok(self.service()?.lock())
    }

    /// Checks that a port that a filter names is one of this router.
    fn check_port(&self, name: Option<&str>) -> Answered {
        match name.filter(|_| self.service.is_some()) {
            Some(name) => port_of(&self.state()?.mirror, name).map(drop),
            None => Ok(()),
        }
    }

    /// What is known of a port without Linux.
    fn port_row(&self, name: &str, counted: PortCounts) -> PortRow {
        let open = self.shared.get::<OpenPort>(&OpenPort::key(name));
        let (driver, mode) = open.map_or(("", ""), |open| open.driver());
        PortRow {
            name: name.to_owned(),
            spec: name.to_owned(),
            driver: driver.to_owned(),
            mode: mode.to_owned(),
            rx: counted.rx,
            tx: counted.tx,
            in_kernel: counted.in_kernel,
            by_workers: counted.by_workers,
            to_linux: counted.to_linux,
            left_because: counted.left_because().unwrap_or_default().to_owned(),
            ..PortRow::default()
        }
    }

    /// A port of a configuration that does not mirror Linux, which may have an interface of its name all the same.
    fn port_beside_linux(&self, name: &str, counted: PortCounts, links: &Links) -> PortRow {
        let mut row = self.port_row(name, counted);
        let interface = ports::kernel_name(&self.device(name).unwrap_or_else(|| name.to_owned()));
        if let Some(link) = links.named(&interface) {
            (row.index, row.mtu) = (link.index, u32::try_from(link.mtu).unwrap_or(u32::MAX));
            row.interface.clone_from(&link.name);
            row.mac = link.mac.map_or(String::new(), |mac| mac.to_string());
            (row.is_up, row.has_carrier) = (link.is_up, link.has_carrier);
        }
        row
    }

    /// One row a port, with what workers and kernel counted.
    pub(super) fn ports(&self) -> Result<Vec<PortRow>, Unanswered> {
        let mut counts = self.port_counts()?;
        lock(&self.meter).add_rates(&mut counts);
        if self.service.is_none() {
            // A configuration of its own: what its elements counted, of whatever they are at.
            let links = Links::ask().unwrap_or_default();
            let row = |(name, counted): (String, PortCounts)| self.port_beside_linux(&name, counted, &links);
            return Ok(counts.into_iter().map(row).collect());
        }
        let settings = self.settings();
        let state = self.state()?;
        let ports: Vec<_> = state.mirror.ports().map(|port| (above(&state.mirror, &port), port)).collect();
        drop(state);
        let rows = ports.into_iter().map(|(above, port)| {
            let mut row = self.port_row(&port.name, counts.get(&port.name).cloned().unwrap_or_default());
            if let Some(known) = settings.ports.iter().find(|known| known.name == port.name) {
                row.spec = known.spec();
            }
            if let Some(link) = &port.link {
                (row.index, row.mtu) = (link.index, link.mtu);
                row.interface.clone_from(&link.name);
                (row.is_up, row.has_carrier) = (link.is_up, link.has_carrier);
                row.mac = link.mac.map_or(String::new(), mac_text);
            }
            row.addresses = (port.addresses.iter())
                .filter_map(|known| ipnet::IpNet::new(known.address, known.prefix_length).ok())
                .collect();
            row.path = self.path(&port.name).map_or_else(String::new, |path| path.text);
            row.above = above;
            row
        });
        Ok(rows.collect())
    }

    /// A page at a time, so that a million routes stop nobody.
    fn routes(&self, filter: &RouteFilter, rows: &mut Rows<'_>) -> Answered {
        let mut last = None;
        loop {
            let state = self.state()?;
            let mirror = &state.mirror;
            let page: Vec<RouteReport> = mirror.routes_after(last).take(PAGE).collect();
            let Some(end) = page.last() else { return Ok(()) };
            last = Some((end.key, end.source));
            let wanted = page.iter().filter(|route| filter.may_select(route.key.table, route.key.prefix));
            let page: Vec<RouteRow> = wanted.map(|route| route_row(mirror, route)).collect();
            drop(state);
            send(rows, page)?;
        }
    }

    fn route(&self, query: &RouteQuery) -> Result<LookupRow, Unanswered> {
        let state = self.state()?;
        let mirror = &state.mirror;
        let address = query.address;
        let (table, found, decision) = match query.table {
            Some(table) => (table, mirror.route_for(table, address), None),
            None => {
                let port = query.input.as_deref().map(|name| port_called(mirror, name)).transpose()?;
                let ruled = mirror.route_by_rules(port, query.from, address);
                let ruled =
                    ruled.ok_or("the addresses are of two families; packets have addresses of one")?;
                let (table, found) = ruled.found.unzip();
                (table.unwrap_or(MAIN), found, by_a_rule(ruled.decision))
            }
        };
        let next_hops = NextHops::of(mirror);
        let mut ways = Vec::new();
        let decision = match (decision, &found) {
            (Some(decision), _) => decision.to_owned(),
            (None, None) => "no route".to_owned(),
            (None, Some(found)) => {
                next_hops.add_ways(found.next_hop, 1.0, &mut ways);
                let what = next_hops.what(found.next_hop);
                match &found.by {
                    FoundBy::Neighbour(interface) => format!("neighbour on {interface}, {what}"),
                    _ => what,
                }
            }
        };
        let route = found.map(|found| {
            let is_fast = is_fast(mirror, found.next_hop, false);
            let made = |protocol: &str, paths| RouteRow {
                prefix: found.prefix,
                table,
                kind: "unicast".to_owned(),
                protocol: protocol.to_owned(),
                source: "netlink".to_owned(),
                metric: 0,
                object: None,
                paths,
                is_in_force: true,
                is_fast,
            };
            match &found.by {
                FoundBy::Route(route) => route_row(mirror, route),
                FoundBy::Neighbour(interface) => {
                    let interface = interface.clone();
                    made("neighbour", vec![PathRow { interface, weight: 1, is_usable: true, gateway: None }])
                }
                FoundBy::Fixed => made("fixed", Vec::new()),
            }
        });
        Ok(LookupRow { address, table, route, decision, ways })
    }

    /// What is not forwarded, because Linux does not.
    pub(super) fn not_forwarded(&self) -> Result<Vec<String>, Unanswered> {
        // What a node of a cluster punts goes to the leader's Linux.
        if NodeHost::of(&self.shared).is_some() {
            return Ok(Vec::new());
        }
        let state = self.state()?;
        let has_address = |version: IpVersion| {
            let mut addresses = state.mirror.ports().flat_map(|port| port.addresses);
            // Every interface has a link-local address.
            addresses.any(|known| match known.address {
                IpAddr::V4(_) => version == IpVersion::V4,
                IpAddr::V6(address) => version == IpVersion::V6 && !address.is_unicast_link_local(),
            })
        };
        Ok(doctor::not_forwarded(&self.settings(), has_address))
    }

    /// What could not be done as Linux has it: rules that are bypassed, routes, policy rules, packets longer than a frame.
    pub(super) fn problems(&self) -> Result<Vec<String>, Unanswered> {
        self.service()?;
        let settings = self.settings();
        let mut problems = beside_linux::problems(&settings);
        problems.extend(self.feature_problems());
        problems.extend(self.problems_above());
        let obeyed = self.with_router(|router| Obeyed::of(router.config()))?;
        problems.extend(self.not_forwarded()?);
        let state = self.state()?;
        problems.extend(obeyed.problems(&state.mirror, self.has_backstop()));
        problems.extend(state.mirror.crossed_ports().map(|(port, interface)| {
            format!(
                "port {port}: its interface is called {interface} in Linux, and another one has its name; a restart takes \
                 ports by their names"
            )
        }));
        problems.extend(state.mirror.problems().map(ToString::to_string));
        problems.extend(state.mirror.route_problems().iter().map(ToString::to_string));
        problems.extend(state.mirror.rule_problems().iter().map(ToString::to_string));
        let errors = state.kernel.as_ref().map(|kernel| &kernel.counters().errors);
        problems.extend(errors.into_iter().flat_map(|errors| errors.iter()).map(|(reason, count)| {
            format!("netlink: {count} messages of Linux were not understood ({reason}); expected none, so routes may be missing")
        }));
        // A node's mirror has the interfaces of the leader.
        let is_node = NodeHost::of(&self.shared).is_some();
        let has_interface = |name: &str| {
            let port = settings.ports.iter().find(|port| port.name == name);
            !is_node && port.is_none_or(|port| port.host != Host::None)
        };
        for port in state.mirror.ports() {
            let name = &port.name;
            problems.extend(port_problem(name, port.link.as_ref()).filter(|_| has_interface(name)));
            if port.link.is_some_and(|link| link.has_priorities) {
                problems.push(format!(
                    "{name}: it has an egress-qos-map, so packets that leave by it go to Linux"
                ));
            }
        }
        drop(state);
        problems.extend(settings.ports.iter().filter_map(|port| self.frames_too_small(&port.name)));
        problems.extend(self.dropped_by_backstop().into_iter().map(|(_, _, problem)| problem));
        problems.extend(lock(&self.deaf).problems());
        Ok(problems)
    }

    fn workers(&self) -> Result<Vec<WorkerRow>, Unanswered> {
        let (config, stats, shares, workers) = self.with_router(|router| {
            let shares = queue_shares(router).unwrap_or_default();
            (router.config().clone(), router.stats(), shares, router.workers())
        })?;
        let meter = lock(&self.meter);
        let rows = stats.iter().zip(Work::of_copies(&config, &stats)).map(|(copy, work)| {
            let port = |share: &QueueShare| port_of_element(&config, &share.element);
            let held = shares.iter().filter(|share| share.worker == copy.copy);
            let held = held.filter(|share| meter::to_linux(&port(share)).is_none());
            WorkerRow {
                worker: copy.copy,
                is_slow: copy.copy >= workers,
                busy: meter.busy(copy.copy).unwrap_or(copy.busy),
                busy_since_start: copy.busy,
                packets: work.packets,
                cycles_per_packet: meter.cycles_per_packet(copy.copy),
                queues: held.map(|share| format!("{}:{}", port(share), share.queue)).collect(),
            }
        });
        Ok(rows.collect())
    }

    fn queues(&self) -> Result<Vec<QueueRow>, Unanswered> {
        let (config, stats, shares, workers) = self.with_router(|router| {
            let shares = queue_shares(router).unwrap_or_default();
            (router.config().clone(), router.stats(), shares, router.workers())
        })?;
        let mut rows = Vec::new();
        for copy in &stats {
            for counts in copy.elements.iter().flat_map(|element| &element.queues) {
                // What is handed to Linux is not a queue of a port.
                let Some(queue) = counts.queue.filter(|_| meter::to_linux(&counts.port).is_none()) else {
                    continue;
                };
                let is_it = |share: &&QueueShare| {
                    share.queue == queue && port_of_element(&config, &share.element) == counts.port
                };
                let owners = shares.iter().find(is_it).filter(|_| !counts.sends).map(|share| &share.owners);
                let mut others = owners.cloned().unwrap_or_default();
                others.sort_unstable();
                others.dedup();
                rows.push(QueueRow {
                    port: counts.port.clone(),
                    queue,
                    sends: counts.sends,
                    worker: copy.copy,
                    is_slow: copy.copy >= workers,
                    packets: counts.packets,
                    bytes: counts.bytes,
                    dropped: counts.lost.iter().map(|&(reason, count)| (reason.to_owned(), count)).collect(),
                    shared_with: if others == [copy.copy] { Vec::new() } else { others },
                });
            }
        }
        rows.sort_by(|a, b| (&a.port, a.sends, a.queue).cmp(&(&b.port, b.sends, b.queue)));
        Ok(rows)
    }

    /// Returns why the workers' frames do not hold what a port's MTU allows, if they do not.
    pub(super) fn frames_too_small(&self, port: &str) -> Option<String> {
        let is_xdp = self.settings().ports.iter().find(|known| known.name == port)?.driver.is_xdp();
        let state = self.state().ok()?;
        let mtu = state.mirror.ports().find(|known| known.name == port)?.link?.mtu;
        mtu_problem(port, mtu as usize, self.frame_bytes, is_xdp)
    }

    /// What the ports moved, workers and kernel together.
    pub(super) fn port_counts(&self) -> Result<meter::Counts, String> {
        Ok(self.count()?.0)
    }

    /// The counts of all ports, and what the threads of the graph's copies did.
    pub(super) fn count(&self) -> Result<(meter::Counts, Vec<Work>), String> {
        let (config, stats) = self.with_router(|router| (router.config().clone(), router.stats()))?;
        let mut counts = meter::counts(&config, &stats, &self.paths());
        lock(&self.devices).complete(&mut counts, |port| self.device(port));
        Ok((counts, Work::of_copies(&config, &stats)))
    }

    /// The interface whose device moves all packets of a port, those of Linux among them.
    fn device(&self, port: &str) -> Option<String> {
        let open = self.shared.get::<OpenPort>(&OpenPort::key(port))?;
        ["af_packet", "af_xdp"].contains(&open.info().driver).then(|| open.info().name.clone())
    }

    fn punts(&self) -> Result<Vec<PuntRow>, Unanswered> {
        let (config, stats) = self.with_router(|router| (router.config().clone(), router.stats()))?;
        let rows = by_reason(&config, &stats, |stats| &stats.diverted);
        let rows = rows.into_iter().map(|(element, reason, packets)| PuntRow {
            element: element.name.clone(),
            class: element.class.clone(),
            reason: reason.to_owned(),
            packets,
        });
        // What a driver's program leaves to Linux comes to no element.
        let queues = stats.iter().flat_map(|copy| &copy.elements).flat_map(|element| &element.queues);
        let mut left: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for queue in queues {
            for &(reason, packets) in &queue.left_to_host {
                *left.entry((&queue.port, reason)).or_default() += packets;
            }
        }
        let left = left.into_iter().map(|((port, reason), packets)| PuntRow {
            element: port.to_owned(),
            class: "driver".to_owned(),
            reason: reason.to_owned(),
            packets,
        });
        Ok(rows.chain(left).collect())
    }

    fn elements(&self) -> Result<Vec<ElementRow>, Unanswered> {
        let (config, stats, workers, metrics) = self.with_router(|router| {
            (router.config().clone(), router.stats(), router.workers(), router.metrics())
        })?;
        let mut counts: Vec<Vec<CountRow>> = vec![Vec::new(); config.elements.len()];
        for (element, handler, value) in metrics {
            let (name, about) = (handler.metric.unwrap_or_default().to_owned(), handler.doc.to_owned());
            counts[element].push(CountRow { name, about, value });
        }
        let mut cycles = vec![0.0; config.elements.len()];
        let mut through = vec![Through::default(); config.elements.len()];
        for copy in &stats {
            let copies = cycles.iter_mut().zip(&mut through).zip(&config.elements).zip(&copy.elements);
            for (((cycles, through), flat), element) in copies {
                *cycles += element.cycles;
                // Workers have counted what the slow thread takes out of a Punt.
                if flat.class == "Punt" && copy.copy >= workers {
                    continue;
                }
                through.packets += element.packets;
                through.dropped += element.dropped();
            }
        }
        let mut edges: Vec<Vec<EdgeRow>> = vec![Vec::new(); config.elements.len()];
        for (connection, packets) in config.connections.iter().zip(edges::edges(&config, &through)) {
            let to = config.elements[connection.to.0].name.clone();
            edges[connection.from.0].push(EdgeRow {
                output: connection.from.1,
                to,
                input: connection.to.1,
                packets,
            });
        }
        let rows = config.elements.iter().zip(through).zip(cycles).zip(counts).zip(edges);
        let rows = rows.map(|((((flat, through), cycles), counts), edges)| ElementRow {
            element: flat.name.clone(),
            class: flat.class.clone(),
            packets: through.packets,
            dropped: through.dropped,
            cycles,
            counts,
            edges,
        });
        Ok(rows.collect())
    }

    fn system(&self) -> Result<SystemRow, Unanswered> {
        let (stats, workers) = self.with_router(|router| (router.stats(), router.workers()))?;
        let (mut tables, mut next_hops) = (Vec::new(), None);
        if self.service.is_some() {
            let state = self.state()?;
            let fib = state.mirror.fib();
            let kinds = fib.kinds();
            for table in fib.tables() {
                let routes = [
                    (IpVersion::V4, kinds.ipv4.name(), fib.rib4(table).map(|rib| rib.len())),
                    (IpVersion::V6, kinds.ipv6.name(), fib.rib6(table).map(|rib| rib.len())),
                ];
                tables.extend(routes.into_iter().filter_map(|(family, kind, routes)| {
                    Some(RouteTableRow { table, family, kind: kind.to_owned(), routes: routes? })
                }));
            }
            next_hops = Some((fib.next_hops().len(), usize::from(NextHopIndex::MAX.get())));
        }
        Ok(SystemRow {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            namespace: control::api::namespace(),
            uptime_seconds: self.began.elapsed().as_secs_f64(),
            drift: *lock(&self.drift),
            problems: lock(&self.looks).problems,
            workers,
            tables,
            next_hops,
            frames: stats.iter().map(|copy| (copy.pool.free, copy.pool.frames)).collect(),
        })
    }

    fn drops(&self) -> Result<Vec<DropRow>, Unanswered> {
        let (config, stats) = self.with_router(|router| (router.config().clone(), router.stats()))?;
        let counted = by_reason(&config, &stats, |stats| &stats.drops).into_iter();
        let mut rows: Vec<DropRow> = counted
            .map(|(element, reason, packets)| DropRow {
                element: element.name.clone(),
                class: element.class.clone(),
                reason: reason.to_owned(),
                packets,
            })
            .collect();
        rows.extend(self.paths().into_iter().flat_map(|(port, path)| {
            path.losses.by_reason().map(|(reason, packets)| DropRow {
                element: port.clone(),
                class: "XDP redirect".to_owned(),
                reason: reason.to_owned(),
                packets,
            })
        }));
        rows.extend(self.backstop_drops()?.into_iter().map(|drops| DropRow {
            element: drops.port,
            class: "nftables".to_owned(),
            reason: drops.reason.to_owned(),
            packets: drops.packets,
        }));
        rows.retain(|row| row.packets > 0);
        Ok(rows)
    }

    /// The table of a feature.
    fn table(&self, query: &TableQuery) -> Result<Vec<Value>, Unanswered> {
        let shown = FeatureSettings::shown_as(&query.show);
        let shown = shown.ok_or_else(|| {
            format!("there is no '{}' to show; `brickway show` lists what there is", query.show)
        })?;
        Ok(self.with_running(shown.rows)??)
    }

    fn handlers(&self, name: Option<&str>) -> Result<Vec<HandlerRow>, Unanswered> {
        let mut names = self.with_router(|router| router.handlers())?;
        if let Some(name) = name {
            // Those of an element, or the value of one.
            names.retain(|known| known.rsplit_once('.').is_some_and(|(element, _)| element == name));
            if names.is_empty() {
                let (value, config) =
                    self.with_router(|router| (router.read(name), router.config().clone()))?;
                let value = value.map_err(|error| no_element(&config, name).unwrap_or(error))?;
                return Ok(vec![HandlerRow { name: name.to_owned(), value: Some(value) }]);
            }
        }
        Ok(names.into_iter().map(|name| HandlerRow { name, value: None }).collect())
    }

    /// Asks Linux for everything anew, and compares.
    fn drift(&self, rows: &mut Rows<'_>) -> Answered {
        let service = self.service()?;
        let compared = drift::compare(service, &AtomicBool::new(false));
        let compared = compared.map_err(|error| format!("Linux does not report its routes: {error}"))?;
        send(rows, compared.rows(service))
    }
}

/// What elements counted by reason, all copies together, without what was never counted.
fn by_reason<'a>(
    config: &'a FlatConfig,
    stats: &[CopyStats],
    counts: impl Fn(&ElementStats) -> &Vec<(&'static str, u64)>,
) -> Vec<(&'a FlatElement, &'static str, u64)> {
    let mut rows: Vec<(&FlatElement, &str, u64)> = Vec::new();
    for (index, element) in config.elements.iter().enumerate() {
        let first = rows.len();
        let of_copies = stats.iter().filter_map(|copy| copy.elements.get(index));
        for &(reason, packets) in of_copies.flat_map(&counts).filter(|(_, packets)| *packets > 0) {
            match rows[first..].iter_mut().find(|row| row.1 == reason) {
                Some(row) => row.2 += packets,
                None => rows.push((element, reason, packets)),
            }
        }
    }
    rows
}

/// The port that an element receives from, as the configuration names it; the element's own name if it has none.
fn port_of_element(config: &FlatConfig, element: &str) -> String {
    let flat = config.find(element).map(|index| &config.elements[index]);
    let port = flat.and_then(|flat| first_name(&flat.config));
    port.unwrap_or_else(|| element.to_owned())
}

/// Says why nothing comes in or goes out by a port, if so.
fn port_problem(name: &str, link: Option<&Link>) -> Option<String> {
    let Some(link) = link else {
        return Some(format!("{name}: its interface is gone; the port goes on when it is there again"));
    };
    if !link.is_up {
        return Some(format!(
            "{name}: it is down, nothing comes in or goes out by it: ip link set {} up",
            link.name
        ));
    }
    let lost = "it has no carrier, nothing comes in or goes out by it: its cable, or its other end";
    (!link.has_carrier).then(|| format!("{name}: {lost}"))
}

/// Says that no element has the name that stands before a handler's, or alone, if so.
fn no_element(config: &FlatConfig, name: &str) -> Option<String> {
    let element = name.rsplit_once('.').map_or(name, |(element, _)| element);
    if config.find(element).is_some() {
        return None;
    }
    let near = nearest(element, config.elements.iter().map(|known| known.name.as_str()))?;
    Some(format!("no element '{element}'; did you mean '{near}'?"))
}

/// Sends rows, which may take as long as the client takes: with no lock held.
fn send<R: Into<control::api::Row>>(rows: &mut Rows<'_>, all: impl IntoIterator<Item = R>) -> Answered {
    all.into_iter().try_for_each(|row| rows.send(row))
}

fn route_row(mirror: &Mirror, route: &RouteReport) -> RouteRow {
    let paths = mirror.paths(route);
    let is_connected = !paths.is_empty() && paths.iter().all(|path| path.gateway.is_none());
    RouteRow {
        prefix: route.key.prefix,
        table: route.key.table,
        kind: route.kind.name().to_owned(),
        protocol: protocol_name(route.protocol),
        source: route.source.to_string(),
        metric: route.key.metric,
        object: match route.hops {
            Hops::Object(id) => Some(id),
            _ => None,
        },
        paths: (paths.iter())
            .map(|path| PathRow {
                gateway: path.gateway,
                interface: if path.index == 0 { String::new() } else { mirror.interface_name(path.index) },
                weight: path.weight,
                is_usable: mirror.is_usable(path),
            })
            .collect(),
        is_in_force: route.is_in_force,
        is_fast: is_fast(mirror, route.next_hop, is_connected),
    }
}

/// Whether workers forward by a next hop. To a connected network they do once Linux has found the neighbour.
fn is_fast(mirror: &Mirror, next_hop: NextHopIndex, is_connected: bool) -> bool {
    let next_hops = mirror.fib().next_hops();
    // A group counts if some of its packets are forwarded.
    if let Ok(members) = next_hops.members(next_hop) {
        return members.iter().any(|member| is_fast(mirror, member.index, is_connected));
    }
    match next_hops.get(next_hop) {
        Some(NextHop::Resolve(_)) => is_connected,
        next_hop => !matches!(next_hop, Some(NextHop::Punt | NextHop::Local | NextHop::Broadcast)),
    }
}

/// The names of iproute2's rt_protos; a number for others.
pub(super) fn protocol_name(protocol: u8) -> String {
    let name = match protocol {
        0 => "unspec",
        1 => "redirect",
        2 => "kernel",
        3 => "boot",
        4 => "static",
        8 => "gated",
        9 => "ra",
        10 => "mrt",
        11 => "zebra",
        12 => "bird",
        13 => "dnrouted",
        14 => "xorp",
        15 => "ntk",
        16 => "dhcp",
        18 => "keepalived",
        42 => "babel",
        186 => "bgp",
        187 => "isis",
        188 => "ospf",
        189 => "rip",
        192 => "eigrp",
        194 => "sharp",
        195 => "pbr",
        196 => "static",
        number => return number.to_string(),
    };
    name.to_owned()
}

/// Lists the interfaces right above a port that are not ports, with their kinds.
fn above(mirror: &Mirror, port: &PortReport) -> Vec<String> {
    let Some(below) = &port.link else { return Vec::new() };
    let ports = mirror.port_interfaces();
    let is_port = |link: &Link| ports.iter().any(|(index, _)| *index == link.index);
    let above = mirror.right_above(below.index).filter(|link| !is_port(link));
    above.map(|link| format!("{} ({})", link.name, link.kind)).collect()
}

/// The number of the port of this name.
fn port_of(mirror: &Mirror, name: &str) -> Result<u16, Unanswered> {
    let mut ports = mirror.ports();
    let port = ports.find(|port| port.name == name).map(|port| port.port);
    port.ok_or_else(|| {
        let names: Vec<String> = mirror.ports().map(|port| port.name).collect();
        format!("'{name}': not a port of this router; its ports are {}", names.join(", ")).into()
    })
}

/// The same of a port that may be named as Linux calls its interface now, or by an alternative name.
fn port_called(mirror: &Mirror, name: &str) -> Result<u16, Unanswered> {
    let links = ports::Links::ask().unwrap_or_default();
    let index = links.named(name).map(|link| link.index);
    let mut ports = mirror.ports();
    let by_interface =
        ports.find(|port| index.is_some() && port.link.as_ref().map(|link| link.index) == index);
    port_of(mirror, name).or_else(|problem| by_interface.map(|port| port.port).ok_or(problem))
}

/// What the rules decide where no route does.
fn by_a_rule(decision: Decision) -> Option<&'static str> {
    match decision {
        Decision::Route(_) => None,
        Decision::NoRoute => Some("no route"),
        Decision::Blackhole => Some("blackhole (a policy rule)"),
        Decision::Unreachable => Some("unreachable (a policy rule)"),
        Decision::Prohibit => Some("prohibit (a policy rule)"),
        Decision::Punt => Some("punted (a policy rule; run 'brickway show problems')"),
    }
}

/// The next hops of the forwarding tables, by number.
struct NextHops(HashMap<NextHopIndex, NextHopReport>);

impl NextHops {
    fn of(mirror: &Mirror) -> NextHops {
        NextHops(mirror.next_hops().map(|next_hop| (next_hop.number, next_hop)).collect())
    }

    /// What workers do with packets to one.
    fn what(&self, number: NextHopIndex) -> String {
        self.0.get(&number).map_or("no route".to_owned(), |it| behind(&it.next_hop, &it.what))
    }

    /// The ways behind one that is a group, which has this share of the packets itself.
    fn add_ways(&self, number: NextHopIndex, share: f64, ways: &mut Vec<WayRow>) {
        let Some(group) = self.0.get(&number) else { return };
        let weights: u32 = group.members.iter().map(|member| u32::from(member.weight)).sum();
        for member in &group.members {
            let share = share * f64::from(member.weight) / f64::from(weights.max(1));
            let before = ways.len();
            self.add_ways(member.index, share, ways);
            if ways.len() == before {
                ways.push(WayRow { share, decision: self.what(member.index) });
            }
        }
    }
}

/// What workers do with packets to a next hop.
fn behind(next_hop: &Option<NextHop<fib::Adjacency>>, what: &str) -> String {
    match next_hop {
        Some(NextHop::Forward(adjacency)) => format!("forwarded {what}, {adjacency}"),
        Some(NextHop::Resolve(_)) => format!("neighbour to resolve ({what})"),
        Some(NextHop::Punt) if what.is_empty() => "punted".to_owned(),
        Some(NextHop::Punt) => format!("punted ({what})"),
        Some(other) => other.to_string(),
        None => what.to_owned(),
    }
}

fn neighbours(mirror: &Mirror) -> Vec<NeighbourRow> {
    let rows = mirror.neighbours().map(|known| NeighbourRow {
        address: known.address,
        interface: known.interface,
        mac: known.mac.map(mac_text),
        state: known.state.name().to_owned(),
    });
    rows.collect()
}

fn next_hops(mirror: &Mirror) -> Vec<NextHopRow> {
    let rows = mirror.next_hops().map(|known| {
        let weights: u32 = known.members.iter().map(|member| u32::from(member.weight)).sum();
        let mac = known.next_hop.and_then(|next_hop| match next_hop {
            NextHop::Forward(adjacency) => adjacency.rewrite().first_chunk().map(|&mac| mac_text(mac)),
            _ => None,
        });
        let words = known.what.split(' ');
        let after = |name: &str| words.clone().skip_while(|word| *word != name).nth(1).map(str::to_owned);
        let (gateway, interface) = (after("via"), after("dev"));
        NextHopRow {
            id: known.number.get().into(),
            kind: match known.next_hop {
                Some(NextHop::Forward(_)) => "forward".to_owned(),
                Some(other) => other.to_string(),
                None => "group".to_owned(),
            },
            gateway: gateway.and_then(|gateway| gateway.parse().ok()),
            interface: interface.unwrap_or_default(),
            mac,
            members: (known.members.iter())
                .map(|member| MemberRow {
                    id: member.index.get().into(),
                    weight: member.weight,
                    share: f64::from(member.weight) / f64::from(weights.max(1)),
                })
                .collect(),
            users: known.routes,
        }
    });
    rows.collect()
}

fn netlink(state: &State) -> Vec<CounterRow> {
    let kernel = state.kernel.as_ref().map(|kernel| kernel.counters().rows()).unwrap_or_default();
    let mirror = state.mirror.counters().into_iter().map(|(name, value)| (name.to_owned(), value));
    let rest = [
        ("is synchronised".to_owned(), u64::from(state.is_synchronised())),
        ("socket errors".to_owned(), state.socket_errors),
    ];
    kernel.into_iter().chain(mirror).chain(rest).map(counter).collect()
}

fn fpm(state: &State) -> Result<Vec<CounterRow>, Unanswered> {
    let server =
        state.fpm.as_ref().ok_or("this router does not listen for FRR; --fpm 127.0.0.1:2620 does")?;
    let connected = ("is connected".to_owned(), u64::from(server.is_connected()));
    Ok(server.counters().rows().into_iter().chain([connected]).map(counter).collect())
}

fn counter((name, value): (String, u64)) -> CounterRow {
    CounterRow { name, value, note: String::new() }
}

//! =c
//! FabricHello(FABRIC)
//!
//! =s fabric
//! sends and receives hellos on the links to other nodes
//!
//! =d
//! FABRIC names a Fabric element. Takes hellos as FromFabric gives them, painted with the number of
//! their link. Sends hellos of its own: output I<i> is link I<i> of this node. The hellos show
//! which links work both ways, of this node and between other nodes. ToFabric uses only paths that
//! are alive. Messages report links that come and go, and wrong wiring.
//!
//! It stands behind a Punt, on the slow thread. A worker that hangs receives no hellos, so its node
//! reports that it has no neighbours. A slow thread that hangs sends none. Either way the other
//! nodes bypass this node.
//!
//! Hellos carry a tag made with the cluster's key, which the control plane gives and changes at any
//! time. Without a key the element warns when it starts: everybody who reaches a link can then be
//! any node.
//!
//! Hellos that are not believed are dropped and counted: `malformed hello`,
//! `hello of another version`, `hello without the cluster's key`, `hello of another cluster`,
//! `this node's own hello`, `hello with this node's number`, `hello of another topology`,
//! `hello by a wrong link`, `hello of a second node with one number`, `replayed hello`. A message
//! reports a problem when it begins, once for each cause, however many hellos have it.
//!
//! =e
//!   from0[1], from1[1] => Punt -> hellos :: FabricHello(fabric);
//!   hellos[0] -> ToDevice(fab0);  hellos[1] -> ToDevice(fab1);
//!
//! =a Fabric, FromFabric, ToFabric

use std::fmt::Write;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use fabric::{Event, Hello, Keys, Links, Refusal};
use graph::{Class, Combine, Context, Element, FromArgument, Get, Handler, Put, Verdict};
use packet::Batch;

use super::keys::FabricKeys;
use super::node::{Node, Ways};

pub(super) static CLASS: Class = Class {
    name: "FabricHello",
    ports: "-/-",
    processing: Class::PUSH,
    handlers: &[
        Handler::read(
            "links",
            Combine::Join,
            "A line for each link and neighbour: link, node, up or down, and what is wrong.",
            &Get(|e: &mut FabricHello| e.links_text()),
        ),
        Handler::read_write(
            "drain",
            Combine::First,
            "Whether this node asks the others to relay nothing over it, because it is about to leave.",
            &Get(|e: &mut FabricHello| e.is_draining.to_string()),
            &Put(|e: &mut FabricHello, cx, value| e.set_drain(cx, value)),
        ),
    ],
    manual: graph::manual!("fabric_hello.rs"),
    make: |setup| {
        let node = Node::with_links(setup)?;
        let copy = setup.copy();
        let is_ours = copy.is_slow() || (!copy.slow_thread && copy.index == 0);
        let given = setup.shared().get::<FabricKeys>(FabricKeys::KEY);
        Ok(Box::new(FabricHello {
            links: None,
            is_ours,
            is_draining: false,
            keys: Keys::public(),
            version: 0,
            given,
            node,
        }))
    },
    ..Class::DEFAULT
};

struct FabricHello {
    node: Arc<Node>,
    /// What is known of them, on the one copy that speaks.
    links: Option<Links>,
    is_ours: bool,
    is_draining: bool,
    keys: Keys,
    /// Of the keys.
    version: u64,
    given: Option<Arc<FabricKeys>>,
}

/// What an operator has to know who gave the cluster no key.
const NO_KEY: &str = "fabric: this cluster has no key, so everybody who reaches a link can be any node of it";

/// Reports what happened on a link: to the log of a program that has one, with fields.
fn report(event: &Event, cx: &mut Context) {
    if !tracing::dispatcher::has_been_set() {
        return cx.message(&event.to_string());
    }
    match event {
        Event::LinkUp { link, node } => {
            tracing::info!(event = "fabric", link, node = node.number(), state = "up", "{event}");
        }
        Event::LinkDown { link, node, one_way } => {
            let reason = if *one_way { "it does not hear this node" } else { "it is not heard" };
            tracing::warn!(event = "fabric", link, node = node.number(), state = "down", reason, "{event}");
        }
        Event::Wrong { link, problem } => {
            tracing::warn!(event = "fabric", link, state = "wrong", reason = problem, "{event}");
        }
        Event::Right { link, .. } => tracing::info!(event = "fabric", link, state = "right", "{event}"),
    }
}

impl FabricHello {
    /// Tells what happened, to the operator and to ToFabric.
    fn tell(&mut self, cx: &mut Context) {
        let Some(links) = &mut self.links else { return };
        links.events().iter().for_each(|event| report(event, cx));
        if let Some(paths) = links.changed_paths() {
            let believed = (0..self.node.links() as u16).map(|link| links.believed(link)).collect();
            self.node.set_ways(Ways { paths: Arc::new(paths), believed });
        }
    }

    /// Takes the keys that are in force.
    fn take_keys(&mut self) {
        if let Some(given) = &self.given {
            // Read first, so that a change meanwhile is found at the next look.
            self.version = given.version();
            self.keys = given.keys();
        }
    }

    /// Hears a frame. Returns why nothing of it is believed, if so.
    fn hear(&mut self, link: u16, frame: &[u8], now_ns: u64) -> Option<&'static str> {
        let Some(links) = &mut self.links else { return Some("hellos are off") };
        let heard = match Hello::from_frame(frame, &self.keys) {
            Some(Ok(hello)) => links.receive(link, &hello, now_ns),
            Some(Err(error)) => Err(links.refuse(link, error, now_ns)),
            None => Err(Refusal::Malformed),
        };
        heard.err().map(Refusal::reason)
    }

    /// The handler `links`.
    fn links_text(&self) -> String {
        let mut text = String::new();
        for (link, node, is_up) in self.links.iter().flat_map(Links::neighbours) {
            let problem = self.links.as_ref().and_then(|links| links.problem_of(link)).unwrap_or_default();
            let state = if is_up { "up" } else { "down" };
            // Writing to a string does not fail.
            let _ = writeln!(text, "{}", format!("{link} {node} {state} {problem}").trim_end());
        }
        text
    }

    /// Writes the handler `drain`.
    fn set_drain(&mut self, cx: &mut Context, value: &str) -> Result<(), String> {
        self.is_draining = bool::from_value(value)?;
        if let Some(links) = &mut self.links {
            links.drain(self.is_draining);
        }
        self.tell(cx);
        Ok(())
    }
}

impl Element for FabricHello {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        let Some(timing) = self.node.timing.filter(|_| self.is_ours) else { return Ok(()) };
        if self.given.is_none() {
            cx.message(NO_KEY);
        }
        self.take_keys();
        // No two starts are at the same nanosecond; Links does with clocks that were put back.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let incarnation = since.as_nanos() as u64;
        let topology = Arc::clone(&self.node.topology);
        self.links = Some(Links::new(topology, self.node.here, self.node.cluster, incarnation, timing));
        cx.set_timer(0, cx.now_ns());
        Ok(())
    }

    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        let now_ns = cx.now_ns();
        cx.filter(batch, |packet| {
            match self.hear(u16::from(packet.annotations().paint()), packet.data(), now_ns) {
                None => Verdict::Keep,
                Some(reason) => Verdict::Drop(reason),
            }
        });
        cx.free(batch);
        self.tell(cx);
    }

    fn timer(&mut self, cx: &mut Context, _key: u32) {
        if self.given.as_ref().is_some_and(|given| given.version() != self.version) {
            self.take_keys();
        }
        let Some(links) = &mut self.links else { return };
        let now_ns = cx.now_ns();
        links.tick(now_ns);
        for link in 0..self.node.links() as u16 {
            let frame = links.hello(link).frame(&self.keys);
            let Some(mut packet) = cx.allocate() else {
                cx.count_drop("no frame for a hello", 1);
                continue;
            };
            if packet.set_data(&frame) {
                cx.emit(usize::from(link), packet);
            } else {
                cx.drop(packet, "hello longer than a frame");
            }
        }
        let hello_ns = links.timing().hello_ns;
        cx.set_timer(0, now_ns + hello_ns);
        self.tell(cx);
    }
}

//! =c
//! FabricHello(FABRIC)
//!
//! =s fabric
//! says and hears hellos on the links to other nodes
//!
//! =d
//! FABRIC names a Fabric element. Takes hellos as FromFabric gives them, painted with the number of their link, and sends hellos of its own: output
//! I<i> is link I<i> of this node. From these it knows which links work both ways, and which links between other
//! nodes do; ToFabric uses only ways that are alive. What comes and goes, and what is wired wrongly, it says as messages.
//!
//! It stands behind a Punt, on the slow thread: a worker that hangs hears no hellos, so its node says that it hears nobody, and a
//! slow thread that hangs says none. Either way the others go round this node.
//!
//! Hellos that cannot be read are dropped and counted as "malformed hello".
//!
//! =h links read-only
//! A line for each link and neighbour: link, node, up or down, and what is wrong.
//!
//! =h rest read/write
//! Whether this node asks the others to relay nothing over it, because it is about to leave.
//!
//! =e
//!   from0[1], from1[1] => Punt -> hellos :: FabricHello(fabric);
//!   hellos[0] -> ToDevice(fab0);  hellos[1] -> ToDevice(fab1);
//!
//! =a Fabric, FromFabric, ToFabric

use std::fmt::Write;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use fabric::{Hello, Links};
use graph::{Class, Combine, Context, Element, FromArgument, Handler, Verdict};
use packet::Batch;

use super::node::Node;

pub(super) static CLASS: Class = Class {
    name: "FabricHello",
    ports: "-/-",
    processing: Class::PUSH,
    flow: Class::COMPLETE_FLOW,
    manual: include_str!("fabric_hello.rs"),
    make: |setup| {
        let node = Node::with_links(setup)?;
        let copy = setup.copy();
        let is_ours = copy.is_slow() || (!copy.slow_thread && copy.index == 0);
        Ok(Box::new(FabricHello { links: None, is_ours, rests: false, node }))
    },
};

struct FabricHello {
    node: Arc<Node>,
    /// What is known of them, on the one copy that speaks.
    links: Option<Links>,
    is_ours: bool,
    rests: bool,
}

impl FabricHello {
    /// Tells what happened, to the operator and to ToFabric.
    fn tell(&mut self, cx: &mut Context) {
        let Some(links) = &mut self.links else { return };
        links.events().iter().for_each(|event| cx.message(&event.to_string()));
        if let Some(paths) = links.changed_paths() {
            self.node.set_paths(paths);
        }
    }
}

impl Element for FabricHello {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        let Some(timing) = self.node.timing.filter(|_| self.is_ours) else { return Ok(()) };
        let incarnation = RandomState::new().build_hasher().finish();
        let topology = Arc::clone(&self.node.topology);
        self.links = Some(Links::new(topology, self.node.here, self.node.cluster, incarnation, timing));
        cx.set_timer(0, cx.now_ns());
        Ok(())
    }

    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        let now_ns = cx.now_ns();
        let links = &mut self.links;
        cx.filter(batch, |packet| match (Hello::from_frame(packet.data()), &mut *links) {
            (Some(Ok(hello)), Some(links)) => {
                links.receive(u16::from(packet.annotations().paint()), &hello, now_ns);
                Verdict::Keep
            }
            (Some(Ok(_)), None) => Verdict::Drop("hellos are off"),
            _ => Verdict::Drop("malformed hello"),
        });
        cx.free(batch);
        self.tell(cx);
    }

    fn timer(&mut self, cx: &mut Context, _key: u32) {
        let Some(links) = &mut self.links else { return };
        let now_ns = cx.now_ns();
        links.tick(now_ns);
        for link in 0..self.node.links() as u16 {
            let frame = links.hello(link).frame();
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

    fn handlers(&self) -> &'static [Handler] {
        const { &[Handler::read("links", Combine::Join), Handler::read_write("rest", Combine::First)] }
    }

    fn read(&mut self, name: &str, _argument: &str) -> Result<String, String> {
        if name == "rest" {
            return Ok(self.rests.to_string());
        }
        let mut text = String::new();
        for (link, node, is_up) in self.links.iter().flat_map(Links::neighbours) {
            let problem = self.links.as_ref().and_then(|links| links.problem_of(link)).unwrap_or_default();
            let state = if is_up { "up" } else { "down" };
            // Writing to a string does not fail.
            let _ = writeln!(text, "{}", format!("{link} {node} {state} {problem}").trim_end());
        }
        Ok(text)
    }

    fn write(&mut self, cx: &mut Context, _name: &str, value: &str) -> Result<(), String> {
        self.rests = bool::from_value(value)?;
        if let Some(links) = &mut self.links {
            links.rest(self.rests);
        }
        self.tell(cx);
        Ok(())
    }
}

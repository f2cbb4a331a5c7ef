//! =c
//! ToHostSniffers([DEVNAME])
//!
//! =s devices
//! shows packets to programs that listen on an interface
//!
//! =d
//! Gives Ethernet frames only to those programs of this host that listen on an interface (tcpdump,
//! Wireshark). Linux itself drops them. The interface is virtual (a TAP device), is called DEVNAME
//! (C<sniff0> without one) and is gone when the router ends. If an interface of that name (or with
//! that Ethernet address) exists, the virtual one gets its name with C<-s> behind it. Several
//! ToHostSniffers may share one. Its input is push. It needs Linux 6.6 or newer.
//!
//! Different from Click: it needs no kernel module, and so cannot have packets appear on an
//! interface of another kind. There are no SNIFFERS, TYPE and ALLOW_NONEXISTENT.
//!
//! =e
//!   ... -> t :: Tee -> ToDevice(eth0); t[1] -> ToHostSniffers(copy0);
//!
//! and in a shell C<tcpdump -i copy0>.
//!
//! =a ToHost, ToDump

use packet::sync::lock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use elements::devices::{Losses, Unopened, interface_with, open_options};
use graph::{Class, Combine, ConfigError, Context, Element, Get, Handler, Setup};
use packet::Batch;
use ports::{Port, TxQueue};

pub(crate) static CLASS: Class = Class {
    name: "ToHostSniffers",
    ports: "1/0",
    processing: Class::PUSH,
    handlers: &[
        Handler::read(
            "count",
            Combine::Sum,
            "Packets given to Linux.",
            &Get(|e: &mut ToHostSniffers| e.queue.stats().packets.to_string()),
        ),
        Handler::read(
            "device",
            Combine::First,
            "The interface's name.",
            &Get(|e: &mut ToHostSniffers| e.sniffed.name.clone()),
        ),
    ],
    manual: graph::manual!("to_host_sniffers.rs"),
    make,
    ..Class::DEFAULT
};

/// Transmit queues of an interface, of which each copy of each element takes one. They cost nothing: all write into one
/// file.
const QUEUES: usize = 4096;

/// An interface, shared by the elements that name it.
struct Sniffed {
    port: Mutex<Box<dyn Port>>,
    name: String,
    next: AtomicUsize,
}

impl Sniffed {
    fn open(name: &str) -> Result<Self, ConfigError> {
        let name = if ports::addresses(name).is_some() { format!("{name}-s") } else { name.to_owned() };
        let port = ports::open(&format!("tap:{name}?listeners"), &open_options(1, QUEUES))
            .map_err(|error| ConfigError::new(error.to_string()))?;
        Ok(Self { port: Mutex::new(port), name, next: AtomicUsize::new(0) })
    }

    fn take_tx(&self) -> Result<Box<dyn TxQueue>, ConfigError> {
        let mut port = lock(&self.port);
        port.take_tx(self.next.fetch_add(1, Ordering::Relaxed))
            .map_err(|error| ConfigError::new(error.to_string()))
    }
}

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let name: Option<String> = setup.arguments.optional("DEVNAME")?;
    setup.arguments.finish()?;
    if setup.is_check() {
        return Ok(Box::new(Unopened));
    }
    let name = name.unwrap_or_else(|| "sniff0".to_owned());
    let name = interface_with(&name)?.unwrap_or(name);
    let sniffed = setup.shared().get_or_make(&format!("sniffed:{name}"), || Sniffed::open(&name))?;
    Ok(Box::new(ToHostSniffers { queue: sniffed.take_tx()?, sniffed, losses: Losses::default() }))
}

struct ToHostSniffers {
    queue: Box<dyn TxQueue>,
    sniffed: Arc<Sniffed>,
    losses: Losses,
}

impl Element for ToHostSniffers {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        self.queue.send(cx.pool(), batch);
        cx.drop_batch(batch, "transmit queue full");
    }

    fn settle(&mut self, cx: &mut Context) {
        self.losses.count(cx, &self.queue.stats());
    }
}

#[cfg(test)]
mod tests {
    use crate::registry;
    use graph::setup::Shared;
    use graph::testing::Bench;
    use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketType};
    use std::num::NonZeroU32;
    use std::os::fd::OwnedFd;
    use testbed::{in_namespace, ip, wait_until};

    /// A socket that hears what comes in by any interface (packet(7)).
    fn listener() -> OwnedFd {
        let all = NonZeroU32::new(u32::from(0x0003_u16.to_be())).map(Protocol::from_raw);
        rustix::net::socket(AddressFamily::PACKET, SocketType::RAW, all).unwrap()
    }

    #[test]
    fn listeners_see_what_linux_does_not() {
        in_namespace(|| {
            let config =
                "in0 :: TestInput -> a :: ToHostSniffers(one); in1 :: TestInput -> b :: ToHostSniffers(one);
                Idle -> c :: ToHostSniffers(two)";
            ip("link add two type veth peer name other");
            let mut bench = Bench::try_new(&registry(), config, 32, &Shared::default()).unwrap();
            assert_eq!((bench.read("a.device"), bench.read("c.device")), ("one".into(), "two-s".into()));
            ip("addr add 192.0.2.1/24 dev one");
            let listener = listener();
            let mut request = vec![0xff; 6];
            request.extend([2, 0, 0, 0, 0, 7, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 7, 192, 0, 2, 7]);
            request.extend([0, 0, 0, 0, 0, 0, 192, 0, 2, 1]);
            bench.push("in0", &[&request]);
            bench.push("in1", &[&request]);
            let mut heard = 0;
            let mut buffer = [0; 2048];
            wait_until("both frames", || {
                while let Ok((length, _)) = rustix::net::recv(&listener, &mut buffer[..], RecvFlags::DONTWAIT)
                {
                    heard += usize::from(buffer[..length] == request[..]);
                }
                heard >= 2
            });
            assert_eq!((heard, bench.read("a.count"), bench.read("b.count")), (2, "1".into(), "1".into()));
            // Linux would know who asked, had it got the question.
            assert_eq!(ip("neigh show dev one"), "");
        });
    }
}

//! =c
//! LuaRouter(PORT0, PORT1, ..., FILE [, I<keywords> MTU, ARGS, ERRORS, BUDGET, ALLOW])
//!
//! =s ip
//! forwards packets by the router's forwarding tables, directed by a Lua script
//!
//! =d
//! Lua with the forwarding tables that the router keeps in step with Linux (see FIBLookup), for the
//! ports that the arguments name. Expects Ethernet frames, with an input and an output for each
//! port. The output behind those of the ports is for packets that Linux has to process; they leave
//! as they came. `brickway lua FILE PORT...` makes the configuration around it.
//!
//! These functions each take a mask of the batch's packets, or all packets without one, and return the mask of those
//! to go on with. They leave all other packets as they are.
//!
//! =item batch:check_ip(mask)
//! IPv4 frames whose header is valid by the rules of CheckIPHeader. They begin with that header
//! now. Other IPv4 frames are dropped.
//!
//! =item batch:check_ip6(mask)
//! the same for IPv6, by the rules of CheckIP6Header
//!
//! =item batch:lookup(mask)
//! of the checked packets those whose next hop is a known neighbour behind another port; not those
//! with options, or that came as a link-level broadcast. Packets of a blackhole route are dropped.
//!
//! =item batch:check_mtu(mask)
//! of the packets of lookup those that are not too long for their port
//!
//! =item batch:decrement_ttl(mask)
//! of the checked packets those that live on, with a TTL or hop limit that is one less
//!
//! =item batch:apply_routes(mask)
//! frames with the next hop's header, which leave by its port; not those that are sent or dropped
//! already
//!
//! =item batch:punt(mask)
//! has undecided packets leave for Linux, as they came
//!
//! =back
//!
//! `brickway.ports` has the names of the ports. MTU has the largest packet of each port, without
//! Ethernet header, separated by spaces and quoted; 1500 by default. The handlers C<mtu4_1>,
//! C<mtu4_2> ... and C<mtu6_1> ... have these, of IPv4 and of IPv6. C<own> has the router's
//! IPv4 addresses, from which nobody else sends.
//!
//! =e
//!   router :: LuaRouter(eth1, eth2, FILE examples/lua/router.lua);
//!   FromDevice(eth1) -> Paint(1) -> [0] router [0] -> ToDevice(eth1);
//!   FromDevice(eth2) -> Paint(2) -> [1] router [1] -> ToDevice(eth2);
//!   router[2] -> Punt -> ...
//!
//! =a Lua, FIBLookup, CheckIPHeader, DecIPTTL

use graph::lang::unquote;
use graph::{Class, ConfigError, Element, FromArgument, Setup};

use crate::element::{HANDLERS, make_with};

pub(crate) static CLASS: Class = Class {
    name: "LuaRouter",
    ports: "-/-",
    processing: Class::PUSH,
    capabilities: &[elements::lookup::FORWARDS, graph::METRICS, graph::TAKES_MERGED],
    handlers: HANDLERS,
    manual: graph::manual!("router.rs"),
    make,
    ..Class::DEFAULT
};

/// The MTU argument.
struct Mtus(Vec<u32>);

impl FromArgument for Mtus {
    const EXPECTED: &'static str = "numbers of bytes, separated by spaces and quoted";
    fn from_argument(text: &str) -> Option<Self> {
        let text = unquote(text);
        text.split_whitespace().map(u32::from_argument).collect::<Option<_>>().map(Self)
    }
}

/// The ports of a router.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ports {
    pub(crate) names: Vec<String>,
    pub(crate) mtus: Vec<u32>,
}

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    make_with(setup, None, |setup| {
        let mtus = setup.arguments.keyword::<Mtus>("MTU")?;
        let ports: Vec<String> = setup.arguments.rest_with_names().iter().map(|name| unquote(name)).collect();
        if ports.is_empty() {
            return Err(ConfigError::new("no ports; expected the names of the router's ports"));
        }
        if setup.outputs() != ports.len() + 1 || setup.inputs() != ports.len() {
            return Err(ConfigError::new(format!(
                "{} inputs and {} outputs; expected {} inputs, one for each port, and an output more",
                setup.inputs(),
                setup.outputs(),
                ports.len()
            )));
        }
        let mtus = mtus.map_or_else(|| vec![1500; ports.len()], |mtus| mtus.0);
        if mtus.len() != ports.len() {
            return Err(ConfigError::new(format!(
                "MTU has {} numbers; expected {}, one for each port",
                mtus.len(),
                ports.len()
            )));
        }
        Ok(Ports { names: ports, mtus })
    })
}

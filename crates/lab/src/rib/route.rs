//! A route of a file: a prefix, and what the file says of it. That is the origin in tables of prefixes and origins, and
//! next hops in what `ip route` prints. Routes print themselves as rows that are read back as the same routes.

use std::fmt;

use fib::read::IpRoute;
use ipnet::IpNet;
use serde_json::{Value, json};

/// A route.
#[derive(Clone, Debug)]
pub(super) struct Route {
    pub(super) prefix: IpNet,
    pub(super) target: Target,
}

/// What a file says of a prefix.
#[derive(Clone, Debug)]
pub(super) enum Target {
    /// The autonomous system that announces it.
    Origin(u32),
    /// The next hops.
    Ways(Box<IpRoute>),
}

impl Target {
    /// Whether packets go the same way. Who made the route does not matter.
    pub(super) fn is_same(&self, other: &Target) -> bool {
        match (self, other) {
            (Target::Origin(a), Target::Origin(b)) => a == b,
            (Target::Ways(a), Target::Ways(b)) => (a.kind, &a.hops, a.metric) == (b.kind, &b.hops, b.metric),
            _ => false,
        }
    }

    /// The next hops as people write them, without prefix, metric and the like: what two routes have in common that go
    /// the same way.
    pub(super) fn next_hop(&self) -> String {
        match self {
            Target::Origin(origin) => origin.to_string(),
            Target::Ways(route) if route.hops.is_empty() => route.kind.name().to_owned(),
            Target::Ways(route) => {
                let bare =
                    IpRoute { table: None, metric: 0, protocol: None, ..(**route).clone() }.to_string();
                bare.split_once(&format!("{} ", route.prefix))
                    .map_or(bare.clone(), |(kind, hops)| format!("{kind}{hops}"))
            }
        }
    }

    /// All that matters when two are compared: [`Target::next_hop`] and the metric.
    pub(super) fn text(&self) -> String {
        match self {
            Target::Ways(route) if route.metric != 0 => {
                format!("{} metric {}", self.next_hop(), route.metric)
            }
            _ => self.next_hop(),
        }
    }

    /// As a JSON object's fields.
    pub(super) fn json(&self) -> Value {
        match self {
            Target::Origin(origin) => json!({ "origin": origin }),
            Target::Ways(route) => {
                let hops: Vec<Value> = route
                    .hops
                    .iter()
                    .map(|hop| json!({ "via": hop.via, "dev": hop.device, "weight": hop.weight }))
                    .collect();
                json!({
                    "kind": route.kind.name(),
                    "next_hops": hops,
                    "metric": route.metric,
                    "protocol": route.protocol,
                })
            }
        }
    }
}

impl Route {
    /// As a JSON object.
    pub(super) fn json(&self) -> Value {
        let mut object = self.target.json();
        object["prefix"] = json!(self.prefix.to_string());
        object
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            Target::Origin(origin) => write!(f, "{} {origin}", self.prefix),
            Target::Ways(route) => write!(f, "{route}"),
        }
    }
}

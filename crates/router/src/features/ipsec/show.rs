//! `brickway show ipsec`: policies in the order in which they are asked, what happens to packets that none matches, associations.

use std::collections::{BTreeMap, HashMap};

use control::api::schema::Schemas;
use control::api::utoipa;
use control::netlink::xfrm::{Action, Defaults, Direction, Policy as KernelPolicy, Sa, Template};
use elements::ipsec::{Database, Policy, PolicyAction, PolicyCount};
use ipsec::Fault;
use ipsec::association::Age;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::linux_ipsec::{Known, LinuxIpsec, State, blocks};
use super::translation;
use crate::features::{Running, Shown};
use crate::table::{Align, thousands, wrapped};

/// How long a line is at most.
const WIDTH: usize = 100;

/// The same of the column of addresses: a prefix of IPv6 between `> ` and a comma.
const ENDS_WIDTH: usize = 46;

/// A policy, a default or an association.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = IpsecRow)]
pub(super) struct Row {
    /// `policy` or `default` with `in`, `out` or `fwd`, or `esp` and the SPI.
    what: String,
    /// Source prefix or address; `any` of a default.
    from: String,
    /// Destination prefix or address.
    to: String,
    /// What else a policy asks of its packets: `tcp to port 80`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    only: String,
    /// Packets of the policy, or that the association has protected or opened. `null` where Linux counts.
    packets: Option<u64>,
    /// Their bytes.
    bytes: Option<u64>,
    /// Packets that the association has dropped, by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    dropped: BTreeMap<String, u64>,
    /// What is done, and by whom.
    does: String,
}

pub(super) static SHOWN: &[Shown] = &[Shown {
    name: "ipsec",
    about: "Policies and associations of IPsec, with what they did",
    columns: &[
        ("", Align::Left),
        ("from > to", Align::Left),
        ("packets", Align::Right),
        ("bytes", Align::Right),
        ("action", Align::Left),
    ],
    rows,
    row: Schemas::add::<Row>,
    folds_at: Some(WIDTH),
    lines: |row| serde_json::from_value(row).map(lines),
    nothing: "Linux has no IPsec policies and no associations.",
    counts: &["packets", "bytes", "dropped"],
    labels: &["what", "from", "to", "only"],
}];

/// Returns a row's lines: the action stands behind or below the last one.
fn lines(row: Row) -> Vec<Vec<String>> {
    let Row { what, from, to, only, packets, bytes, dropped, does } = row;
    let mut ends: Vec<String> = Vec::new();
    let only = if only.is_empty() { String::new() } else { format!(", {only}") };
    let parts = [format!("{from} > {to}{only}"), format!("{from} > {to}"), from];
    match parts.iter().position(|part| part.len() <= ENDS_WIDTH) {
        Some(0) => ends.extend(parts.into_iter().take(1)),
        Some(1) => {
            ends.extend(parts.into_iter().skip(1).take(1));
            ends.extend(wrapped(only.trim_start_matches(", "), ENDS_WIDTH));
        }
        _ => {
            ends.extend(parts.into_iter().skip(2));
            ends.extend(wrapped(&format!("> {to}{only}"), ENDS_WIDTH));
        }
    }
    let all: u64 = dropped.values().sum();
    let faults: Vec<String> =
        dropped.iter().map(|(reason, count)| format!("{} {reason}", thousands(*count))).collect();
    let faults = if all == 0 {
        String::new()
    } else {
        format!("; dropped: {}", faults.join(", ").replace("ESP: ", ""))
    };
    let count = |count: Option<u64>| count.map_or("-".to_owned(), thousands);
    let (mut what, mut counts) = (Some(what), Some([count(packets), count(bytes)]));
    let last = ends.len() - 1;
    let line = |(number, ends)| {
        let [packets, bytes] = counts.take().unwrap_or_default();
        let does = if number == last { format!("{does}{faults}") } else { String::new() };
        vec![what.take().unwrap_or_default(), ends, packets, bytes, does]
    };
    ends.into_iter().enumerate().map(line).collect()
}

fn rows(running: &Running<'_>) -> Result<Vec<Value>, String> {
    let (Some(linux), Some(database)) = (LinuxIpsec::of(running.shared), Database::of(running.shared)) else {
        return Err("IPsec is off: it is ignored (--ignore ipsec), the graph is not that of `brickway run PORT...`, or the \
                    kernel has none"
            .to_owned());
    };
    let rows = rows_of(&linux.state(), &database.policies());
    rows.into_iter().map(|row| serde_json::to_value(row).map_err(|error| error.to_string())).collect()
}

/// Returns the rows of what there is, with what the policies of the fast path met.
pub(super) fn rows_of(state: &State, of_elements: &[PolicyCount]) -> Vec<Row> {
    let counts: HashMap<&Policy, &PolicyCount> =
        of_elements.iter().map(|count| (&count.policy, count)).collect();
    let mut rows: Vec<Row> = Vec::new();
    if !state.counts() {
        // What this node's own Linux has means nothing to the cluster.
        let at_leader =
            |row: Row| Row { does: row.does.replacen("tunnel ", "at the leader: tunnel ", 1), ..row };
        return of_elements.iter().map(policy_of_leader).map(at_leader).collect();
    }
    for policy in state.policies.values() {
        let ours = translation::policy(policy);
        let count = ours.as_ref().and_then(|ours| counts.get(ours));
        let does = match (ours.map(|ours| ours.action), translation::others(policy)) {
            (Some(PolicyAction::Linux(lack)), _) => format!("Linux: {lack}"),
            (None, others) => format!("Linux: {}", others.unwrap_or_default()),
            (Some(_), _) => action(policy, state),
        };
        rows.push(Row {
            what: format!("policy {}", policy.direction.word()),
            from: policy.selector.source.trunc().to_string(),
            to: policy.selector.destination.trunc().to_string(),
            only: translation::conditions(&policy.selector),
            packets: count.map(|count| count.packets),
            bytes: count.map(|count| count.bytes),
            dropped: BTreeMap::new(),
            does,
        });
    }
    // What the last leader of the cluster protected, and this node's own Linux has no policy for.
    let own: Vec<Policy> = state.policies.values().filter_map(translation::policy).collect();
    for count in of_elements.iter().filter(|count| state.leads() && !own.contains(&count.policy)) {
        let row = policy_of_leader(count);
        rows.push(Row { does: format!("{}, held from the last leader", row.does), ..row });
    }
    let Defaults { input, forward, output } = state.defaults.unwrap_or(Defaults::ALLOW);
    let defaults = [(Direction::Out, output), (Direction::Forward, forward), (Direction::In, input)];
    for (direction, _) in defaults.into_iter().filter(|(_, action)| blocks(*action)) {
        let does = if direction == Direction::In { "Linux: packets to this host" } else { "block" };
        rows.push(Row {
            what: format!("default {}", direction.word()),
            from: "any".to_owned(),
            to: "any".to_owned(),
            only: String::new(),
            packets: None,
            bytes: None,
            dropped: BTreeMap::new(),
            does: does.to_owned(),
        });
    }
    rows.extend(state.sas.values().map(association));
    rows
}

/// A policy of the cluster's leader, as this node works by it.
fn policy_of_leader(count: &PolicyCount) -> Row {
    let Policy { direction, selector, action } = &count.policy;
    let does = match action {
        PolicyAction::Bypass => "allow".to_owned(),
        PolicyAction::Discard => "block".to_owned(),
        PolicyAction::Linux(lack) => format!("Linux: {lack}"),
        PolicyAction::Protect(template) => {
            let (source, destination) = (template.endpoints.source(), template.endpoints.destination());
            let request =
                if template.request == 0 { String::new() } else { format!(" reqid {}", template.request) };
            let unprotected = if template.is_optional { ", or unprotected" } else { "" };
            format!("tunnel {source} > {destination}{request}{unprotected}")
        }
    };
    Row {
        what: format!("policy {}", direction.word()),
        from: selector.source.to_string(),
        to: selector.destination.to_string(),
        only: selector.conditions(),
        packets: Some(count.packets),
        bytes: Some(count.bytes),
        dropped: BTreeMap::new(),
        does,
    }
}

/// What a policy has done to its packets, in the words of `ip xfrm`.
fn action(policy: &KernelPolicy, state: &State) -> String {
    if policy.action != Action::Allow {
        return "block".to_owned();
    }
    let Some(Template { source, destination, spi, request_id, is_optional, .. }) = policy.templates.first()
    else {
        return "allow".to_owned();
    };
    let fits = |sa: &Sa| {
        (sa.source, sa.id.destination) == (*source, *destination)
            && [0, sa.request_id].contains(request_id)
            && [0, sa.id.spi].contains(spi)
    };
    let mut does = format!("tunnel {source} > {destination}");
    if *request_id != 0 {
        does += &format!(" reqid {request_id}");
    }
    if *is_optional {
        does += ", or unprotected";
    }
    if !state.sas.values().any(|known| fits(&known.sa)) {
        does += ", no association yet";
    }
    does
}

fn association(known: &Known) -> Row {
    let Known { sa, association, .. } = known;
    let mut row = Row {
        what: format!("esp {:#010x}", sa.id.spi),
        from: sa.source.to_string(),
        to: sa.id.destination.to_string(),
        only: String::new(),
        packets: None,
        bytes: None,
        dropped: BTreeMap::new(),
        does: String::new(),
    };
    match association {
        Err(lack) => row.does = format!("Linux: {lack}"),
        Ok(association) => {
            let used = association.used();
            (row.packets, row.bytes) = (Some(used.packets), Some(used.bytes));
            let faults = Fault::ALL.iter().map(|fault| (fault.reason(), association.faults(*fault)));
            row.dropped = faults
                .filter(|(_, count)| *count != 0)
                .map(|(reason, count)| (reason.to_owned(), count))
                .collect();
            let udp = if association.settings().udp.is_some() { " in UDP" } else { "" };
            let request =
                if sa.request_id == 0 { String::new() } else { format!(" reqid {}", sa.request_id) };
            let age = match association.age() {
                Age::Young => "",
                Age::Soft => ", to be renewed",
                Age::Expired => ", expired",
            };
            row.does = format!("{}{udp}{request}{age}", association.keys().suite());
        }
    }
    row
}

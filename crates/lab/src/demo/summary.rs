//! The end of the demo: what the router says of its routing table and counted in its elements, for people.

use router::output::{say, say_line};
use router::table::{Align, Table, scaled, thousands};

/// What the router is asked at the end, of the lookup element of its configuration: bytes of routes and tables, and
/// whether the tables say what the routes say.
pub(super) const READ_MEMORY: &str = "rt.memory";
pub(super) const READ_CHECK: &str = "rt.check";

/// What the router counted.
pub(super) struct Totals {
    pub(super) elements: Vec<serde_json::Value>,
    pub(super) table: RoutingTable,
    pub(super) seconds: f64,
    /// From the start of the program to packets, the table read and compiled, in seconds.
    pub(super) ready: f64,
}

/// What the router says of its routing table.
#[derive(Debug, Default, PartialEq)]
pub(super) struct RoutingTable {
    /// Bytes of routes and both copies of the table.
    memory_bytes: u64,
    /// The answer of the handler `check`: a line for each copy of the table.
    check: String,
}

impl RoutingTable {
    /// The word after `name` in the check of the first copy.
    fn figure(&self, name: &str) -> Option<&str> {
        let (_, rest) = self.check.lines().next()?.split_once(&format!("{name} "))?;
        rest.split([',', ' ']).next()
    }

    /// What the check found: the digest, or the lines that tell what is wrong.
    pub(super) fn verdict(&self) -> Result<String, String> {
        let wrong: Vec<&str> = self.check.lines().filter(|line| !line.ends_with(", ok")).collect();
        match self.figure("digest") {
            Some(digest) if wrong.is_empty() => Ok(format!("ok (digest {digest})")),
            Some(_) => Err(format!("WRONG: {}", wrong.join("; "))),
            None => Err("the router did not check its table".to_owned()),
        }
    }
}

/// Takes apart what the router prints at its end: answers of handlers (`NAME:`, then lines), and a JSON object a line
/// for each element.
pub(super) fn parse_summary(text: &str) -> (RoutingTable, Vec<serde_json::Value>) {
    let (mut table, mut elements) = (RoutingTable::default(), Vec::new());
    let mut handler = "";
    for line in text.lines() {
        if let Some(name) = line.strip_suffix(':').filter(|name| [READ_MEMORY, READ_CHECK].contains(name)) {
            handler = name;
        } else if line.starts_with('{') {
            elements.extend(serde_json::from_str(line).ok());
        } else if handler == READ_MEMORY {
            table.memory_bytes = line.trim().parse().unwrap_or(table.memory_bytes);
        } else if handler == READ_CHECK && !line.is_empty() {
            table.check.push_str(line);
            table.check.push('\n');
        }
    }
    (table, elements)
}

/// The routing table, packets, rate, loss, and the cycles by class of element.
pub(super) fn summarise(totals: &Totals) {
    let number = |value: &serde_json::Value, key: &str| value[key].as_f64().unwrap_or(0.0);
    let of_class = |class: &str| -> u64 {
        totals
            .elements
            .iter()
            .filter(|element| element["class"] == class)
            .map(|element| number(element, "packets") as u64)
            .sum()
    };
    let (received, sent) = (of_class("FromDevice"), of_class("ToDevice"));
    let routes = totals.table.figure("routes").and_then(|digits| digits.parse().ok()).unwrap_or(0);
    let (Ok(verdict) | Err(verdict)) = totals.table.verdict();
    say_line!(
        "\n{} routes, ready in {:.2} s, table memory {:.1} MB, table check {verdict}",
        thousands(routes),
        totals.ready,
        totals.table.memory_bytes as f64 / 1e6
    );
    say_line!(
        "{} packets received, {} sent in {:.0} s, {}pps on average",
        thousands(received),
        thousands(sent),
        totals.seconds,
        scaled(sent as f64 / totals.seconds)
    );

    let mut classes: Vec<(String, f64, f64)> = Vec::new();
    let mut dropped: Vec<(String, u64)> = Vec::new();
    for element in &totals.elements {
        let class = element["class"].as_str().unwrap_or_default();
        let (packets, cycles) = (number(element, "packets"), number(element, "cycles"));
        match classes.iter_mut().find(|(known, ..)| known == class) {
            Some((_, total_packets, total_cycles)) => {
                *total_packets += packets;
                *total_cycles += cycles;
            }
            None => classes.push((class.to_owned(), packets, cycles)),
        }
        for (reason, count) in element["drops"].as_object().into_iter().flatten() {
            let count = count.as_u64().unwrap_or(0);
            match dropped.iter_mut().find(|(known, _)| known == reason) {
                Some((_, total)) => *total += count,
                None => dropped.push((reason.clone(), count)),
            }
        }
    }
    let reasons: Vec<_> =
        dropped.iter().map(|(reason, count)| format!("{} {reason}", thousands(*count))).collect();
    say_line!("dropped: {}", if reasons.is_empty() { "none".into() } else { reasons.join(", ") });
    classes.retain(|(_, packets, _)| *packets > 0.0);
    classes.sort_by(|(_, _, a), (_, _, b)| b.total_cmp(a));
    let mut table = Table::new(&[
        ("element class", Align::Left),
        ("packets", Align::Right),
        ("cycles/packet", Align::Right),
        ("share", Align::Right),
    ]);
    let all: f64 = classes.iter().map(|(.., cycles)| cycles).sum::<f64>().max(1.0);
    for (class, packets, cycles) in &classes {
        table.row([
            class.clone(),
            thousands(*packets as u64),
            format!("{:.1}", cycles / packets),
            format!("{:.1}%", cycles / all * 100.0),
        ]);
    }
    say!("\n{}", table.render());
    say_line!(
        "\nToDevice and FromDevice include the kernel's work: on links like these one call to send runs the receiving \
         host's\nnetwork stack as well. What the router itself costs: brickway-lab bench forward."
    );
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    const SUMMARY: &str = "rt.memory:\n57000000\nrt.check:\n\
        active Byte24: routes 564587, ranges 7, digest 00000000deadbeef, bytes 20, ok\n\
        passive Byte24: routes 564587, ranges 7, digest 00000000deadbeef, bytes 20, ok\n\
        {\"class\":\"ToDevice\",\"packets\":3}\n";

    #[test]
    fn what_the_router_prints_at_its_end() {
        let (table, elements) = parse_summary(SUMMARY);
        assert_eq!((table.memory_bytes, table.check.lines().count()), (57_000_000, 2));
        assert_eq!(table.figure("routes"), Some("564587"));
        assert_eq!(table.verdict(), Ok("ok (digest 00000000deadbeef)".into()));
        assert_eq!((elements.len(), &elements[0]["packets"]), (1, &3.into()));
        let wrong = "wrong: 10.0.0.0 goes to next hop 5 by the table, 3 by its routes";
        let (last_ok, rest) = (SUMMARY.rfind(", ok").unwrap() + 2, "{}\n");
        let (table, _) = parse_summary(&format!("{}{wrong}\n{rest}", &SUMMARY[..last_ok]));
        assert_eq!(
            table.verdict().unwrap_err(),
            format!(
                "WRONG: passive Byte24: routes 564587, ranges 7, digest 00000000deadbeef, bytes 20, {wrong}"
            )
        );
        assert!(parse_summary("").0.verdict().is_err());
    }
}

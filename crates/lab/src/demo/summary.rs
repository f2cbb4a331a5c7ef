//! The end of the demo: what the router says of its routing table and counted in its elements, for people.

use router::output::{say, say_line};
use router::table::{Align, Table, scaled, thousands};

/// What the router is asked at the end. Of the lookup element of its configuration: bytes of routes and tables, and whether the tables
/// say what the routes say. Of a script: whether it runs, and calls that failed.
pub(super) const READ_TABLE: [&str; 2] = ["rt.memory", "rt.check"];
pub(super) const READ_SCRIPT: [&str; 2] = ["main.state", "main.errors"];

/// What the router counted.
pub(super) struct Totals {
    pub(super) elements: Vec<serde_json::Value>,
    pub(super) answers: Answers,
    pub(super) seconds: f64,
    /// From the start of the program to packets, the table read and compiled, in seconds.
    pub(super) ready: f64,
}

/// What the handlers answered.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Answers(Vec<(String, String)>);

impl Answers {
    /// The answer of a handler.
    fn of(&self, handler: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == handler).map(|(_, answer)| answer.trim())
    }

    /// The word after `name` in the check of the table's first copy.
    fn figure(&self, name: &str) -> Option<&str> {
        let (_, rest) = self.of(READ_TABLE[1])?.lines().next()?.split_once(&format!("{name} "))?;
        rest.split([',', ' ']).next()
    }

    /// What the check found: the table's digest or that the script runs, or what is wrong.
    pub(super) fn verdict(&self) -> Result<String, String> {
        if let (Some(state), Some(errors)) = (self.of(READ_SCRIPT[0]), self.of(READ_SCRIPT[1])) {
            let text = format!("script {state}, {errors} calls failed");
            return if state == "running" && errors == "0" { Ok(text) } else { Err(text) };
        }
        let check = self.of(READ_TABLE[1]).unwrap_or_default();
        let wrong: Vec<&str> = check.lines().filter(|line| !line.ends_with(", ok")).collect();
        match self.figure("digest") {
            Some(digest) if wrong.is_empty() => Ok(format!("ok (digest {digest})")),
            Some(_) => Err(format!("WRONG: {}", wrong.join("; "))),
            None => Err("the router did not check its table".to_owned()),
        }
    }
}

/// One of so many packets may be missing where counters are compared: it was on its way when they were read.
const ONE_IN: u64 = 1_000;

impl Totals {
    /// Packets of the elements of a class.
    fn packets_of(&self, class: &str) -> u64 {
        let of_class = self.elements.iter().filter(|element| element["class"] == class);
        of_class.filter_map(|element| element["packets"].as_u64()).sum()
    }

    /// Whether the router counted what the hosts did. What it received and dropped is counted by the reason.
    pub(super) fn agree_with(&self, hosts_sent: u64, hosts_received: u64) -> Result<String, String> {
        let from = self.elements.iter().filter(|element| element["class"] == "FromDevice");
        let lost: u64 = from
            .flat_map(|element| element["drops"].as_object().into_iter().flatten())
            .filter_map(|(_, count)| count.as_u64())
            .sum();
        let (received, sent) = (self.packets_of("FromDevice") + lost, self.packets_of("ToDevice"));
        let text = format!(
            "the router received {} of {} packets that hosts sent, {} of them lost; hosts received {} of {} that it sent (1 in {} may differ)",
            thousands(received),
            thousands(hosts_sent),
            thousands(lost),
            thousands(hosts_received),
            thousands(sent),
            thousands(ONE_IN)
        );
        let agree = |a: u64, b: u64| a > 0 && a.abs_diff(b) <= a / ONE_IN;
        if agree(hosts_sent, received) && agree(hosts_received, sent) { Ok(text) } else { Err(text) }
    }

    /// See [`Answers::verdict`].
    pub(super) fn verdict(&self) -> Result<String, String> {
        self.answers.verdict()
    }
}

/// Takes apart what the router prints at its end: answers of handlers (`NAME:`, then lines), and a JSON object a line
/// for each element.
pub(super) fn parse_summary(text: &str) -> (Answers, Vec<serde_json::Value>) {
    let (mut answers, mut elements) = (Vec::<(String, String)>::new(), Vec::new());
    for line in text.lines() {
        let handler = line.strip_suffix(':');
        if let Some(name) = handler.filter(|name| READ_TABLE.contains(name) || READ_SCRIPT.contains(name)) {
            answers.push((name.to_owned(), String::new()));
        } else if line.starts_with('{') {
            elements.extend(serde_json::from_str(line).ok());
        } else if let Some((_, answer)) = answers.last_mut() {
            answer.push_str(line);
            answer.push('\n');
        }
    }
    (Answers(answers), elements)
}

/// The routing table, packets, rate, loss, and the cycles by class of element.
pub(super) fn summarise(totals: &Totals) {
    let number = |value: &serde_json::Value, key: &str| value[key].as_f64().unwrap_or(0.0);
    let (received, sent) = (totals.packets_of("FromDevice"), totals.packets_of("ToDevice"));
    let number_of = |text: Option<&str>| text.and_then(|digits| digits.parse::<u64>().ok());
    let (Ok(verdict) | Err(verdict)) = totals.verdict();
    match number_of(totals.answers.figure("routes")) {
        Some(routes) => say_line!(
            "\n{} routes, ready in {:.2} s, table memory {:.1} MB, table check {verdict}",
            thousands(routes),
            totals.ready,
            number_of(totals.answers.of(READ_TABLE[0])).unwrap_or(0) as f64 / 1e6
        ),
        None => say_line!("\nready in {:.2} s, {verdict}", totals.ready),
    }
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
        // Other rows are about workers.
        let Some(class) = element["class"].as_str() else { continue };
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
        active byte24: routes 564587, ranges 7, digest 00000000deadbeef, bytes 20, ok\n\
        passive byte24: routes 564587, ranges 7, digest 00000000deadbeef, bytes 20, ok\n\
        {\"class\":\"ToDevice\",\"packets\":3}\n";

    #[test]
    fn what_the_router_prints_at_its_end() {
        let (answers, elements) = parse_summary(SUMMARY);
        assert_eq!(answers.of("rt.memory"), Some("57000000"));
        assert_eq!(answers.of("rt.check").unwrap().lines().count(), 2);
        assert_eq!(answers.figure("routes"), Some("564587"));
        assert_eq!(answers.verdict(), Ok("ok (digest 00000000deadbeef)".into()));
        assert_eq!((elements.len(), &elements[0]["packets"]), (1, &3.into()));
        let wrong = "wrong: 10.0.0.0 goes to next hop 5 by the table, 3 by its routes";
        let (last_ok, rest) = (SUMMARY.rfind(", ok").unwrap() + 2, "{}\n");
        let (answers, _) = parse_summary(&format!("{}{wrong}\n{rest}", &SUMMARY[..last_ok]));
        assert_eq!(
            answers.verdict().unwrap_err(),
            format!(
                "WRONG: passive byte24: routes 564587, ranges 7, digest 00000000deadbeef, bytes 20, {wrong}"
            )
        );
        assert!(parse_summary("").0.verdict().is_err());
        let script =
            |state, errors| parse_summary(&format!("main.state:\n{state}\nmain.errors:\n{errors}\n")).0;
        assert_eq!(script("running", 0).verdict(), Ok("script running, 0 calls failed".into()));
        assert!(script("running", 1).verdict().is_err() && script("stopped: x", 0).verdict().is_err());
    }

    #[test]
    fn counters_agree_with_what_hosts_saw() {
        let text = "{\"class\":\"FromDevice\",\"packets\":8990,\"drops\":{\"ring full in the kernel\":10}}\n\
            {\"class\":\"ToDevice\",\"packets\":9000}\n{\"class\":\"Tee\",\"packets\":7}\n";
        let (answers, elements) = parse_summary(text);
        let totals = Totals { elements, answers, seconds: 1.0, ready: 1.0 };
        let text = totals.agree_with(9_000, 9_005).unwrap();
        assert!(
            text.starts_with("the router received 9,000 of 9,000 packets that hosts sent, 10 of them lost;"),
            "{text}"
        );
        for (sent, received) in [(0, 9_000), (8_900, 9_000), (9_100, 9_000), (9_000, 8_900), (9_000, 9_100)] {
            assert!(totals.agree_with(sent, received).is_err(), "{sent} {received}");
        }
    }
}

//! `brickway-lab rib check`: whether the tables compiled from a file say what its routes say, before and after as many random
//! changes as one likes. A router has the same check for the tables that it runs with: `rt.check` of a lookup element.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use fib::{Fib, MAIN, NextHop, TableReport};
use packet::IpVersion;
use serde_json::{Value, json};

use super::churn::{Churn, Done};
use super::compile::{self, NextHops};
use super::cost::megabytes;
use super::input::{self, InputArguments};
use super::lookups::{self, WrongLookup};
use router::output::{print, say_line};
use router::table::{Align, Table, thousands};

/// Loads the routes as a router does and compares the compiled tables with them: every address, both copies, and lookups
/// one by one and in batches.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway-lab rib check data/rib-v4.txt.gz
  ip -6 route | brickway-lab rib check -
  brickway-lab rib check bview.gz --changes 1000000     a self-test of the router's tables on your routes

A router has two copies of each table: workers read the active one, changes go to the passive one. The digest is the same
for tables that send all addresses the same way, in any router; next hops are distinguished by number.
--changes withdraws routes, announces them again or others near them, and changes next hops. The changes are published in batches of
1 to 1,000, one after another. It then checks the tables, takes all changes back, and checks that the digest is the one from before.
Exit codes: 0 good, 1 a table is wrong, or an error.")]
pub(crate) struct CheckArguments {
    /// A file of routes; '-' is standard input
    file: String,
    #[command(flatten)]
    input: InputArguments,
    /// Make N random changes, check, take them back and check again
    #[arg(long, value_name = "N", default_value_t = 0)]
    changes: usize,
    /// Where random numbers begin
    #[arg(long, default_value_t = 1, value_name = "S")]
    seed: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What was found about one copy of one table.
struct Examined {
    stage: &'static str,
    report: TableReport,
    /// For how many addresses it was asked.
    lookups: u64,
    wrong: Option<WrongLookup>,
    /// The digest that it should have, if that is known and another.
    expected_digest: Option<u64>,
}

impl Examined {
    /// What is wrong with it.
    fn problem(&self) -> Option<String> {
        if let Some(mismatch) = &self.report.mismatch {
            return Some(mismatch.to_string());
        }
        if let Some(wrong) = &self.wrong {
            return Some(wrong.to_string());
        }
        let digest = self.expected_digest?;
        Some(format!("the digest was {digest:016x} before the changes that were taken back"))
    }

    fn copy(&self) -> &'static str {
        if self.report.is_active { "active" } else { "passive" }
    }

    fn json(&self) -> Value {
        json!({
            "stage": self.stage,
            "family": self.report.family.to_string(),
            "table": self.report.name,
            "copy": self.copy(),
            "routes": self.report.routes,
            "ranges": self.report.ranges,
            "digest": format!("{:016x}", self.report.digest),
            "bytes": self.report.memory_bytes,
            "lookups": self.lookups,
            "problem": self.problem(),
        })
    }
}

fn are_good(examined: &[Examined]) -> bool {
    examined.iter().all(|table| table.problem().is_none())
}

/// What goes on, in one line that changes, if standard error is a terminal.
fn tell(text: &str) {
    let mut stderr = std::io::stderr().lock();
    if stderr.is_terminal() {
        // Progress that nobody can read is not a reason to stop.
        let _ = write!(stderr, "\r\x1b[K{text}").and_then(|()| stderr.flush());
    }
}

pub(super) fn check(arguments: &CheckArguments) -> Result<ExitCode> {
    tell(&format!("reading '{}'", arguments.file));
    let loaded = input::load(&arguments.file, &arguments.input);
    tell("");
    let loaded = loaded?;
    if loaded.routes.is_empty() && !arguments.json {
        say_line!("there are no routes in '{}'", arguments.file);
        return Ok(ExitCode::SUCCESS);
    }
    let ribs = compile::ribs(&loaded.routes)?;
    let (next_hops, routes) = (ribs.next_hops, loaded.routes.len());
    drop(loaded);
    let families = [!ribs.ipv4.is_empty(), !ribs.ipv6.is_empty()];
    let begin = Instant::now();
    let mut fib = load(ribs)?;
    let load_time = begin.elapsed();

    let seed = arguments.seed;
    let mut examined = examine("loaded", &mut fib, families, seed);
    let mut changes = None;
    // What is wrong already would only get worse, and the first mistake tells the most.
    if arguments.changes > 0 && are_good(&examined) {
        let total = thousands(arguments.changes as u64);
        let mut churn = Churn::new(&mut fib, next_hops.count(), seed);
        let done = churn.change(arguments.changes, &mut |made| {
            tell(&format!("changing: {} of {total}", thousands(made as u64)));
        })?;
        examined.extend(examine("changed", churn.fib(), families, seed.wrapping_add(1)));
        let mut back = None;
        if are_good(&examined) {
            let total = thousands(done.changes() as u64);
            back = Some(churn.take_back(&mut |made| {
                tell(&format!("taking back: {} of {total}", thousands(made as u64)));
            })?);
            let mut restored = examine("taken back", churn.fib(), families, seed.wrapping_add(2));
            expect_digests(&examined, &mut restored);
            examined.extend(restored);
        }
        changes = Some((done, back));
    }
    tell("");
    if arguments.json {
        say_line!("{}", to_json(arguments, routes, next_hops, load_time, &examined, changes.as_ref()));
    } else {
        say_line!(
            "{} routes to {}, loaded into both copies in {:.1} ms\n",
            thousands(routes as u64),
            next_hops.text(),
            load_time.as_secs_f64() * 1e3
        );
        if let Some((done, back)) = &changes {
            print(&changes_text(done, back.as_ref()));
        }
        print(&text(&examined));
    }
    Ok(if are_good(&examined) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A FIB with these routes, published.
fn load(ribs: compile::Ribs) -> Result<Fib<u16>> {
    let mut fib = Fib::<u16>::new()?;
    for number in 1..=ribs.next_hops.count() {
        let given = fib.next_hops_mut().add(NextHop::Forward(number))?;
        debug_assert_eq!(given.get(), number, "a new FIB numbers its next hops from 1");
    }
    fib.load4(MAIN, ribs.ipv4).context("cannot compile the IPv4 routes")?;
    fib.load6(MAIN, ribs.ipv6).context("cannot compile the IPv6 routes")?;
    fib.publish();
    Ok(fib)
}

/// Compares the tables of the `families` that the file has (IPv4, IPv6) with their routes.
fn examine(stage: &'static str, fib: &mut Fib<u16>, families: [bool; 2], seed: u64) -> Vec<Examined> {
    tell(&format!("checking ({stage}): all addresses"));
    let has = |family: IpVersion| families[family as usize];
    let mut examined: Vec<Examined> = fib
        .check()
        .tables
        .into_iter()
        .filter(|report| has(report.family))
        .map(|report| Examined { stage, report, lookups: 0, wrong: None, expected_digest: None })
        .collect();
    for is_active in [true, false] {
        for table in examined.iter_mut().filter(|table| table.report.is_active == is_active) {
            tell(&format!(
                "checking ({stage}): lookups in the {} {} table",
                table.copy(),
                table.report.family
            ));
            let state = fib.state();
            let ipv4 = (fib.rib4(MAIN), state.ipv4(0));
            let ipv6 = (fib.rib6(MAIN), state.ipv6(0));
            (table.lookups, table.wrong) = match (table.report.family, ipv4, ipv6) {
                (IpVersion::V4, (Some(rib), Some(compiled)), _) => lookups::ask(rib, &**compiled, seed),
                (_, _, (Some(rib), Some(compiled))) => lookups::ask(rib, &**compiled, seed),
                _ => (0, None),
            };
        }
        // A batch without changes: the copies change places.
        fib.publish();
    }
    examined
}

/// Notes where the digests of the tables `after` are not those that the same tables had before.
fn expect_digests(before: &[Examined], after: &mut [Examined]) {
    for table in after {
        let same = |known: &&Examined| {
            known.stage == "loaded"
                && (known.report.family, known.copy()) == (table.report.family, table.copy())
        };
        let digest = before.iter().find(same).map(|known| known.report.digest);
        table.expected_digest = digest.filter(|&digest| digest != table.report.digest);
    }
}

fn changes_text(done: &Done, back: Option<&Done>) -> String {
    let mut text = format!(
        "{} changes ({} withdrawn, {} announced, {} next hops changed)",
        thousands(done.changes() as u64),
        thousands(done.withdrawn as u64),
        thousands(done.announced as u64),
        thousands(done.changed as u64)
    );
    if done.refused > 0 {
        text.push_str(&format!(", {} refused because a table was full", thousands(done.refused as u64)));
    }
    for (what, done) in [("made", Some(done)), ("taken back", back)] {
        let Some(done) = done else { continue };
        let seconds = done.time.as_secs_f64();
        text.push_str(&format!(
            "\n{what} in {seconds:.2} s: {:.1} us each, {} batches, the longest publication {:.1} ms",
            seconds * 1e6 / done.changes().max(1) as f64,
            thousands(done.batches as u64),
            done.longest_publication.as_secs_f64() * 1e3
        ));
    }
    text.push_str("\n\n");
    text
}

fn text(examined: &[Examined]) -> String {
    let mut table = Table::new(&[
        ("stage", Align::Left),
        ("family", Align::Left),
        ("table", Align::Left),
        ("copy", Align::Left),
        ("routes", Align::Right),
        ("ranges", Align::Right),
        ("digest", Align::Left),
        ("memory", Align::Right),
        ("lookups", Align::Right),
        ("result", Align::Left),
    ]);
    let mut problems = String::new();
    for copy in examined {
        let TableReport { family, name, routes, ranges, digest, memory_bytes, .. } = copy.report;
        let problem = copy.problem();
        table.row([
            copy.stage.to_owned(),
            family.to_string(),
            name.to_owned(),
            copy.copy().to_owned(),
            thousands(routes as u64),
            thousands(ranges as u64),
            format!("{digest:016x}"),
            megabytes(memory_bytes),
            thousands(copy.lookups),
            if problem.is_some() { "WRONG" } else { "ok" }.to_owned(),
        ]);
        if let Some(problem) = problem {
            problems.push_str(&format!("{}, {family}, {name}, {}: {problem}\n", copy.stage, copy.copy()));
        }
    }
    let space = if problems.is_empty() { "" } else { "\n" };
    format!("{}{space}{problems}", table.render())
}

fn to_json(
    arguments: &CheckArguments,
    routes: usize,
    next_hops: NextHops,
    load_time: Duration,
    examined: &[Examined],
    changes: Option<&(Done, Option<Done>)>,
) -> Value {
    let timing = |done: &Done| {
        json!({
            "seconds": done.time.as_secs_f64(),
            "batches": done.batches,
            "longest_publication_ms": done.longest_publication.as_secs_f64() * 1e3,
        })
    };
    json!({
        "file": arguments.file,
        "routes": routes,
        "next_hops": next_hops.count(),
        "next_hops_from": next_hops.json(),
        "load_ms": load_time.as_secs_f64() * 1e3,
        "good": are_good(examined),
        "tables": examined.iter().map(Examined::json).collect::<Vec<_>>(),
        "changes": changes.map(|(done, back)| json!({
            "seed": arguments.seed,
            "withdrawn": done.withdrawn,
            "announced": done.announced,
            "changed": done.changed,
            "refused": done.refused,
            "made": timing(done),
            "taken_back": back.as_ref().map(timing),
        })),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use fib::{Mismatch, NextHopIndex};

    fn examined(stage: &'static str, digest: u64) -> Examined {
        let report = TableReport {
            vrf: MAIN,
            family: IpVersion::V4,
            name: "byte24",
            is_active: true,
            routes: 1234,
            ranges: 5,
            digest,
            memory_bytes: 4_200_000,
            mismatch: None,
        };
        Examined { stage, report, lookups: 10, wrong: None, expected_digest: None }
    }

    #[test]
    fn a_mismatch_is_told_with_its_address() {
        let mut table = examined("loaded", 7);
        assert_eq!(table.problem(), None);
        let number = |number| NextHopIndex::new(number).unwrap();
        let address = "10.9.0.0".parse().unwrap();
        table.report.mismatch = Some(Mismatch { address, expected: number(3), found: number(5) });
        assert_eq!(
            text(&[table]),
            "\
stage   family  table   copy    routes  ranges  digest            memory  lookups  result
loaded  IPv4    byte24  active   1,234       5  0000000000000007  4.2 MB       10  WRONG

loaded, IPv4, byte24, active: 10.9.0.0 goes to next hop 5 by the table, 3 by its routes
"
        );
    }

    #[test]
    fn what_is_taken_back_has_the_digest_from_before() {
        let before = [examined("loaded", 7), examined("changed", 8)];
        let mut after = [examined("taken back", 7)];
        expect_digests(&before, &mut after);
        assert_eq!(after[0].problem(), None);
        after[0].report.digest = 9;
        expect_digests(&before, &mut after);
        assert_eq!(
            after[0].problem().unwrap(),
            "the digest was 0000000000000007 before the changes that were taken back"
        );
        assert!(after[0].json()["problem"].is_string());
    }
}

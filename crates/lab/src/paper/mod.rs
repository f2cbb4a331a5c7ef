//! `brickway-lab paper`: what five papers published, beside ours, and each of their figures drawn.
//!
//! The papers are RouteBricks (`rb`, SOSP 2009), server network cards (`nic`, PRESTO 2010), MoonRoute (`mr`, ANCS 2017), "Can software routers
//! scale?" (`sc`, PRESTO 2008) and star and multistage routers of PCs (`pc`, 2008). Their numbers are in `published/`, a file each; nothing else in
//! this folder has a number of theirs.
//!
//! | file | what |
//! | --- | --- |
//! | `catalogue.rs` | all experiments |
//! | `published.rs`, `published/*.toml` | what the papers state |
//! | `claim.rs`, `shape.rs` | their statement beside ours; the forms of curves |
//! | `report.rs` | what an experiment brings |
//! | `page.rs` | the page and the figures |
//! | `formulas.rs`, `models.rs`, `simulated.rs`, `fronts.rs`, `measured/` | the experiments, by how ours come about |

mod catalogue;
mod claim;
mod formulas;
mod fronts;
mod measured;
mod models;
mod page;
mod published;
mod report;
mod shape;
mod simulated;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;

use self::catalogue::{ALL, Experiment, How};
use self::published::Paper;
use self::report::{Outcome, Report};
use crate::bench;
use crate::progress;
use router::output::{say, say_line};
use router::table::{Align, Table};

/// Reproduces the tables and figures of five papers: published, ours, deviation, and whether what they claim holds.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway-lab paper --list                  every table and figure, and how it is reproduced
  brickway-lab paper rb-fig3                 one experiment
  brickway-lab paper sc --out figures        a whole paper, drawn into a folder with a page
  brickway-lab paper all --exact             formulas, models and simulations: the same on every machine, in a minute
  brickway-lab paper all --quick             everything that this machine can, in some 4 minutes
  brickway-lab paper all --from docs/papers/results.jsonl --out figures    print and draw old results again

Kinds of claims:
  value      follows from a formula, a model or a simulation
  ratio      one thing over another
  shape      the course of a curve
  own bound  this project's, where a paper gives only the occasion
  rate       of a machine of that time: printed, never judged

The tolerance stands behind the published number.

Exit codes:
  0  all claims hold (what is left out has none)
  1  an experiment could not run
  2  wrong usage
  3  a claim does not hold; the reason stands below its table")]
pub(crate) struct PaperArguments {
    /// Experiments by their identifier, papers (rb, nic, mr, sc, pc) or all
    #[arg(value_name = "ID", required_unless_present = "list", value_parser = known_id)]
    ids: Vec<String>,
    /// List all experiments: what, how, and what they need
    #[arg(long)]
    list: bool,
    /// Only those whose results are the same on every machine
    #[arg(long)]
    exact: bool,
    /// Shorter and fewer runs
    #[arg(long)]
    quick: bool,
    /// Numbers of workers, where an experiment has several (default: 1 to the number of CPUs)
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: Vec<u16>,
    /// Write the page, figures and results into this folder; results of other experiments that are there stay
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Take results out of this file instead of running anything, and judge them again
    #[arg(long, value_name = "FILE", conflicts_with = "quick")]
    from: Option<PathBuf>,
    /// Print one JSON object a line: an experiment each
    #[arg(long)]
    json: bool,
}

/// How to measure.
pub(super) struct Setting {
    /// Seconds of a run.
    pub(super) seconds: f64,
    /// Runs, of which the median counts.
    pub(super) runs: usize,
    /// Numbers of workers.
    pub(super) workers: Vec<usize>,
    pub(super) is_quick: bool,
}

pub(crate) fn paper(arguments: &PaperArguments) -> Result<ExitCode> {
    let papers = published::papers()?;
    let all = ["all".to_owned()];
    let ids = if arguments.ids.is_empty() { &all[..] } else { &arguments.ids };
    let chosen = chosen(ids, arguments.exact)?;
    if arguments.list {
        list(&chosen, arguments.json);
        return Ok(ExitCode::SUCCESS);
    }
    // What is wrong with the folder is known before minutes are spent.
    arguments.out.as_deref().map(Folder::open).transpose()?;
    let old = arguments.from.as_deref().map(read_results).transpose()?;
    let setting = Setting {
        seconds: if arguments.quick { 0.1 } else { 0.5 },
        runs: if arguments.quick { 3 } else { 5 },
        workers: match &arguments.workers[..] {
            [] => (1..=bench::allowed_cpus()).collect(),
            asked => asked.iter().copied().map(usize::from).collect(),
        },
        is_quick: arguments.quick,
    };
    let (mut outcomes, mut errors) = (Vec::new(), 0);
    for experiment in chosen {
        let paper = papers.iter().find(|(name, _)| *name == experiment.paper()).map(|(_, paper)| paper);
        let paper = paper.with_context(|| format!("no paper of experiment '{}'", experiment.id))?;
        let outcome = match &old {
            Some(old) => match old.get(experiment.id) {
                Some(outcome) => outcome.judged_again(paper)?,
                None => {
                    // Of all those of a paper an old file may have some.
                    if ids.iter().any(|id| id == experiment.id) {
                        graph::note!("brickway-lab: {}: no result in the file of --from", experiment.id);
                        errors += 1;
                    }
                    continue;
                }
            },
            None => match run(experiment, paper, &setting) {
                Ok(outcome) => outcome,
                Err(error) => {
                    bench::stop_if_interrupted()?;
                    graph::note!("brickway-lab: {}: {error:#}", experiment.id);
                    errors += 1;
                    continue;
                }
            },
        };
        outcomes.push(outcome.clone());
        // What was measured so far stays if the next one is interrupted.
        if let Some(folder) = &arguments.out {
            Folder::open(folder)?.write(&papers, &outcomes)?;
        }
        if arguments.json {
            say_line!("{}", serde_json::to_string(&outcome)?);
        } else {
            print(experiment, &outcome);
        }
    }
    if outcomes.is_empty() && errors == 0 {
        bail!("no results of these experiments; expected some in the file of --from");
    }
    if !arguments.json {
        summarize(&outcomes);
    }
    let has_failed = outcomes.iter().any(Outcome::has_failed);
    Ok(match (errors > 0, has_failed) {
        (true, _) => ExitCode::FAILURE,
        (false, true) => ExitCode::from(3),
        (false, false) => ExitCode::SUCCESS,
    })
}

/// Returns whether an experiment is asked for by this identifier.
fn is_of(experiment: &Experiment, id: &str) -> bool {
    id == "all" || id == experiment.id || id == experiment.paper()
}

fn known_id(id: &str) -> Result<String, &'static str> {
    let is_known = ALL.iter().any(|experiment| is_of(experiment, id));
    is_known.then(|| id.to_owned()).ok_or(
        "no such experiment; expected all, rb, nic, mr, sc, pc, or one that `brickway-lab paper --list` shows",
    )
}

/// Returns the experiments that are asked for, each once, in the catalogue's order.
fn chosen(ids: &[String], exact: bool) -> Result<Vec<&'static Experiment>> {
    let chosen: Vec<_> = ALL
        .iter()
        .filter(|experiment| {
            ids.iter().any(|id| is_of(experiment, id)) && (!exact || experiment.how.is_exact())
        })
        .collect();
    if chosen.is_empty() {
        bail!("--exact: none of these is a formula, a model or a simulation");
    }
    Ok(chosen)
}

fn run(experiment: &Experiment, paper: &Paper, setting: &Setting) -> Result<Outcome> {
    let mut report = Report::new(experiment.id, paper);
    if let How::Left(why) = experiment.how {
        report.leave_out(why);
    } else if experiment.needs_root && !rustix::process::geteuid().is_root() {
        report.leave_out("it makes network namespaces, which only root may");
        return Ok(report.outcome);
    }
    progress::tell("paper", experiment.id);
    let result = (experiment.run)(setting, &mut report);
    progress::clear();
    result?;
    if experiment.how == How::Measured {
        let quick = if setting.is_quick { ", --quick" } else { "" };
        report.outcome.machine = format!("{}{quick}", bench::machine_name());
    }
    Ok(report.outcome)
}

fn list(experiments: &[&Experiment], as_json: bool) {
    let left = Align::Left;
    let mut table = Table::new(&[("id", left), ("of", left), ("what", left), ("how", left), ("needs", left)]);
    for experiment in experiments {
        let needs = match experiment.how {
            How::Left(why) => why,
            _ if experiment.needs_root => "root",
            _ => "",
        };
        if as_json {
            say_line!(
                "{}",
                serde_json::json!({"id": experiment.id, "of": experiment.of, "what": experiment.what,
                                   "how": experiment.how.name(), "needs": needs})
            );
        }
        table.row(
            [experiment.id, experiment.of, experiment.what, experiment.how.name(), needs].map(String::from),
        );
    }
    if !as_json {
        say!("{}", table.render());
    }
}

fn print(experiment: &Experiment, outcome: &Outcome) {
    let where_ = if outcome.machine.is_empty() { String::new() } else { format!(" on {}", outcome.machine) };
    say_line!(
        "{}: {} ({}; {}{where_})\n",
        experiment.id,
        experiment.what,
        experiment.of,
        experiment.how.name()
    );
    if !outcome.claims.is_empty() {
        say!("{}", table_of_claims(outcome).render());
    }
    outcome.notes().iter().for_each(|note| say_line!("  {note}"));
    say_line!("");
}

fn table_of_claims(outcome: &Outcome) -> Table {
    let [left, right] = [Align::Left, Align::Right];
    let mut table = Table::new(&[
        ("claim", left),
        ("section", left),
        ("kind", left),
        ("published", right),
        ("ours", right),
        ("deviation", right),
        ("", left),
    ]);
    for claim in &outcome.claims {
        table.row([
            claim.what.clone(),
            claim.section.clone(),
            claim.kind.name().to_owned(),
            claim.published.clone(),
            claim.ours.clone(),
            claim.deviation_text(),
            claim.verdict().to_owned(),
        ]);
    }
    table
}

fn summarize(outcomes: &[Outcome]) {
    let claims = || outcomes.iter().flat_map(|outcome| &outcome.claims);
    let count = |holds| claims().filter(|claim| claim.holds == holds).count();
    let left_out = outcomes.iter().filter(|outcome| outcome.claims.is_empty()).count();
    say_line!(
        "experiments: {}, of which left out: {left_out}; claims that hold: {}, that do not: {}; rates of that time's machines, not judged: {}",
        outcomes.len(),
        count(Some(true)),
        count(Some(false)),
        count(None)
    );
}

/// The results, a line for each experiment.
const RESULTS: &str = "results.jsonl";

/// More than a file of results has.
const MOST_BYTES: u64 = 64 << 20;

fn read_results(path: &Path) -> Result<BTreeMap<String, Outcome>> {
    let explain = || format!("cannot read '{}'", path.display());
    let file = fs::metadata(path).with_context(explain)?;
    if !file.is_file() || file.len() > MOST_BYTES {
        bail!("'{}': no file of results; expected one of at most {} MB", path.display(), MOST_BYTES >> 20);
    }
    let text = fs::read_to_string(path).with_context(explain)?;
    let mut outcomes = BTreeMap::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let explain = || {
            format!(
                "{}:{}: no result of `brickway-lab paper --json` of this version; `brickway-lab paper all --out DIR` makes new ones",
                path.display(),
                number + 1
            )
        };
        let outcome: Outcome = serde_json::from_str(line).with_context(explain)?;
        outcome.check().map_err(anyhow::Error::msg).with_context(explain)?;
        outcomes.insert(outcome.id.clone(), outcome);
    }
    Ok(outcomes)
}

/// A folder for the page, figures and results, which one program at a time has.
struct Folder<'a> {
    path: &'a Path,
    /// Held until this is dropped.
    _lock: fs::File,
}

impl Folder<'_> {
    /// Makes the folder, if it is not there, and waits for others that write into it.
    fn open(path: &Path) -> Result<Folder<'_>> {
        let explain = || format!("cannot write into the folder '{}'", path.display());
        fs::create_dir_all(path).with_context(explain)?;
        let lock =
            fs::File::open(path).and_then(|folder| folder.lock().map(|()| folder)).with_context(explain)?;
        let folder = Folder { path, _lock: lock };
        page::check(path)?;
        folder.results()?;
        Ok(folder)
    }

    fn results(&self) -> Result<BTreeMap<String, Outcome>> {
        let path = self.path.join(RESULTS);
        if path.exists() { read_results(&path) } else { Ok(BTreeMap::new()) }
    }

    /// Writes the page and figures of all that the folder then has, and the results.
    fn write(&self, papers: &[(&str, Paper)], outcomes: &[Outcome]) -> Result<()> {
        let mut all = self.results()?;
        all.extend(outcomes.iter().map(|outcome| (outcome.id.clone(), outcome.clone())));
        // Those that there are no more go.
        let known: Vec<&Outcome> = ALL.iter().filter_map(|experiment| all.get(experiment.id)).collect();
        page::write(self.path, papers, &known)?;
        let mut text = String::new();
        for outcome in &known {
            text += &serde_json::to_string(outcome)?;
            text.push('\n');
        }
        replace(&self.path.join(RESULTS), &text)
    }
}

/// Writes a file so that it has the old text or the new one, whatever happens.
fn replace(path: &Path, text: &str) -> Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text)
        .and_then(|()| fs::rename(&new, path))
        .with_context(|| format!("cannot write '{}'", path.display()))
}

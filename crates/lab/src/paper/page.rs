//! The page of all results, and their figures, as files.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::catalogue::{ALL, How};
use super::published::Paper;
use super::report::Outcome;
use crate::plot;

/// Writes README.md and a figure for each experiment that has charts.
pub(super) fn write(folder: &Path, papers: &[(&str, Paper)], outcomes: &[&Outcome]) -> Result<()> {
    for outcome in outcomes.iter().filter(|outcome| !outcome.charts.is_empty()) {
        plot::write(&folder.join(format!("{}.svg", outcome.id)), &outcome.charts)?;
    }
    let path = folder.join("README.md");
    fs::write(&path, text(papers, outcomes)?).with_context(|| format!("cannot write '{}'", path.display()))
}

fn text(papers: &[(&str, Paper)], outcomes: &[&Outcome]) -> Result<String> {
    let mut text = String::from(
        "# Five papers, reproduced\n\n\
         `brickway-lab paper all --out docs/papers` wrote this page: do not change it by hand. `results.jsonl` has all numbers;\n\
         `brickway-lab paper all --from docs/papers/results.jsonl --out DIR` draws them again.\n\n\
         A **value** follows from a formula, a model or a simulation and deviates by so many per cent. A **ratio** says how many times one thing is\n\
         another. A **shape** says how a curve runs; its words are explained in `crates/lab/src/paper/shape.rs`. A **rate** is what a machine of that time\n\
         did: it is printed and never judged. The papers' figures are pictures; marks show only what their text gives as numbers.\n",
    );
    for (name, paper) in papers {
        write!(text, "\n## {}\n\nMeasured on: {}\n\n{}\n", paper.title, paper.hardware, paper.today)?;
        if !paper.slips.is_empty() {
            text += "\nWhere the paper contradicts itself:\n\n";
            for slip in &paper.slips {
                writeln!(text, "- Section {}: {}", slip.section, slip.text)?;
            }
        }
        text += "\n| experiment | of | what | how |\n| --- | --- | --- | --- |\n";
        let all = || ALL.iter().filter(|experiment| experiment.paper() == *name);
        for experiment in all() {
            let how = match experiment.how {
                How::Left(why) => format!("left out: {why}"),
                how => how.name().to_owned(),
            };
            let is_there = outcomes.iter().any(|outcome| outcome.id == experiment.id);
            let id = if is_there { format!("[{0}](#{0})", experiment.id) } else { experiment.id.to_owned() };
            writeln!(text, "| {id} | {} | {} | {how} |", experiment.of, experiment.what)?;
        }
        for experiment in all() {
            let Some(outcome) = outcomes.iter().find(|outcome| outcome.id == experiment.id) else { continue };
            write!(
                text,
                "\n### {}\n\n{}: {}, {}",
                experiment.id,
                experiment.of,
                experiment.what,
                experiment.how.name()
            )?;
            if !outcome.machine.is_empty() {
                write!(text, " on {}", outcome.machine)?;
            }
            text += ".\n";
            results(&mut text, outcome)?;
        }
    }
    Ok(text)
}

fn results(text: &mut String, outcome: &Outcome) -> Result<()> {
    if !outcome.charts.is_empty() {
        write!(text, "\n![{0}]({0}.svg)\n", outcome.id)?;
    }
    if !outcome.claims.is_empty() {
        text.push_str("\n| claim | section | kind | published | ours | deviation | |\n| --- | --- | --- | ---: | ---: | ---: | --- |\n");
    }
    for claim in &outcome.claims {
        writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            claim.what,
            claim.section,
            claim.kind.name(),
            claim.published,
            claim.ours,
            claim.deviation_text(),
            claim.verdict()
        )?;
    }
    if !outcome.inputs.is_empty() {
        write!(text, "\nNumbers of the paper that it starts from: {}.\n", outcome.inputs.join(", "))?;
    }
    let notes = outcome.notes();
    if !notes.is_empty() {
        text.push('\n');
    }
    for note in notes {
        writeln!(text, "- {note}")?;
    }
    Ok(())
}

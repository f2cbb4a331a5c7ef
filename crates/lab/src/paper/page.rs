//! The page of all results, and their figures, as files.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Result, bail};

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
    super::replace(&path, &text(papers, outcomes)?)
}

/// The first line of the page.
const TITLE: &str = "# Five papers, reproduced";

/// Checks that a README.md that is there is one of these pages.
pub(super) fn check(folder: &Path) -> Result<()> {
    let path = folder.join("README.md");
    if path.exists() && !fs::read_to_string(&path).is_ok_and(|text| text.starts_with(TITLE)) {
        bail!("'{}' is another page; expected a folder for the papers alone", path.display());
    }
    Ok(())
}

/// Returns a text for a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

fn text(papers: &[(&str, Paper)], outcomes: &[&Outcome]) -> Result<String> {
    let mut text = String::from(
        "# Five papers, reproduced\n\n\
         `brickway-lab paper` wrote this page, with `--out`: do not change it by hand. `results.jsonl` has all numbers;\n\
         `brickway-lab paper all --from results.jsonl --out DIR` prints and draws them again.\n\n\
         `brickway-lab paper rb-fig3 --quick` runs one experiment here, `brickway-lab paper rb` those of a paper; the short name stands behind its title.\n\n\
         A **value** follows from a formula, a model or a simulation and deviates by so many per cent. A **ratio** says how many times one thing is\n\
         another. A **shape** says how a curve runs. An **own bound** is this project's, where a paper gives only the occasion. A **rate** is what a machine of that\n\
         time did: it is printed and never judged. Behind a published number stands how far ours may be away from it. The papers' figures are pictures; marks show only what their text gives as numbers.\n\n\
         Words: **R** is the rate of a port. **Valiant load balancing** sends a packet over a node drawn at random; **direct** means up to R/N without it, N being\n\
         the nodes. A **flowlet** is a burst of a flow whose packets come within **delta** (or **tau**) of each other and take one way. A sequence of packets of a\n\
         flow is **overtaken** if a later one came before it. **kp** and **kn** are packets that are polled and that a card hands over at a time. **IPP** and **CPI**\n\
         are instructions a packet and cycles an instruction. Servers `current`, `more-nics` and `faster` are RouteBricks': one port and 5 cards, one port and 20\n\
         cards, two ports and 20 cards.\n",
    );
    for (name, paper) in papers {
        write!(
            text,
            "\n## {} (`{name}`)\n\nMeasured on: {}\n\n{}\n",
            paper.title, paper.hardware, paper.today
        )?;
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
            cell(&claim.what),
            cell(&claim.section),
            claim.kind.name(),
            cell(&claim.published),
            cell(&claim.ours),
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
        writeln!(text, "- {}", cell(&note))?;
    }
    Ok(())
}

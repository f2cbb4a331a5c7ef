//! The papers' files: what they state and where, what of them goes into experiments, and the slips in them.
//!
//! A claim's value can be compared, printed and drawn, never read: so no experiment can compute its own figure from it. What an experiment needs of
//! a paper is an `input`, under another key.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::claim::{Claim, Evidence, Kind, number};
use super::report::rounded;
use super::shape::{Curve, Shape};
use crate::plot::Line;

/// One paper.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Paper {
    /// As it is cited.
    pub(super) title: String,
    /// On what it was measured.
    pub(super) hardware: String,
    /// What is different on machines of today, in two sentences.
    pub(super) today: String,
    /// Where it contradicts itself.
    #[serde(default)]
    pub(super) slips: Vec<Slip>,
    #[serde(default)]
    input: BTreeMap<String, Input>,
    #[serde(default)]
    claim: BTreeMap<String, Statement>,
    #[serde(default)]
    curve: BTreeMap<String, Points>,
}

/// A contradiction.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Slip {
    pub(super) section: String,
    pub(super) text: String,
}

/// What an experiment starts from.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    section: String,
    value: f64,
}

/// What a paper states.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Statement {
    section: String,
    what: String,
    kind: Kind,
    /// A number; of a shape there is none.
    value: Option<f64>,
    #[serde(default)]
    unit: String,
    /// How far ours may be away, in per cent.
    within: Option<f64>,
    /// Ours may be better: `at-least` or `at-most`.
    bound: Option<Bound>,
    /// Of what its values are made, where they depend on a size.
    formula: Option<String>,
    /// Reasons of single ones of these.
    #[serde(default)]
    of: Vec<Reason>,
    shape: Option<String>,
    /// Curves that have not this shape, for the test of this claim.
    #[serde(default)]
    #[cfg_attr(not(test), expect(dead_code, reason = "only the test of claims reads it"))]
    fails: Vec<Curve>,
    /// Why ours is another, where that is known.
    #[serde(default)]
    why: String,
}

/// Why ours is another for one thing that a formula is applied to.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reason {
    name: String,
    why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Bound {
    AtLeast,
    AtMost,
}

/// Points that a paper gives as numbers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Points {
    name: String,
    /// Where its text gives them: its figures are pictures.
    section: String,
    points: Curve,
}

/// The papers' names in identifiers of experiments, and their files.
const FILES: [(&str, &str); 5] = [
    ("rb", include_str!("published/rb.toml")),
    ("nic", include_str!("published/nic.toml")),
    ("mr", include_str!("published/mr.toml")),
    ("sc", include_str!("published/sc.toml")),
    ("pc", include_str!("published/pc.toml")),
];

/// All papers by their names, in the order of the page.
pub(super) fn papers() -> Result<Vec<(&'static str, Paper)>> {
    let paper = |(name, text): &(&'static str, &str)| {
        Ok((*name, toml::from_str(text).with_context(|| format!("published/{name}.toml"))?))
    };
    FILES.iter().map(paper).collect()
}

/// A deviation that the digits of a published number make, in per cent.
const ROUNDING: f64 = 0.01;

impl Paper {
    /// Returns what an experiment starts from, and where the paper gives it.
    ///
    /// # Errors
    /// The file has no such input.
    pub(super) fn input(&self, key: &str) -> Result<(f64, &str)> {
        let input = self.input.get(key).with_context(|| format!("no input '{key}' in the paper's file"))?;
        Ok((input.value, &input.section))
    }

    fn statement(&self, key: &str) -> Result<&Statement> {
        self.claim.get(key).with_context(|| format!("no claim '{key}' in the paper's file"))
    }

    /// Compares a number of ours with what is published.
    ///
    /// # Errors
    /// The file has no such claim, or it is one of shape.
    pub(super) fn compare(&self, key: &str, ours: f64) -> Result<Claim> {
        let statement = self.statement(key)?;
        let published = statement.value.with_context(|| format!("claim '{key}' has no value"))?;
        let our_value = rounded(ours);
        let evidence = Evidence::Number { published_value: published, our_value };
        Ok(statement.compared(key, statement.named(), evidence, published, our_value))
    }

    /// Compares a number of ours with what a formula of the paper's makes of `of`.
    ///
    /// # Errors
    /// The file has no such claim, or it is not of a formula.
    pub(super) fn compare_formula(&self, key: &str, of: &str, published: f64, ours: f64) -> Result<Claim> {
        let statement = self.statement(key)?;
        statement.formula.as_ref().with_context(|| format!("claim '{key}' has no formula"))?;
        let (published_value, our_value) = (rounded(published), rounded(ours));
        let evidence = Evidence::Formula { of: of.to_owned(), published_value, our_value };
        let what = format!("{of}: {}", statement.named());
        let mut claim = statement.compared(key, what, evidence, published_value, our_value);
        if let Some(why) = statement.of.iter().find(|why| of.starts_with(&why.name)) {
            claim.why.clone_from(&why.why);
        }
        Ok(claim)
    }

    /// Judges curves of ours by the shape that is published.
    ///
    /// # Errors
    /// The file has no such claim, or it is none of shape.
    pub(super) fn judge(&self, key: &str, curves: &[Curve]) -> Result<Claim> {
        let statement = self.statement(key)?;
        let shape = statement.shape(key)?;
        let round = |curve: &Curve| curve.iter().map(|&(x, y)| (rounded(x), rounded(y))).collect();
        let curves: Vec<Curve> = curves.iter().map(round).collect();
        let (holds, detail) = shape.judge(&curves);
        Ok(Claim {
            key: key.to_owned(),
            evidence: Evidence::Curves { curves },
            what: statement.named(),
            section: statement.section.clone(),
            kind: statement.kind,
            published: shape.words(),
            ours: detail,
            deviation: None,
            holds: Some(holds),
            why: statement.why.clone(),
        })
    }

    /// Judges a claim of a file again, by what the paper's file says now.
    ///
    /// # Errors
    /// The paper's file no longer has such a claim.
    pub(super) fn judge_again(&self, claim: &Claim) -> Result<Claim> {
        match &claim.evidence {
            Evidence::Formula { of, published_value, our_value } => {
                self.compare_formula(&claim.key, of, *published_value, *our_value)
            }
            Evidence::Number { our_value, .. } => self.compare(&claim.key, *our_value),
            Evidence::Curves { curves } => self.judge(&claim.key, curves),
        }
    }

    /// Returns published points as marks of a chart.
    ///
    /// # Errors
    /// The file has no such points.
    pub(super) fn marks(&self, key: &str) -> Result<Line> {
        let curve = self.curve.get(key).with_context(|| format!("no curve '{key}' in the paper's file"))?;
        let name = format!("{}, section {}", curve.name, curve.section);
        Ok(Line { name, points: curve.points.clone(), has_marks_alone: true })
    }
}

impl Statement {
    fn named(&self) -> String {
        if self.unit.is_empty() { self.what.clone() } else { format!("{}, {}", self.what, self.unit) }
    }

    fn compared(&self, key: &str, what: String, evidence: Evidence, published: f64, ours: f64) -> Claim {
        let deviation = (ours - published) / published * 100.0;
        let within = self.within.unwrap_or(0.0);
        let is_better = match self.bound {
            Some(Bound::AtLeast) => deviation >= 0.0,
            Some(Bound::AtMost) => deviation <= 0.0,
            None => false,
        };
        let holds = is_better || deviation.abs() <= within + ROUNDING;
        let mark = match self.bound {
            Some(Bound::AtLeast) => "at least ",
            Some(Bound::AtMost) => "at most ",
            None => "",
        };
        let tolerance = if within == 0.0 { String::new() } else { format!(" ± {within} %") };
        Claim {
            key: key.to_owned(),
            evidence,
            what,
            section: self.section.clone(),
            kind: self.kind,
            published: format!("{mark}{}{tolerance}", number(published)),
            ours: number(ours),
            deviation: Some(rounded(deviation)),
            holds: (self.kind != Kind::Rate).then_some(holds),
            why: self.why.clone(),
        }
    }

    fn shape(&self, key: &str) -> Result<Shape> {
        let text = self.shape.as_ref().with_context(|| format!("claim '{key}' has no shape"))?;
        text.parse().map_err(anyhow::Error::msg)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// Every claim of shape has curves for which it fails, so that it says something.
    #[test]
    fn each_claim_of_shape_can_fail() {
        for (name, paper) in papers().unwrap() {
            for (key, statement) in &paper.claim {
                if statement.shape.is_some() {
                    assert!(!statement.fails.is_empty(), "{name}: {key} has no curves that fail");
                    let (holds, detail) = statement.shape(key).unwrap().judge(&statement.fails);
                    assert!(!holds, "{name}: {key}: {detail}");
                } else {
                    assert_ne!(statement.kind, Kind::Shape, "{name}: {key}");
                    let is_number = statement.value.is_some() != statement.formula.is_some();
                    assert!(is_number && statement.shape.is_none(), "{name}: {key}");
                    assert!(statement.fails.is_empty(), "{name}: {key}");
                }
            }
        }
    }

    /// What an experiment starts from is never what it is compared with.
    #[test]
    fn no_input_is_a_claim() {
        for (name, paper) in papers().unwrap() {
            for (key, input) in &paper.input {
                assert!(!paper.claim.contains_key(key), "{name}: {key}");
                let same = paper
                    .claim
                    .iter()
                    .find(|(_, claim)| claim.value == Some(input.value) && claim.section == input.section);
                assert!(
                    same.is_none(),
                    "{name}: input {key} and claim {same:?} are one number of one section"
                );
            }
        }
    }

    /// Nothing in the files is without use. Experiments name their keys in the source of this folder.
    #[test]
    fn all_that_is_published_is_used() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/paper");
        let mut source = String::new();
        let mut folders = vec![folder];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    source += &std::fs::read_to_string(path).unwrap();
                }
            }
        }
        for (name, paper) in papers().unwrap() {
            let keys = paper.claim.keys().chain(paper.input.keys()).chain(paper.curve.keys());
            for key in keys {
                assert!(source.contains(&format!("\"{key}\"")), "{name}: '{key}' is used by no experiment");
            }
        }
    }
}

//! What an experiment brings: charts, claims, remarks. It is kept as a line of JSON, from which all can be printed and drawn again.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::claim::{Claim, Evidence, number};
use super::published::Paper;
use super::shape::Curve;
use crate::plot::{Chart, Line};

/// The results of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Outcome {
    /// Of which experiment.
    pub(super) id: String,
    /// Where it ran; empty for what no machine was needed for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) machine: String,
    /// Numbers of the paper that it starts from, with their sections.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) inputs: Vec<String>,
    /// What was left out, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) missing: Vec<String>,
    pub(super) charts: Vec<Chart>,
    pub(super) claims: Vec<Claim>,
    /// What should be known beside the figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) remarks: Vec<String>,
}

impl Outcome {
    /// Returns whether a claim does not hold.
    pub(super) fn has_failed(&self) -> bool {
        self.claims.iter().any(|claim| claim.holds == Some(false))
    }

    /// Judges all claims again by what the paper's file says now.
    ///
    /// # Errors
    /// The paper's file no longer has one of them.
    pub(super) fn judged_again(&self, paper: &Paper) -> Result<Outcome> {
        let claims = self.claims.iter().map(|claim| paper.judge_again(claim));
        let claims = claims.collect::<Result<_>>().with_context(|| format!("the results of {}", self.id))?;
        Ok(Outcome { claims, ..self.clone() })
    }

    /// Checks what was read from a file: that it can be printed and drawn.
    ///
    /// # Errors
    /// What cannot.
    pub(super) fn check(&self) -> Result<(), String> {
        let claims = self.claims.iter().flat_map(|claim| {
            [&claim.key, &claim.what, &claim.section, &claim.published, &claim.ours, &claim.why]
        });
        let lines = || self.charts.iter().flat_map(|chart| &chart.lines);
        let charts = self
            .charts
            .iter()
            .flat_map(|chart| [&chart.title, &chart.over, &chart.up].into_iter().chain(&chart.places));
        let notes =
            self.inputs.iter().chain(&self.missing).chain(&self.remarks).chain([&self.id, &self.machine]);
        let mut texts = claims.chain(charts).chain(lines().map(|line| &line.name)).chain(notes);
        if let Some(text) = texts.find(|text| text.len() > LONGEST || text.chars().any(char::is_control)) {
            return Err(format!("a text of {} bytes; expected at most {LONGEST} in one line", text.len()));
        }
        let points = || lines().flat_map(|line| &line.points);
        let is_number = |value: f64| value.abs() <= LARGEST;
        if points().any(|&(x, y)| !is_number(x) || !is_number(y)) {
            return Err(format!("a point beyond {LARGEST}"));
        }
        let values = |claim: &Claim| match &claim.evidence {
            Evidence::Formula { published_value, our_value, .. }
            | Evidence::Number { published_value, our_value } => vec![*published_value, *our_value],
            Evidence::Curves { curves } => curves.iter().flatten().flat_map(|&(x, y)| [x, y]).collect(),
        };
        if !self.claims.iter().flat_map(values).all(is_number) {
            return Err(format!("a value beyond {LARGEST}"));
        }
        let places = self.charts.iter().map(|chart| chart.places.len()).max().unwrap_or(0);
        if self.charts.len() > MOST || lines().count() > MOST || points().count() > MOST || places > MOST {
            return Err(format!("more than {MOST} charts, lines, places or points"));
        }
        Ok(())
    }

    /// Returns why claims do not hold or need a word, what was left out, and remarks; a reason of several claims once.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut reasons: Vec<(&str, &str, usize)> = Vec::new();
        for claim in &self.claims {
            let Some(why) = claim.explanation() else { continue };
            match reasons.iter_mut().find(|(_, known, _)| *known == why) {
                Some((.., more)) => *more += 1,
                None => reasons.push((&claim.what, why, 0)),
            }
        }
        let reasons = reasons.into_iter().map(|(what, why, more)| match more {
            0 => format!("{what}: {why}"),
            more => format!("{what}, and {more} more: {why}"),
        });
        let missing = self.missing.iter().map(|missing| format!("left out: {missing}"));
        reasons.chain(missing).chain(self.remarks.iter().cloned()).collect()
    }
}

/// Bytes of a text, the size of a number, and how many of a thing: more than any result has.
const LONGEST: usize = 2000;
const LARGEST: f64 = 1e15;
const MOST: usize = 2000;

/// Collects what an experiment brings, and compares it with its paper.
pub(super) struct Report<'a> {
    paper: &'a Paper,
    pub(super) outcome: Outcome,
}

impl<'a> Report<'a> {
    pub(super) fn new(id: &str, paper: &'a Paper) -> Report<'a> {
        let outcome = Outcome {
            id: id.to_owned(),
            machine: String::new(),
            inputs: Vec::new(),
            missing: Vec::new(),
            charts: Vec::new(),
            claims: Vec::new(),
            remarks: Vec::new(),
        };
        Report { paper, outcome }
    }

    /// Returns what the paper gives to start from.
    pub(super) fn input(&mut self, key: &str) -> Result<f64> {
        let (value, section) = self.paper.input(key)?;
        let text = format!("{} {} ({section})", key.replace('-', " "), number(value));
        if !self.outcome.inputs.contains(&text) {
            self.outcome.inputs.push(text);
        }
        Ok(value)
    }

    /// Compares a number with the published one.
    pub(super) fn compare(&mut self, key: &str, ours: f64) -> Result<()> {
        self.outcome.claims.push(self.paper.compare(key, ours)?);
        Ok(())
    }

    /// Compares a number with what a formula of the paper's makes of `of`.
    pub(super) fn compare_formula(&mut self, key: &str, of: &str, published: f64, ours: f64) -> Result<()> {
        self.outcome.claims.push(self.paper.compare_formula(key, of, published, ours)?);
        Ok(())
    }

    /// Judges the shape of curves.
    pub(super) fn judge(&mut self, key: &str, curves: &[Curve]) -> Result<()> {
        self.outcome.claims.push(self.paper.judge(key, curves)?);
        Ok(())
    }

    /// Adds a chart, with the published points of these keys as marks.
    pub(super) fn chart(&mut self, mut chart: Chart, marks: &[&str]) -> Result<()> {
        for point in chart.lines.iter_mut().flat_map(|line| &mut line.points) {
            *point = (rounded(point.0), rounded(point.1));
        }
        for key in marks {
            chart.lines.push(self.paper.marks(key)?);
        }
        self.outcome.charts.push(chart);
        Ok(())
    }

    /// Says what was left out, and why.
    pub(super) fn leave_out(&mut self, what: impl Into<String>) {
        self.outcome.missing.push(what.into());
    }

    /// Adds a remark.
    pub(super) fn remark(&mut self, text: impl Into<String>) {
        self.outcome.remarks.push(text.into());
    }
}

/// Returns a number with six digits, which is what a figure can show; more of them differ between processors.
pub(super) fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let digits = 10_f64.powi(5 - value.abs().log10().floor() as i32);
    (value * digits).round() / digits
}

/// Returns a line of a chart.
pub(super) fn line(name: impl Into<String>, points: &Curve) -> Line {
    Line { name: name.into(), points: points.clone(), has_marks_alone: false }
}

#[cfg(test)]
mod tests {
    use super::rounded;

    #[test]
    fn six_digits_stay() {
        let numbers = [1.218_153_361_9, 123_456_789.0, -0.000_123_456_78, 0.0].map(rounded);
        assert_eq!(numbers, [1.21815, 123_457_000.0, -0.000_123_457, 0.0]);
    }
}

//! A published statement beside ours.

use serde::{Deserialize, Serialize};

use super::shape::Curve;

/// What kind of statement it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// A number that follows from a formula, a model or a simulation: ours is the same, but for what is said.
    Value,
    /// How many times one thing is another, which machines of any year can be asked for.
    Ratio,
    /// The form of a curve.
    Shape,
    /// A bound that this project sets itself where a paper only gives the occasion.
    Own,
    /// What a machine of that time did: printed, never judged.
    Rate,
}

impl Kind {
    /// Returns its name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Value => "value",
            Kind::Ratio => "ratio",
            Kind::Shape => "shape",
            Kind::Own => "own bound",
            Kind::Rate => "rate",
        }
    }
}

/// What a statement is judged by, so that results of a file can be judged again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub(super) enum Evidence {
    /// What a formula of the paper's makes of `of`, and ours.
    Formula { of: String, published_value: f64, our_value: f64 },
    /// A published number, and ours.
    Number { published_value: f64, our_value: f64 },
    /// Our curves.
    Curves { curves: Vec<Curve> },
}

/// A statement, judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Claim {
    /// Its key in the paper's file.
    pub(super) key: String,
    pub(super) evidence: Evidence,
    /// What it is about, with its unit.
    pub(super) what: String,
    /// Where the paper says it.
    pub(super) section: String,
    pub(super) kind: Kind,
    /// Theirs, and ours, as people read them.
    pub(super) published: String,
    pub(super) ours: String,
    /// Ours over theirs less one, in per cent; shapes have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) deviation: Option<f64>,
    /// Whether it holds; none where nothing is judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) holds: Option<bool>,
    /// Why ours is another, where that is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) why: String,
}

impl Claim {
    /// Returns the word for how it went.
    pub(super) fn verdict(&self) -> &'static str {
        match self.holds {
            Some(true) => "holds",
            Some(false) => "does not hold",
            None => "-",
        }
    }

    /// Returns the deviation as people read it.
    pub(super) fn deviation_text(&self) -> String {
        // Without a minus before a zero.
        self.deviation.map_or_else(
            || "-".to_owned(),
            |deviation| format!("{:+.1} %", (deviation * 10.0).round() / 10.0 + 0.0),
        )
    }

    /// Returns why it is not as published, where it needs a word.
    pub(super) fn explanation(&self) -> Option<&str> {
        match (self.holds, self.why.is_empty()) {
            (Some(false), true) => Some("not explained: measure again, alone on the machine"),
            (Some(false) | None, false) => Some(&self.why),
            _ => None,
        }
    }
}

/// Returns a number with as many digits as matter.
pub(super) fn number(value: f64) -> String {
    let digits = match value.abs() {
        value if value >= 1000.0 => return router::table::thousands(value.round() as u64),
        value if value >= 100.0 => 1,
        value if value >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

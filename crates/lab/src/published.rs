//! What others have published, ours, and the deviation: `--paper` of `plan`, `model` and `sim`.

use serde_json::json;

use router::output::{say, say_line};
use router::table::{Align, Table};

/// One of their figures.
pub(crate) struct Claim {
    /// What it is about, and its unit.
    pub(crate) what: String,
    /// Theirs.
    pub(crate) published: f64,
    /// Ours.
    pub(crate) ours: f64,
}

impl Claim {
    pub(crate) fn new(what: impl Into<String>, published: f64, ours: f64) -> Claim {
        Claim { what: what.into(), published, ours }
    }

    fn deviation_percent(&self) -> f64 {
        (self.ours - self.published) / self.published * 100.0
    }
}

/// Prints them, row by row, under a heading that names the paper.
pub(crate) fn say_claims(heading: &str, claims: &[Claim], as_json: bool) {
    let [left, right] = [Align::Left, Align::Right];
    let mut table = Table::new(&[("", left), ("published", right), ("ours", right), ("deviation %", right)]);
    for claim in claims {
        let Claim { what, published, ours } = claim;
        let deviation = claim.deviation_percent();
        if as_json {
            say_line!(
                "{}",
                json!({"claim": what, "published": published, "ours": ours, "deviation_percent": deviation})
            );
        }
        table.row([what.clone(), number(*published), number(*ours), format!("{deviation:.1}")]);
    }
    if !as_json {
        say!("{heading}\n\n{}", table.render());
    }
}

/// With as many digits as matter.
fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

//! Sweeps as charts.

use std::path::Path;

use anyhow::Result;
use sim::Report;

use super::{Case, late, percent};
use crate::plot::{self, Chart, Line};

/// Something that a sweep varies: its name, and what a case has.
type Dimension = (&'static str, fn(&Case) -> String);

const DIMENSIONS: [Dimension; 4] = [
    ("topology", |case| case.scenario.shape.to_string()),
    ("delta, ms", |case| case.delta_ms.to_string()),
    ("matrix", |case| case.matrix.clone()),
    ("mode", |case| case.mode.to_owned()),
];

/// What is drawn of a report: title, unit, value.
type Quantity = (&'static str, &'static str, fn(&Report) -> f64);

const QUANTITIES: [Quantity; 3] = [
    ("delivered", "% of what the traffic asks for", |report| percent(report.throughput().share())),
    ("sequences overtaken", "% of packets", |report| percent(late(report))),
    ("busiest link", "% of its rate", |report| percent(report.links.max)),
];

/// Draws all cases over what varies first: topologies, else deltas, else matrices, else modes. What varies besides makes lines.
pub(super) fn write(path: &Path, cases: &[Case], reports: &[Report]) -> Result<()> {
    let values = |of: fn(&Case) -> String| {
        let mut values: Vec<String> = Vec::new();
        for value in cases.iter().map(of) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        values
    };
    let varying: Vec<Dimension> = DIMENSIONS.into_iter().filter(|(_, of)| values(*of).len() > 1).collect();
    let ((over, place_of), others) =
        varying.split_first().map_or((DIMENSIONS[0], &[][..]), |(first, rest)| (*first, rest));
    let places = values(place_of);
    let name_of = |case: &Case| {
        let parts: Vec<String> = others.iter().map(|(_, of)| of(case)).collect();
        if parts.is_empty() { format!("{}, {}", case.matrix, case.mode) } else { parts.join(", ") }
    };
    let charts = QUANTITIES.map(|(title, up, quantity)| {
        let mut lines: Vec<Line> = Vec::new();
        for (case, report) in cases.iter().zip(reports) {
            let name = name_of(case);
            let number = lines.iter().position(|line| line.name == name).unwrap_or_else(|| {
                lines.push(Line { name, ..Line::default() });
                lines.len() - 1
            });
            let place = places.iter().position(|place| *place == place_of(case)).unwrap_or(0);
            lines[number].points.push((place as f64, quantity(report)));
        }
        Chart {
            title: title.to_owned(),
            up: up.to_owned(),
            over: over.to_owned(),
            places: places.clone(),
            lines,
            ..Chart::default()
        }
    });
    plot::write(path, &charts)
}

//! Charts as SVG, for what tables show less well.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;
use serde::{Deserialize, Serialize};

/// One chart: values over places that are named, such as sizes or times, or over numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Chart {
    pub(crate) title: String,
    /// The label of the horizontal axis, with its unit.
    pub(crate) over: String,
    /// The label of the vertical axis: the unit of all lines.
    #[serde(default)]
    pub(crate) up: String,
    /// The names of 0, 1 and so on, from left to right; without any the numbers themselves are written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) places: Vec<String>,
    pub(crate) lines: Vec<Line>,
    /// Draws a bar for each point; a place then has the bars of all lines side by side.
    #[serde(default)]
    pub(crate) has_bars: bool,
    /// Each step up is ten times more.
    #[serde(default)]
    pub(crate) is_logarithmic: bool,
}

/// Points that belong together, from left to right.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
    /// Draws marks alone: what others have published.
    #[serde(default)]
    pub(crate) has_marks_alone: bool,
}

impl Line {
    /// Returns a line with a point at each place, or a gap.
    pub(crate) fn over_places(
        name: impl Into<String>,
        values: impl IntoIterator<Item = Option<f64>>,
    ) -> Line {
        let points = values
            .into_iter()
            .enumerate()
            .filter_map(|(place, value)| Some((place as f64, value?)))
            .collect();
        Line { name: name.into(), points, has_marks_alone: false }
    }
}

const WIDTH: u32 = 900;
const HEIGHT: u32 = 420;
/// Colours that also those can tell apart who do not see red or green (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(60, 60, 60),
];

/// Writes charts below each other.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write(path: &Path, charts: &[Chart]) -> Result<()> {
    let explain = |error: &dyn std::fmt::Display| anyhow!("cannot write '{}': {error}", path.display());
    let height = HEIGHT * u32::try_from(charts.len())?;
    let root = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE).map_err(|error| explain(&error))?;
    for (area, chart) in root.split_evenly((charts.len(), 1)).iter().zip(charts) {
        draw(area, chart).map_err(|error| explain(&error))?;
    }
    root.present().map_err(|error| explain(&error))
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw(area: &Area<'_>, chart: &Chart) -> Result<()> {
    let all = || chart.lines.iter().flat_map(|line| &line.points);
    let scale = |value: f64| if chart.is_logarithmic { value.max(f64::MIN_POSITIVE).log10() } else { value };
    let most = all().map(|point| scale(point.1)).fold(f64::MIN, f64::max);
    let (low, high) = if chart.is_logarithmic {
        let least = all().map(|point| scale(point.1)).fold(most, f64::min).floor();
        (least, most.ceil().max(least + 1.0))
    } else {
        // Above bars there is room for the names of lines.
        let room = if chart.has_bars { 1.3 } else { 1.08 };
        (0.0, if most > 0.0 { most * room } else { 1.0 })
    };
    let sides = if chart.places.is_empty() {
        let (left, right) =
            all().fold((f64::MAX, f64::MIN), |(left, right), point| (left.min(point.0), right.max(point.0)));
        let margin = (right - left).max(1e-9) * 0.03;
        left - margin..right + margin
    } else {
        let margin = if chart.has_bars { 0.6 } else { 0.25 };
        -margin..chart.places.len() as f64 - 1.0 + margin
    };
    let mut context = ChartBuilder::on(area)
        .caption(&chart.title, ("sans-serif", 20))
        .margin(14)
        .x_label_area_size(44)
        .y_label_area_size(76)
        .build_cartesian_2d(sides.clone(), low..high)?;
    let place_of = |x: &f64| {
        if chart.places.is_empty() {
            return short(*x);
        }
        let is_place = (x - x.round()).abs() < 1e-6 && *x > -0.5;
        is_place.then(|| chart.places.get(x.round() as usize)).flatten().cloned().unwrap_or_default()
    };
    let value_of = |y: &f64| short(if chart.is_logarithmic { 10_f64.powf(*y) } else { *y });
    context
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .x_labels(match (chart.places.len(), sides.end - sides.start) {
            // Of few whole numbers, such as workers, each has a label and nothing between them.
            (0, span) if span < 12.0 && all().all(|point| point.0.fract() == 0.0) => span as usize + 1,
            (0, _) => 12,
            (places, _) => 2 * places,
        })
        // A label for each factor of ten, else what fits.
        .y_labels(if chart.is_logarithmic { (high - low) as usize + 1 } else { 10 })
        .x_label_formatter(&place_of)
        .y_label_formatter(&value_of)
        .x_desc(&chart.over)
        .y_desc(&chart.up)
        .label_style(("sans-serif", 14))
        .draw()?;
    let bars = chart.lines.iter().filter(|line| !line.has_marks_alone).count();
    for (number, line) in chart.lines.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let points = line.points.iter().map(|&(x, y)| (x, scale(y)));
        if line.has_marks_alone {
            // The second kind of published points has another mark.
            let before = chart.lines[..number].iter().filter(|line| line.has_marks_alone).count();
            let style = BLACK.stroke_width(2);
            if before % 2 == 0 {
                context
                    .draw_series(points.map(|point| Cross::new(point, 6, style)))?
                    .label(&line.name)
                    .legend(move |(x, y)| Cross::new((x + 9, y), 5, style));
            } else {
                context
                    .draw_series(points.map(|point| TriangleMarker::new(point, 7, BLACK.filled())))?
                    .label(&line.name)
                    .legend(move |(x, y)| TriangleMarker::new((x + 9, y), 6, BLACK.filled()));
            }
        } else if chart.has_bars {
            // The bars of a place have four fifths of its width.
            let width = 0.8 / bars as f64;
            let from = -0.4 + width * number as f64;
            let bar =
                |(x, y)| Rectangle::new([(x + from, low), (x + from + width * 0.92, y)], colour.filled());
            context
                .draw_series(points.map(bar))?
                .label(&line.name)
                .legend(move |(x, y)| Rectangle::new([(x + 2, y - 5), (x + 16, y + 5)], colour.filled()));
        } else {
            let style = colour.stroke_width(2);
            // Through the gaps of the later line the earlier one is seen.
            let is_hidden = |earlier: &Line| coincide(earlier, line, high - low, scale);
            let drawn = if chart.lines[..number].iter().any(is_hidden) {
                context.draw_series(DashedLineSeries::new(points.clone(), 8, 8, style))?
            } else {
                context.draw_series(LineSeries::new(points.clone(), style))?
            };
            drawn.label(&line.name).legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
            context.draw_series(points.map(|point| Circle::new(point, 3, colour.filled())))?;
        }
    }
    let corner = emptiest_corner(chart, &sides, low..high, scale);
    context
        .configure_series_labels()
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.2))
        .label_font(("sans-serif", 14))
        .position(corner)
        .draw()?;
    Ok(())
}

/// Returns whether one of two lines hides the other: most of their common points are less than a hundredth of the height apart.
fn coincide(earlier: &Line, later: &Line, height: f64, scale: impl Fn(f64) -> f64) -> bool {
    if earlier.has_marks_alone {
        return false;
    }
    let of = |x: f64| earlier.points.iter().find(|point| point.0 == x);
    let common = || later.points.iter().filter_map(|&(x, y)| Some((of(x)?.1, y)));
    let near = common().filter(|&(a, b)| (scale(a) - scale(b)).abs() < height / 100.0).count();
    common().count() > 1 && 2 * near > common().count()
}

/// Returns the corner in which the names of lines hide the fewest points; a bar is as many as it is long.
fn emptiest_corner(
    chart: &Chart,
    sides: &std::ops::Range<f64>,
    heights: std::ops::Range<f64>,
    scale: impl Fn(f64) -> f64,
) -> SeriesLabelPosition {
    // The names take about this share of the width, and this of the height for each.
    const WIDE: f64 = 0.42;
    let high = 0.1 + 0.07 * chart.lines.len() as f64;
    let share = |value: f64, range: &std::ops::Range<f64>| (value - range.start) / (range.end - range.start);
    let hidden = |is_left: bool, is_below: bool| {
        let is_hidden = |&(x, y): &(f64, f64)| {
            let (x, y) = (share(x, sides), share(scale(y), &heights));
            let is_beside = if is_left { x < WIDE } else { x > 1.0 - WIDE };
            let is_level = match (is_below, chart.has_bars) {
                (true, true) => true,
                (true, false) => y < high,
                (false, _) => y > 1.0 - high,
            };
            is_beside && is_level
        };
        chart.lines.iter().flat_map(|line| &line.points).filter(|point| is_hidden(point)).count()
    };
    let corners = [
        (hidden(false, false), SeriesLabelPosition::UpperRight),
        (hidden(true, false), SeriesLabelPosition::UpperLeft),
        (hidden(false, true), SeriesLabelPosition::LowerRight),
        (hidden(true, true), SeriesLabelPosition::LowerLeft),
    ];
    let least = corners.into_iter().min_by_key(|(hidden, _)| *hidden);
    least.map_or(SeriesLabelPosition::UpperRight, |(_, corner)| corner)
}

/// A number for an axis.
fn short(value: f64) -> String {
    match value {
        value if value >= 10_000.0 => format!("{:.0}k", value / 1e3),
        value if value >= 100.0 || value.fract().abs() < 1e-9 => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.1}"),
        value => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_names_its_lines_and_places() {
        let path = std::env::temp_dir().join(format!("brickway-plot-{}.svg", std::process::id()));
        let chart = |is_logarithmic| Chart {
            title: "delivered".to_owned(),
            over: "nodes".to_owned(),
            places: vec!["4".to_owned(), "1023".to_owned()],
            lines: vec![Line::over_places("uniform", [Some(99.0), None])],
            is_logarithmic,
            ..Chart::default()
        };
        let published = Line { has_marks_alone: true, ..Line::over_places("published", [None, Some(3.0)]) };
        let mut with_bars = chart(false);
        with_bars.has_bars = true;
        with_bars.lines.push(published.clone());
        let over_numbers = Chart { lines: vec![published], ..Chart::default() };
        write(&path, &[chart(false), chart(true), with_bars, over_numbers]).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(
            ["delivered", "nodes", "1023", "uniform", "published"].iter().all(|word| text.contains(word)),
            "{text}"
        );
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        assert!(write(Path::new("/none/plot.svg"), &[chart(false)]).is_err());
    }
}

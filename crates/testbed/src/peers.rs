//! The chart of `docs/peers.svg`, drawn from the lines of `docs/peers.txt`. A test compares both; `make docs` draws it again.
//!
//! Lines of the file begin with a word, and bars divide their parts:
//!
//! - `chart | TITLE | MACHINE | COMMAND`: the bars of a chart are of one machine and, as far as it goes, of one run.
//! - `bar | NAME | FIGURE | WORDS`: the words stand in SPECIFICATION.md, and the figure in them.

use std::fmt::Write;
use std::fs;

use crate::documents::root;

struct Chart<'a> {
    title: &'a str,
    machine: &'a str,
    bars: Vec<Bar<'a>>,
}

struct Bar<'a> {
    name: &'a str,
    figure: &'a str,
    /// Of SPECIFICATION.md.
    words: &'a str,
}

impl Bar<'_> {
    fn value(&self) -> f64 {
        self.figure.replace(',', "").parse().expect("a figure is a number")
    }
}

fn charts(text: &str) -> Vec<Chart<'_>> {
    let mut charts = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        // The last part may hold bars, as a row of a table does.
        let parts: Vec<&str> = line.splitn(4, '|').map(str::trim).collect();
        match parts[..] {
            ["chart", title, machine, _command] => charts.push(Chart { title, machine, bars: Vec::new() }),
            ["bar", name, figure, words] => {
                let chart = charts.last_mut().expect("a chart stands above its bars");
                chart.bars.push(Bar { name, figure, words });
            }
            _ => panic!("docs/peers.txt: '{line}'; expected 'chart | ...' or 'bar | ...', of four parts"),
        }
    }
    charts
}

const WIDTH: u32 = 480;
/// Names end and bars begin here.
const LEFT: f64 = 186.0;
/// The longest bar; its figure stands behind it.
const LONGEST: f64 = 230.0;
const ROW: u32 = 25;
/// Above the first bar of a chart: its title and its machine.
const HEAD: u32 = 54;

/// The colours are those of the reader's choice, on a ground of the picture's own: a page may have the other one.
const STYLE: &str = "\
.paper { fill: #ffffff; stroke: #d0d7de }
text { fill: #1f2328 }
.title { font-size: 16px; font-weight: 600 }
.machine { font-size: 13px; fill: #57606a }
.ours { fill: #0969da }
.theirs { fill: #8c959f }
@media (prefers-color-scheme: dark) {
.paper { fill: #0d1117; stroke: #30363d }
text { fill: #e6edf3 }
.machine { fill: #9da7b3 }
.ours { fill: #58a6ff }
.theirs { fill: #6e7681 }
}";

fn draw(charts: &[Chart<'_>]) -> String {
    let rows: u32 = charts.iter().map(|chart| HEAD + ROW * chart.bars.len() as u32).sum();
    let height = rows + 12;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\" aria-labelledby=\"title\" font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', \
         sans-serif\" font-size=\"14\">\n<title id=\"title\">Brickway beside others</title>\n<style>\n{STYLE}\n</style>\n\
         <rect class=\"paper\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n",
        WIDTH - 1,
        height - 1,
    );
    let mut top = 0;
    for chart in charts {
        let _ = writeln!(svg, "<text class=\"title\" x=\"16\" y=\"{}\">{}</text>", top + 28, chart.title);
        let _ = writeln!(svg, "<text class=\"machine\" x=\"16\" y=\"{}\">{}</text>", top + 46, chart.machine);
        top += HEAD;
        let most = chart.bars.iter().map(Bar::value).fold(f64::MIN, f64::max);
        for bar in &chart.bars {
            let (long, line) = (LONGEST * bar.value() / most, top + 17);
            let class = if bar.name.starts_with("Brickway") { "ours" } else { "theirs" };
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{line}\" text-anchor=\"end\">{}</text>\
                 <rect class=\"{class}\" x=\"{LEFT}\" y=\"{}\" width=\"{long:.1}\" height=\"{}\" rx=\"2\"/>\
                 <text x=\"{:.1}\" y=\"{line}\">{}</text>",
                LEFT - 8.0,
                bar.name,
                top + 3,
                ROW - 6,
                LEFT + long + 7.0,
                bar.figure,
            );
            top += ROW;
        }
    }
    svg + "</svg>\n"
}

fn text_of(page: &str) -> String {
    fs::read_to_string(root().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

#[test]
fn the_chart_of_peers_is_drawn_from_its_lines() {
    let lines = text_of("docs/peers.txt");
    let drawn = draw(&charts(&lines));
    if std::env::var_os("BRICKWAY_UPDATE").is_some() {
        fs::write(root().join("docs/peers.svg"), &drawn).expect("the picture can be written");
    }
    assert!(
        text_of("docs/peers.svg") == drawn,
        "docs/peers.svg is not that of docs/peers.txt; run 'make docs'"
    );
}

#[test]
fn figures_of_peers_stand_in_the_specification() {
    let (lines, specification) = (text_of("docs/peers.txt"), text_of("SPECIFICATION.md"));
    let mut bars = 0;
    for bar in charts(&lines).iter().flat_map(|chart| &chart.bars) {
        assert!(specification.contains(bar.words), "not in SPECIFICATION.md: '{}'", bar.words);
        assert!(bar.words.contains(bar.figure), "{}: {} is not in '{}'", bar.name, bar.figure, bar.words);
        bars += 1;
    }
    assert!(bars > 10, "{bars}");
}

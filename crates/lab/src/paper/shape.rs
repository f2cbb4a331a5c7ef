//! What the form of a curve is said to be, as words in the papers' files, and whether a curve has it.
//!
//! | words | what holds |
//! | --- | --- |
//! | `rises P Q` | no point is more than P % below the highest before it, and the last is at least Q % above the first (without Q: either) |
//! | `falls P Q` | no point is more than P % above the lowest before it, and the last is at least Q % below the first (without Q: either) |
//! | `flat P` | the highest is at most P % above the lowest |
//! | `linear R` | a straight line explains at least the share R of the variance (R squared) |
//! | `grows F` | the last is at least F times the first |
//! | `shrinks P` | the last is at least P % below the first |
//! | `best A B` | the highest point lies at A to B |
//! | `near-best X P` | at X it is at most P % below the highest |
//! | `least A B` | the lowest point lies at A to B |
//! | `above P` | of several curves each is at least P % above the next one, wherever both have a point |
//! | `below-at X P` | of two curves the first is at least P % below the second at X |

use std::str::FromStr;

/// Points of a curve, from left to right.
pub(super) type Curve = Vec<(f64, f64)>;

/// What is said of one curve, or of several.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Shape {
    Rises(f64, Option<f64>),
    Falls(f64, Option<f64>),
    Flat(f64),
    Linear(f64),
    Grows(f64),
    Shrinks(f64),
    Best(f64, f64),
    NearBest(f64, f64),
    Least(f64, f64),
    Above(f64),
    BelowAt(f64, f64),
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Shape, String> {
        let mut words = text.split_whitespace();
        let name = words.next().unwrap_or_default();
        let numbers: Vec<f64> = words.filter_map(|word| word.parse().ok()).collect();
        Ok(match (name, &numbers[..]) {
            ("rises", &[percent, ref rest @ ..]) if rest.len() < 2 => {
                Shape::Rises(percent, rest.first().copied())
            }
            ("falls", &[percent, ref rest @ ..]) if rest.len() < 2 => {
                Shape::Falls(percent, rest.first().copied())
            }
            ("flat", &[percent]) => Shape::Flat(percent),
            ("linear", &[share]) => Shape::Linear(share),
            ("grows", &[times]) => Shape::Grows(times),
            ("shrinks", &[percent]) => Shape::Shrinks(percent),
            ("best", &[from, to]) => Shape::Best(from, to),
            ("near-best", &[at, percent]) => Shape::NearBest(at, percent),
            ("least", &[from, to]) => Shape::Least(from, to),
            ("above", &[percent]) => Shape::Above(percent),
            ("below-at", &[at, percent]) => Shape::BelowAt(at, percent),
            _ => return Err(format!("'{text}': no shape; expected one such as 'rises 5' or 'best 16 64'")),
        })
    }
}

impl Shape {
    /// Returns what it says, in words.
    pub(super) fn words(self) -> String {
        match self {
            Shape::Rises(percent, None) => format!("never falls by more than {percent} %"),
            Shape::Rises(percent, Some(least)) => {
                format!("rises by {least} % or more, back by {percent} % at most")
            }
            Shape::Falls(percent, None) => format!("never rises by more than {percent} %"),
            Shape::Falls(percent, Some(least)) => {
                format!("falls by {least} % or more, back by {percent} % at most")
            }
            Shape::Flat(percent) => format!("all within {percent} %"),
            Shape::Linear(share) => format!("a straight line, R squared {share} or more"),
            Shape::Grows(times) => format!("{times} times or more"),
            Shape::Shrinks(percent) => format!("{percent} % less or more than that"),
            Shape::Best(from, to) => format!("highest at {from} to {to}"),
            Shape::NearBest(at, percent) => format!("at {at} within {percent} % of the highest"),
            Shape::Least(from, to) if from == to => format!("lowest at {from}"),
            Shape::Least(from, to) => format!("lowest at {from} to {to}"),
            Shape::Above(percent) => format!("{percent} % above or more"),
            Shape::BelowAt(at, percent) => format!("at {at} {percent} % below or more"),
        }
    }

    /// Returns whether the curves have this shape, and what of them decides that.
    pub(super) fn judge(self, curves: &[Curve]) -> (bool, String) {
        let [first, rest @ ..] = curves else { return (false, "no curve".to_owned()) };
        let values: Vec<f64> = first.iter().map(|point| point.1).collect();
        let (Some(&begin), Some(&end)) = (values.first(), values.last()) else {
            return (false, "a curve without points".to_owned());
        };
        let (least, most) = (lowest(first), highest(first));
        let over = |part: f64, whole: f64| (part / whole - 1.0) * 100.0;
        match self {
            Shape::Rises(percent, least) => {
                let fall =
                    worst_step(&values, |best, value| value.max(best), |best, value| -over(value, best));
                let rise = over(end, begin);
                let holds = fall <= percent && least.is_none_or(|least| rise >= least);
                (holds, format!("last {rise:+.1} %; steps back by {fall:.1} % at most"))
            }
            Shape::Falls(percent, least) => {
                let rise =
                    worst_step(&values, |best, value| value.min(best), |best, value| over(value, best));
                let change = over(end, begin);
                let holds = rise <= percent && least.is_none_or(|least| -change >= least);
                (holds, format!("last {change:+.1} %; steps back by {rise:.1} % at most"))
            }
            Shape::Flat(percent) => {
                let spread = over(most.1, least.1);
                (spread <= percent, format!("highest {spread:.1} % above lowest"))
            }
            Shape::Linear(share) => {
                let explained = explained(first);
                (explained >= share, format!("R squared {explained:.4}"))
            }
            Shape::Grows(times) => (end >= begin * times, format!("{:.2} times", end / begin)),
            Shape::Shrinks(percent) => {
                (-over(end, begin) >= percent, format!("last {:.1} % below first", -over(end, begin)))
            }
            Shape::Best(from, to) => ((from..=to).contains(&most.0), format!("highest at {}", most.0)),
            Shape::Least(from, to) => ((from..=to).contains(&least.0), format!("lowest at {}", least.0)),
            Shape::NearBest(at, percent) => {
                let Some(value) = at_place(first, at) else { return (false, format!("no point at {at}")) };
                let below = -over(value, most.1);
                (below <= percent, format!("{below:.1} % below the highest"))
            }
            Shape::Above(percent) => {
                let mut worst = f64::INFINITY;
                let pairs = curves.windows(2).flat_map(|pair| {
                    pair[0].iter().filter_map(|point| Some((point.1, at_place(&pair[1], point.0)?)))
                });
                pairs.for_each(|(upper, lower)| worst = worst.min(over(upper, lower)));
                (worst.is_finite() && worst >= percent, format!("{worst:+.1} % where they are nearest"))
            }
            Shape::BelowAt(at, percent) => {
                let other = rest.first().and_then(|curve| at_place(curve, at));
                let (Some(this), Some(other)) = (at_place(first, at), other) else {
                    return (false, format!("no points at {at}"));
                };
                (-over(this, other) >= percent, format!("{:.1} % below", -over(this, other)))
            }
        }
    }
}

fn lowest(curve: &Curve) -> (f64, f64) {
    curve
        .iter()
        .copied()
        .fold((f64::NAN, f64::INFINITY), |best, point| if point.1 < best.1 { point } else { best })
}

fn highest(curve: &Curve) -> (f64, f64) {
    curve
        .iter()
        .copied()
        .fold((f64::NAN, f64::NEG_INFINITY), |best, point| if point.1 > best.1 { point } else { best })
}

fn at_place(curve: &Curve, at: f64) -> Option<f64> {
    curve.iter().find(|point| (point.0 - at).abs() <= at.abs() * 1e-9).map(|point| point.1)
}

/// Returns the worst of what `of` says of a value and the best one before it.
fn worst_step(values: &[f64], better: fn(f64, f64) -> f64, of: impl Fn(f64, f64) -> f64) -> f64 {
    let mut best = values[0];
    let mut worst = 0.0_f64;
    for &value in values {
        worst = worst.max(of(best, value));
        best = better(best, value);
    }
    worst
}

/// Returns the share of the variance that the best straight line explains.
fn explained(curve: &Curve) -> f64 {
    let count = curve.len() as f64;
    let mean = |of: &dyn Fn(&(f64, f64)) -> f64| curve.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(&|point| point.0), mean(&|point| point.1));
    let products = mean(&|point| (point.0 - x) * (point.1 - y));
    let squares = [mean(&|point| (point.0 - x).powi(2)), mean(&|point| (point.1 - y).powi(2))];
    products * products / (squares[0] * squares[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(values: &[f64]) -> Curve {
        values.iter().enumerate().map(|(place, &value)| (place as f64 + 1.0, value)).collect()
    }

    /// Each shape with curves that have it and curves that have it not.
    #[test]
    fn shapes_hold_for_their_curves_and_for_no_others() {
        for (text, holds, fails) in [
            ("rises 5", &[&[1.0, 2.0, 1.95, 3.0][..]][..], &[&[1.0, 2.0, 1.8, 3.0][..]][..]),
            ("falls 5", &[&[3.0, 2.0, 2.05]], &[&[3.0, 2.0, 2.2]]),
            ("rises 5 10", &[&[1.0, 2.0]], &[&[1.0, 1.0], &[1.0, 2.0, 1.5]]),
            ("falls 5 10", &[&[2.0, 1.0]], &[&[1.0, 1.0], &[2.0, 1.0, 1.5]]),
            ("flat 10", &[&[1.0, 1.09, 1.05]], &[&[1.0, 1.2]]),
            ("linear 0.99", &[&[1.0, 2.0, 3.01]], &[&[1.0, 2.0, 2.0, 1.0]]),
            ("grows 3", &[&[1.0, 5.0, 3.0]], &[&[1.0, 2.9]]),
            ("shrinks 20", &[&[1.0, 0.79]], &[&[1.0, 0.9]]),
            ("best 2 3", &[&[1.0, 5.0, 3.0]], &[&[5.0, 1.0, 2.0]]),
            ("least 2 3", &[&[5.0, 1.0, 3.0]], &[&[1.0, 2.0, 3.0]]),
            ("near-best 2 3", &[&[1.0, 0.98]], &[&[1.0, 0.9], &[1.0]]),
            ("above 10", &[&[2.0, 3.0], &[1.0, 2.0], &[0.5]], &[&[2.0, 3.0], &[1.0, 2.9]]),
            ("below-at 2 25", &[&[1.0, 0.7], &[1.0, 1.0]], &[&[0.5, 0.9], &[1.0, 1.0]]),
        ] {
            let shape: Shape = text.parse().unwrap();
            let curves = |values: &[&[f64]]| values.iter().map(|values| curve(values)).collect::<Vec<_>>();
            assert!(shape.judge(&curves(holds)).0, "{text}");
            // Where a shape is of one curve, each that fails is one of its own.
            let is_of_several = matches!(shape, Shape::Above(_) | Shape::BelowAt(..));
            let each = if is_of_several { vec![fails] } else { fails.chunks(1).collect() };
            each.into_iter().for_each(|fails| assert!(!shape.judge(&curves(fails)).0, "{text}: {fails:?}"));
        }
        for text in ["", "rises", "rises x", "rises 1 2 3", "flat 1 2", "odd 3"] {
            assert!(text.parse::<Shape>().unwrap_err().contains("no shape"), "{text}");
        }
        assert!(!Shape::Flat(1.0).judge(&[]).0 && !Shape::Flat(1.0).judge(&[Vec::new()]).0);
    }
}

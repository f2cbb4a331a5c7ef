//! Connections between two stages of a chain: port lists, `->` and `=>`.

use super::super::ast::PortList;
use super::super::lexer::Span;
use super::template::{Scope, Trust};
use super::{Elaborator, MAX_PORTS_USED};

/// One side of a connection: an element and its ports there; no list means that none was written.
pub(super) struct End {
    pub(super) element: usize,
    pub(super) inputs: Option<PortList>,
    pub(super) outputs: Option<PortList>,
}

impl End {
    fn ports(&self, outputs: bool) -> Option<&PortList> {
        if outputs { self.outputs.as_ref() } else { self.inputs.as_ref() }
    }
}

impl Elaborator<'_> {
    /// Ports that were written, or are implied by a group, where there is nothing to connect them to.
    pub(super) fn check_useless(&mut self, ends: &[End], outputs: bool, scope: &mut Scope) {
        let Some(end) = ends.iter().find(|e| e.ports(outputs).is_some()) else { return };
        let Some(list) = end.ports(outputs) else { return };
        let (message, help) = if outputs {
            (
                "output ports ignored at end of chain",
                "a port list at the end of an element is for a '->' behind it",
            )
        } else {
            (
                "input ports ignored at start of chain",
                "a port list before an element is for a '->' in front of it",
            )
        };
        let entered = self.report.error(list.span, message);
        self.report.help(entered, help);
        for end in ends {
            scope.distrust(end.element, Trust::UsedPorts);
        }
    }

    /// Whether so many more ports may be used.
    pub(super) fn take_ports(&mut self, count: usize, span: Span) -> bool {
        if count <= self.ports_left {
            self.ports_left -= count;
            return true;
        }
        if self.ports_left > 0 {
            self.ports_left = 0;
            let entered = self.report.error(span, "configuration uses too many ports");
            self.report.help(
                entered,
                format!("at most {MAX_PORTS_USED} connections can be written in one configuration"),
            );
        }
        false
    }

    /// Connects two stages, by the rules for port lists and `=>`.
    pub(super) fn connect(&mut self, from: &[End], to: &[End], many: bool, span: Span, scope: &mut Scope) {
        let sides = [to, from];
        let mut least = [0usize; 2];
        let mut open = [0usize; 2];
        for (k, side) in sides.iter().enumerate() {
            for end in *side {
                let list = end.ports(k == 1);
                least[k] += list.map_or(1, |l| l.ports.len());
                open[k] += usize::from(list.is_some_and(|l| l.open));
            }
        }
        let mut wrong = None;
        if open[0] + open[1] > 1 {
            let entered = self.report.error(span, "at most one expandable port allowed per connection");
            self.report.help(entered, "write the port numbers of one side out, as in [0-2]");
            wrong = Some(entered);
            open[usize::from(least[0] < least[1])] = 0;
        }
        let mut expandable = [open[0] > 0, open[1] > 0];
        if many {
            for k in 0..2 {
                if least[k] == 1 && least[1 - k] > 1 && sides[k][0].ports(k == 1).is_none() {
                    expandable[k] = true;
                }
            }
        }
        let mut step = [0, 1].map(|k| least[k] > 1 || expandable[k]);
        let extra = [0, 1].map(|k| if expandable[k] { least[1 - k].saturating_sub(least[k]) } else { 0 });
        if step[0] && step[1] {
            let mismatch = many_to_many_error(least, expandable, many).filter(|_| wrong.is_none());
            if let Some((message, help)) = mismatch {
                let entered = self.report.error(span, message);
                self.report.help(entered, help);
                wrong = Some(entered);
            }
        } else if !step[0] && !step[1] {
            step[0] = true;
        }
        if wrong.is_some() {
            for end in from.iter().chain(to) {
                scope.distrust(end.element, Trust::UsedPorts);
            }
        }
        let mut inputs = Ports::new(to, false, expandable[0], extra[0]);
        let mut outputs = Ports::new(from, true, expandable[1], extra[1]);
        let (mut input, mut output) = (inputs.next(), outputs.next());
        while let (Some(to), Some(from)) = (input, output) {
            if !self.take_ports(1, span) {
                return;
            }
            scope.connect(from, to, span);
            if step[0] {
                input = inputs.next();
            }
            if step[1] {
                output = outputs.next();
            }
        }
    }
}

fn many_to_many_error(least: [usize; 2], expandable: [bool; 2], many: bool) -> Option<(String, String)> {
    let [inputs, outputs] = least;
    if !many {
        let message = "syntax error: many-to-many connections require '=>'".to_string();
        return Some((message, "'=>' connects the first output with the first input and so on".to_string()));
    }
    let mismatch = "connection mismatch:";
    let message = match expandable {
        [false, false] if inputs != outputs => {
            format!("{mismatch} {outputs} outputs connected to {inputs} inputs")
        }
        [false, true] if inputs < outputs => {
            format!("{mismatch} {outputs} or more outputs connected to {inputs} inputs")
        }
        [true, false] if outputs < inputs => {
            format!("{mismatch} {outputs} outputs connected to {inputs} or more inputs")
        }
        _ => return None,
    };
    Some((message, "both sides of '=>' need the same number of ports".to_string()))
}

/// The ports of one side of a connection, in order.
struct Ports<'a> {
    ends: &'a [End],
    outputs: bool,
    /// Whether an open list, or a missing one, may grow.
    expandable: bool,
    /// By how many ports it grows.
    extra: usize,
    end: usize,
    position: usize,
}

impl<'a> Ports<'a> {
    fn new(ends: &'a [End], outputs: bool, expandable: bool, extra: usize) -> Self {
        Ports { ends, outputs, expandable, extra, end: 0, position: 0 }
    }
}

impl Iterator for Ports<'_> {
    type Item = (usize, u32);

    fn next(&mut self) -> Option<(usize, u32)> {
        loop {
            let end = self.ends.get(self.end)?;
            let list = end.ports(self.outputs);
            let written = list.map_or(&[0][..], |l| &l.ports[..]);
            let position = self.position;
            self.position += 1;
            if let Some(&port) = written.get(position) {
                return Some((end.element, port));
            }
            let grows =
                self.expandable && list.is_none_or(|l| l.open) && (list.is_some() || self.ends.len() == 1);
            if grows && self.extra > 0 {
                self.extra -= 1;
                let last = written.last().copied().unwrap_or(0);
                return Some((end.element, last + (position - written.len()) as u32 + 1));
            }
            self.end += 1;
            self.position = 0;
        }
    }
}

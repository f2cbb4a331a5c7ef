//! From templates to a flat graph: compound elements are replaced by their members, variables by their values, and
//! connections through compound elements and groups by connections between real elements.
//!
//! The order of the elements is Click's: those of the file first, then, compound element by compound element, their
//! members, each list of members before what is inside them.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::Options;
use super::arguments::{split_arguments, split_keyword};
use super::ast::Formal;
use super::elaborate::{Class, ClassId, Elaborated, MemberKind, Template, Trust};
use super::lexer::{SourceFile, Span};
use super::report::Report;
use super::variables::Environment;

/// Elements that a configuration may become.
const MAX_ELEMENTS: usize = 1_000_000;
/// How deep compound elements may be nested when they are expanded.
const MAX_DEPTH: usize = 128;
/// Bytes that all names and configuration strings may become.
const MAX_TEXT: usize = 512 << 20;
/// Connections that a configuration may become.
const MAX_CONNECTIONS: usize = 8_000_000;

/// An element of the flat graph.
pub(super) struct FlatMember {
    pub(super) name: String,
    pub(super) class: ClassId,
    pub(super) config: String,
    pub(super) span: Span,
    pub(super) trust: Trust,
}

/// A connection of the flat graph, by element index.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlatLink {
    pub(super) from: (usize, u32),
    pub(super) to: (usize, u32),
    pub(super) span: Span,
}

/// Elements and connections without compound elements.
pub(super) struct Graph {
    pub(super) members: Vec<FlatMember>,
    /// Sorted by where they go to, then by where they come from; no two are equal.
    pub(super) links: Vec<FlatLink>,
    /// Ports (element, 0 for an input and 1 for an output, port) that are connected to a port of a compound element
    /// or group which leads nowhere. That has been complained about, so they do not count as unused.
    pub(super) excused: HashSet<(usize, usize, u32)>,
}

/// Expands all compound elements. `parameters` are the values from the command line.
pub(super) fn expand(
    elaborated: &Elaborated,
    options: &Options,
    files: &[SourceFile],
    report: &mut Report,
) -> Option<Graph> {
    let mut expander = Expander {
        ports_last: options.ports_last,
        elaborated,
        files,
        report,
        entries: Vec::new(),
        links: Vec::new(),
        names: HashMap::new(),
        text: 0,
        gave_up: false,
        reported: HashSet::new(),
    };
    let top = &elaborated.top;
    let mut environment = Environment::new(0, None);
    for (name, value) in &top.definitions {
        environment.define(name, value.clone());
    }
    for (name, value) in &options.parameters {
        environment.define(name, value.clone());
    }
    expander.instantiate(top, None, &Rc::new(environment), 0);
    if expander.gave_up {
        return None;
    }
    expander.resolve()
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Element(ClassId),
    /// A compound element or group that has been expanded: where its input and output are.
    Shell {
        input: usize,
        output: usize,
        template: Option<usize>,
    },
    /// The inside of a shell's inputs.
    Input,
    /// The shell that it is the output of.
    Output(usize),
}

struct Entry {
    name: String,
    kind: Kind,
    config: String,
    span: Span,
    trust: Trust,
    ports_used: [usize; 2],
}

struct Expander<'a> {
    /// As the option.
    ports_last: bool,
    elaborated: &'a Elaborated,
    files: &'a [SourceFile],
    report: &'a mut Report,
    entries: Vec<Entry>,
    links: Vec<FlatLink>,
    names: HashMap<String, usize>,
    text: usize,
    /// A limit was exceeded; nothing more can be said about this configuration.
    gave_up: bool,
    /// Complaints about members of compound elements that were made for another instance already.
    reported: HashSet<(Span, String)>,
}

impl Expander<'_> {
    fn give_up(&mut self, span: Span, message: String, help: &str) {
        if !self.gave_up {
            self.gave_up = true;
            let entered = self.report.error(span, message);
            self.report.help(entered, help);
        }
    }

    /// Adds the members of a template, in place of the element `shell` when there is one, and expands them.
    fn instantiate(
        &mut self,
        template: &Template,
        shell: Option<usize>,
        environment: &Rc<Environment>,
        depth: usize,
    ) {
        let prefix = shell.map_or_else(String::new, |s| format!("{}/", self.entries[s].name));
        let mut places = Vec::with_capacity(template.members.len());
        for member in &template.members {
            let place = self.entries.len();
            let name = format!("{prefix}{}", member.name);
            let at = |member: usize, places: &[usize]| places.get(member).copied().unwrap_or(place);
            let kind = match member.kind {
                MemberKind::Element(class) => Kind::Element(class),
                MemberKind::Group => Kind::Shell { input: place + 1, output: place + 2, template: None },
                MemberKind::Input => Kind::Input,
                MemberKind::Output(group) => {
                    Kind::Output(group.map_or(shell.unwrap_or(place), |g| at(g, &places)))
                }
            };
            let mut config = String::new();
            if let Kind::Element(_) = kind {
                match environment.expand(&member.config) {
                    Ok(text) => config = text,
                    Err(_) => {
                        let help = "a variable's value contains itself or many others";
                        self.give_up(
                            member.span,
                            format!("configuration of '{name}' becomes too long"),
                            help,
                        );
                    }
                }
                self.check_name(&name, place, member.span);
            }
            self.text += name.len() + config.len();
            if self.entries.len() >= MAX_ELEMENTS || self.text > MAX_TEXT {
                let help =
                    format!("compound elements multiply; at most {MAX_ELEMENTS} elements are possible");
                self.give_up(member.span, "configuration becomes too large".to_string(), &help);
            }
            if self.gave_up {
                return;
            }
            places.push(place);
            self.entries.push(Entry {
                name,
                kind,
                config,
                span: member.span,
                trust: member.trust,
                ports_used: member.ports_used,
            });
        }
        if let Some(shell) = shell {
            self.link_shell(shell, &places);
        }
        if self.links.len() + template.links.len() > MAX_CONNECTIONS {
            let help = format!("at most {MAX_CONNECTIONS} connections are possible");
            return self.give_up(template.span, "configuration becomes too large".to_string(), &help);
        }
        for link in &template.links {
            self.links.push(FlatLink {
                from: (places[link.from.0], link.from.1),
                to: (places[link.to.0], link.to.1),
                span: link.span,
            });
        }
        for place in places {
            self.expand_compound(place, environment, depth);
            if self.gave_up {
                return;
            }
        }
    }

    fn link_shell(&mut self, shell: usize, places: &[usize]) {
        if let (Kind::Element(class), &[input, output, ..]) = (self.entries[shell].kind, places) {
            let template = match self.elaborated.classes[class] {
                Class::Compound(template) => Some(template),
                _ => None,
            };
            self.entries[shell].kind = Kind::Shell { input, output, template };
        }
    }

    fn check_name(&mut self, name: &str, place: usize, span: Span) {
        match self.names.get(name) {
            None => {
                self.names.insert(name.to_string(), place);
            }
            Some(&other) => {
                let entered = self.report.error(span, format!("redeclaration of element '{name}'"));
                let other = self.entries[other].span;
                self.report.note(entered, other, format!("element '{name}' previously declared here"));
                self.report.help(entered, "members of compound elements are called 'compound/member'");
            }
        }
    }

    fn expand_compound(&mut self, place: usize, environment: &Rc<Environment>, depth: usize) {
        let Kind::Element(class) = self.entries[place].kind else { return };
        let elaborated = self.elaborated;
        if !matches!(elaborated.classes[class], Class::Compound(_)) {
            return;
        }
        let span = self.entries[place].span;
        if depth >= MAX_DEPTH {
            let help = format!("compound elements may contain one another {MAX_DEPTH} deep");
            return self.give_up(span, "compound elements are nested too deeply".to_string(), &help);
        }
        let arguments = split_arguments(&self.entries[place].config);
        let (found, values) = self.choose(place, class, &arguments);
        let Some(found) = found else {
            self.entries[place].trust = Trust::Nothing;
            return;
        };
        self.entries[place].kind = Kind::Element(found);
        let Class::Compound(index) = elaborated.classes[found] else { return };
        let template = &elaborated.templates[index];
        let mut inner = Environment::new(template.depth, environment.around(template.depth));
        for (formal, value) in template.formals.iter().zip(values) {
            inner.define(&formal.name.text, value);
        }
        for (name, value) in &template.definitions {
            match inner.expand(value) {
                Ok(value) => inner.define(name, value),
                Err(_) => {
                    let help = "a variable's value contains itself or many others";
                    return self.give_up(template.span, format!("value of '${name}' becomes too long"), help);
                }
            }
        }
        self.instantiate(template, Some(place), &Rc::new(inner), depth + 1);
    }

    /// The first definition of a class that fits how an element is used, and the values of its parameters.
    fn choose(
        &mut self,
        place: usize,
        class: ClassId,
        arguments: &[String],
    ) -> (Option<ClassId>, Vec<String>) {
        let elaborated = self.elaborated;
        let [inputs, outputs] = self.entries[place].ports_used;
        let mut candidates: Vec<&Template> = Vec::new();
        let mut closest = None;
        let mut next = Some(class);
        while let Some(class) = next {
            let Class::Compound(index) = elaborated.classes[class] else {
                // The older class is not a compound element and takes whatever is left.
                return (Some(class), Vec::new());
            };
            let template = &elaborated.templates[index];
            candidates.push(template);
            if let Some(values) = assign_arguments(&template.formals, arguments) {
                if (template.inputs, template.outputs) == (inputs, outputs) {
                    return (Some(class), values);
                }
                closest = Some((class, values));
            }
            next = template.next;
        }
        let entry = &self.entries[place];
        let trusted = entry.trust == Trust::Full;
        match closest {
            // The ports are wrong, which is best said port by port; after an error they may be wrong on account of it.
            Some((class, values)) if candidates.len() == 1 || !trusted => (Some(class), values),
            _ => {
                self.report_no_match(place, &candidates, arguments);
                (None, Vec::new())
            }
        }
    }

    fn report_no_match(&mut self, place: usize, candidates: &[&Template], arguments: &[String]) {
        let entry = &self.entries[place];
        if entry.trust == Trust::Nothing || !self.reported.insert((entry.span, "no match".to_string())) {
            return;
        }
        let name = candidates.first().map_or("", |t| &t.name);
        let arguments = match arguments.len() {
            0 => String::new(),
            count => format!("{}, ", counted(count, "argument")),
        };
        let [inputs, outputs] = entry.ports_used;
        let used = format!("[{arguments}{}, {}]", counted(inputs, "input"), counted(outputs, "output"));
        let entered = self.report.error(entry.span, format!("no match for '{}{used}'", shown_name(name)));
        let mut help = String::from("candidates are:");
        for template in candidates.iter().take(20) {
            let file = self.files.get(usize::from(template.span.file));
            let place = file.map_or_else(String::new, |f| format!("{}: ", f.location(template.span)));
            help.push_str(&format!("\n{place}{}", signature(template)));
        }
        self.report.help(entered, help);
    }

    /// Follows all connections through shells and gives the real elements their final numbers.
    fn resolve(mut self) -> Option<Graph> {
        let mut outgoing: HashMap<(usize, u32), Vec<usize>> = HashMap::new();
        let mut incoming: HashSet<(usize, u32)> = HashSet::new();
        for (index, link) in self.links.iter().enumerate() {
            if !matches!(self.entries[link.from.0].kind, Kind::Element(_)) {
                outgoing.entry(link.from).or_default().push(index);
            }
            if !matches!(self.entries[link.to.0].kind, Kind::Element(_)) {
                incoming.insert(link.to);
            }
        }
        if !(self.ports_last && self.report.has_errors()) {
            self.check_shells(&outgoing, &incoming);
        }
        let mut numbers = vec![usize::MAX; self.entries.len()];
        let mut count = 0;
        for (place, entry) in self.entries.iter().enumerate() {
            if let Kind::Element(_) = entry.kind {
                numbers[place] = count;
                count += 1;
            }
        }
        let mut links: Vec<FlatLink> = Vec::with_capacity(self.links.len());
        let mut excused = HashSet::new();
        let mut reached = vec![false; self.links.len()];
        let mut steps = 0usize;
        for link in &self.links {
            if numbers[link.from.0] == usize::MAX {
                continue;
            }
            let from = (numbers[link.from.0], link.from.1);
            if numbers[link.to.0] != usize::MAX {
                links.push(FlatLink { from, to: (numbers[link.to.0], link.to.1), span: link.span });
                continue;
            }
            // Groups may pass packets straight through, even in circles, so places are visited once.
            let links_before = links.len();
            let mut seen = HashSet::from([link.to]);
            let mut ways = vec![link.to];
            while let Some(to) = ways.pop() {
                let Some(inside) = through(&self.entries, to) else { continue };
                for &next in outgoing.get(&inside).into_iter().flatten() {
                    steps += 1;
                    reached[next] = true;
                    let target = self.links[next].to;
                    if numbers[target.0] != usize::MAX {
                        links.push(FlatLink { from, to: (numbers[target.0], target.1), span: link.span });
                    } else if seen.insert(target) {
                        ways.push(target);
                    }
                }
            }
            if links.len() == links_before {
                excused.insert((from.0, 1, from.1));
            }
            if steps > MAX_CONNECTIONS || links.len() > MAX_CONNECTIONS {
                let help = format!("at most {MAX_CONNECTIONS} connections are possible");
                self.give_up(link.span, "configuration becomes too large".to_string(), &help);
                return None;
            }
        }
        for (link, _) in self.links.iter().zip(reached).filter(|(_, reached)| !reached) {
            if numbers[link.from.0] == usize::MAX && numbers[link.to.0] != usize::MAX {
                excused.insert((numbers[link.to.0], 0, link.to.1));
            }
        }
        links.sort_by_key(|l| (l.to, l.from));
        links.dedup_by_key(|l| (l.to, l.from));
        let members = self.entries.into_iter().filter_map(|entry| match entry.kind {
            Kind::Element(class) => {
                let Entry { name, config, span, trust, .. } = entry;
                Some(FlatMember { name, class, config, span, trust })
            }
            _ => None,
        });
        Some(Graph { members: members.collect(), links, excused })
    }

    /// Complains about ports of compound elements and groups that are connected on one side only.
    fn check_shells(
        &mut self,
        outgoing: &HashMap<(usize, u32), Vec<usize>>,
        incoming: &HashSet<(usize, u32)>,
    ) {
        let mut complaints: Vec<(usize, String, u32, &str)> = Vec::new();
        for (place, entry) in self.entries.iter().enumerate() {
            let Kind::Shell { input, output, .. } = entry.kind else { continue };
            if entry.trust < Trust::Full {
                continue;
            }
            let inside = [self.entries[input].ports_used[1], self.entries[output].ports_used[0]];
            if self.entries[input].trust < Trust::Full || self.entries[output].trust < Trust::Full {
                continue;
            }
            let most = |side: usize| inside[side].max(entry.ports_used[side]) as u32;
            for port in 0..most(0) {
                match (incoming.contains(&(place, port)), outgoing.contains_key(&(input, port))) {
                    (true, false) => complaints.push((place, format!("has no input {port}"), port, "input")),
                    (false, true) => complaints.push((place, format!("input {port} unused"), port, "input")),
                    _ => {}
                }
            }
            for port in 0..most(1) {
                match (outgoing.contains_key(&(place, port)), incoming.contains(&(output, port))) {
                    (true, false) => {
                        complaints.push((place, format!("has no output {port}"), port, "output"))
                    }
                    (false, true) => {
                        complaints.push((place, format!("output {port} unused"), port, "output"))
                    }
                    _ => {}
                }
            }
        }
        for (place, problem, port, side) in complaints {
            let entry = &self.entries[place];
            if !self.reported.insert((entry.span, problem.clone())) {
                continue;
            }
            let Kind::Shell { input, output, template } = entry.kind else { continue };
            let entered = self.report.error(entry.span, format!("'{}' {problem}", entry.name));
            let what = if template.is_some() { "compound element" } else { "element group" };
            let help = if problem.starts_with("has no") {
                let count = match side {
                    "input" => self.entries[input].ports_used[1],
                    _ => self.entries[output].ports_used[0],
                };
                format!("this {what} has {}", port_range(count, side))
            } else if side == "input" {
                format!("connect something to it: ... -> [{port}] {}", entry.name)
            } else {
                format!("connect it, to a Discard for instance: {} [{port}] -> ...", entry.name)
            };
            self.report.help(entered, help);
        }
    }
}

/// Where a connection that ends at the outside or inside of a shell goes on.
fn through(entries: &[Entry], (place, port): (usize, u32)) -> Option<(usize, u32)> {
    match entries[place].kind {
        Kind::Shell { input, .. } => Some((input, port)),
        Kind::Output(shell) => Some((shell, port)),
        // Nothing can be sent into an `input`; that has been said where it was written.
        Kind::Input | Kind::Element(_) => None,
    }
}

/// `2 inputs, numbered 0-1`.
pub(super) fn port_range(count: usize, side: &str) -> String {
    match count {
        0 => format!("no {side}s"),
        1 => format!("1 {side}, numbered 0"),
        _ => format!("{count} {side}s, numbered 0-{}", count - 1),
    }
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn shown_name(name: &str) -> &str {
    if name.is_empty() { "<anonymous>" } else { name }
}

/// How a definition looks from outside: `Foo(<arg>, KEYWORD, ...)[1 input, 1 output]`.
fn signature(template: &Template) -> String {
    let formals: Vec<&str> = template
        .formals
        .iter()
        .map(|f| match f.keyword.as_str() {
            "" => "<arg>",
            "__REST__" => "...",
            keyword => keyword,
        })
        .collect();
    let formals = if formals.is_empty() { String::new() } else { format!("({})", formals.join(", ")) };
    let ports = format!("[{}, {}]", counted(template.inputs, "input"), counted(template.outputs, "output"));
    format!("{}{formals}{ports}", shown_name(&template.name))
}

/// Gives arguments to the parameters of a compound element: positional ones first, then keywords, and the remaining ones
/// to `__REST__`. `None` when they do not fit.
fn assign_arguments(formals: &[Formal], arguments: &[String]) -> Option<Vec<String>> {
    let rest_at = formals.iter().position(|f| f.keyword == "__REST__");
    let named = &formals[..rest_at.unwrap_or(formals.len())];
    let positional = named.iter().take_while(|f| f.keyword.is_empty()).count();
    let mut values: Vec<Option<String>> = vec![None; formals.len()];
    let mut rest: Vec<&str> = Vec::new();
    let mut supplied = 0;
    let mut keywords_seen = false;
    for argument in arguments {
        if supplied >= positional && positional < named.len() {
            let keyword = split_keyword(argument)
                .and_then(|(word, value)| Some((named.iter().position(|f| f.keyword == word)?, value)));
            if let Some((index, value)) = keyword {
                values[index] = Some(value.to_string());
                keywords_seen = true;
                continue;
            }
            if keywords_seen && rest_at.is_none() {
                return None;
            }
        }
        if supplied < positional {
            values[supplied] = Some(argument.clone());
            supplied += 1;
        } else {
            rest.push(argument);
        }
    }
    match rest_at {
        Some(at) => values[at] = Some(rest.join(", ")),
        None if !rest.is_empty() => return None,
        None => {}
    }
    values.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lang::ast::Name;

    fn assign(formals: &[&str], arguments: &[&str]) -> Option<Vec<String>> {
        let formals: Vec<Formal> = formals
            .iter()
            .map(|keyword| Formal {
                name: Name { text: "x".into(), span: Span::default() },
                keyword: (*keyword).to_string(),
            })
            .collect();
        let arguments: Vec<String> = arguments.iter().map(|a| (*a).to_string()).collect();
        assign_arguments(&formals, &arguments)
    }

    #[test]
    fn positional_arguments_must_match_in_number() {
        assert_eq!(assign(&["", ""], &["1", "2"]).as_deref(), Some(&["1".to_string(), "2".into()][..]));
        assert_eq!(assign(&["", ""], &["1"]), None);
        assert_eq!(assign(&["", ""], &["1", "2", "3"]), None);
        assert_eq!(assign(&[], &[]), Some(vec![]));
    }

    #[test]
    fn keywords_and_rest() {
        let both = assign(&["", "COUNT", "__REST__"], &["1", "2", "COUNT 3", "FOO 4"]);
        assert_eq!(both, Some(vec!["1".to_string(), "3".into(), "2, FOO 4".into()]));
        assert_eq!(assign(&["COUNT"], &["1"]), None);
        assert_eq!(assign(&["COUNT"], &["COUNT 1", "BAD 2"]), None);
        assert_eq!(assign(&["__REST__"], &[]), Some(vec![String::new()]));
        assert_eq!(assign(&["A", "B"], &["B 1", "A 2"]), Some(vec!["2".to_string(), "1".into()]));
    }
}

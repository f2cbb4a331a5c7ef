//! From the syntax tree to templates: what names mean.
//!
//! Click reads a file in one pass, so an element or class must be declared before it is used. The statements are walked
//! in that order; each compound element becomes a [`Template`], a list of members and links in which names have become
//! numbers, and the file itself becomes the outermost one. Templates are put into one another by the `expand` module.
//!
//! Anonymous elements are named `Class@N`, where N counts every element of the scope so far. An element group takes
//! three places in that count: itself, its `input` and its `output`; these exist in the list of members and vanish when
//! connections through them are resolved.
//!
//! This file looks up names; `template` holds what it makes, `connections` has the rules for port lists.

use std::collections::HashMap;

mod connections;
mod template;

use super::ast::{
    Alternative, Chain, ClassDefinition, ClassReference, Compound, Name, PortList, Reference, Requirement,
    Stage, Statement, Subject,
};
use super::diagnostics::{nearest, printable};
use super::lexer::Span;
use super::report::{Entered, Report};
use super::{ClassSpec, ClassTable};
use connections::End;
use template::Scope;
pub(super) use template::{MemberKind, Template, Trust};

/// Index into [`Elaborated::classes`].
pub(super) type ClassId = usize;

/// What an element class is.
#[derive(Debug)]
pub(super) enum Class {
    /// One that the program has.
    Builtin(ClassSpec),
    /// A compound element: index into [`Elaborated::templates`].
    Compound(usize),
    /// One that nobody knows; it has been complained about.
    Unknown(String),
}

/// A configuration in which names are resolved.
pub(super) struct Elaborated {
    pub(super) classes: Vec<Class>,
    pub(super) templates: Vec<Template>,
    /// The file itself.
    pub(super) top: Template,
    pub(super) requirements: Vec<Requirement>,
}

/// Resolves the names of a configuration.
pub(super) fn elaborate(statements: &[Statement], table: &dyn ClassTable, report: &mut Report) -> Elaborated {
    let mut elaborator = Elaborator {
        table,
        report,
        classes: Vec::new(),
        builtins: HashMap::new(),
        class_scopes: vec![HashMap::new()],
        unknown_classes: HashMap::new(),
        templates: Vec::new(),
        requirements: Vec::new(),
        names: None,
        suggestions_left: MAX_SUGGESTIONS,
        ports_left: MAX_PORTS_USED,
    };
    let mut scope = Scope::new(String::new(), Span::default(), 0);
    elaborator.statements(statements, &mut scope);
    let top = elaborator.finish(scope);
    Elaborated {
        classes: elaborator.classes,
        templates: elaborator.templates,
        top,
        requirements: elaborator.requirements,
    }
}

/// A reference whose names have been looked up, but which is not a member yet.
enum Pending {
    /// It is there already.
    Known(usize),
    /// An element of a class that is known by name or given in braces.
    Class { name: String, class: ClassId },
    /// A name that is not a class.
    Named(String),
}

struct Elaborator<'a> {
    table: &'a dyn ClassTable,
    report: &'a mut Report,
    classes: Vec<Class>,
    builtins: HashMap<String, Option<ClassId>>,
    /// Class names, the innermost scope last.
    class_scopes: Vec<HashMap<String, ClassId>>,
    unknown_classes: HashMap<String, Entered>,
    templates: Vec<Template>,
    requirements: Vec<Requirement>,
    /// Names of the classes that the program has, for suggestions.
    names: Option<Vec<String>>,
    /// Suggestions cost time; a file full of unknown names does not get one for each.
    suggestions_left: usize,
    /// Ports and connections that the configuration may still use.
    ports_left: usize,
}

/// Suggestions that are made for one configuration.
const MAX_SUGGESTIONS: usize = 50;
/// Connections that may be written in one configuration, before compound elements are expanded.
const MAX_PORTS_USED: usize = 4_000_000;

impl Elaborator<'_> {
    fn statements(&mut self, statements: &[Statement], scope: &mut Scope) {
        for statement in statements {
            match statement {
                Statement::Chain(chain) => self.chain(chain, scope),
                Statement::Class { name, definition } => self.class_statement(name, definition, scope),
                Statement::Define(definitions) => self.define(definitions, scope),
                Statement::Require(requirement) => self.requirements.push(requirement.clone()),
                Statement::Library(statements) => self.statements(statements, scope),
            }
        }
    }

    fn define(&mut self, definitions: &[(Name, String)], scope: &mut Scope) {
        for (name, value) in definitions {
            let template = &mut scope.template;
            let taken = template.formals.iter().any(|f| f.name.text == name.text)
                || template.definitions.iter().any(|(n, _)| *n == name.text);
            if taken {
                let message = format!("parameter '${}' multiply defined", name.text);
                let entered = self.report.error(name.span, message);
                self.report.help(entered, "a parameter has one value in its scope; rename one of them");
            } else {
                template.definitions.push((name.text.clone(), value.clone()));
            }
        }
    }

    // Classes.

    fn class(&mut self, name: &str) -> Option<ClassId> {
        if let Some(&class) = self.class_scopes.iter().rev().find_map(|scope| scope.get(name)) {
            return Some(class);
        }
        if let Some(&known) = self.builtins.get(name) {
            return known;
        }
        let class = self.table.lookup(name).map(|spec| {
            self.classes.push(Class::Builtin(spec));
            self.classes.len() - 1
        });
        self.builtins.insert(name.to_string(), class);
        class
    }

    fn define_class(&mut self, name: &str, class: ClassId, span: Span) {
        if let Some(entered) = self.unknown_classes.remove(name) {
            let help = format!("a class is defined before its first use; move the definition of '{name}' up");
            self.report.help(entered, help);
            self.report.note(entered, span, format!("'{name}' defined here"));
        }
        if let Some(scope) = self.class_scopes.last_mut() {
            scope.insert(name.to_string(), class);
        }
    }

    /// The class of that name; one that is not known is complained about once.
    fn force_class(&mut self, name: &Name) -> ClassId {
        if let Some(class) = self.class(&name.text) {
            return class;
        }
        let entered =
            self.report.error(name.span, format!("unknown element class '{}'", printable(&name.text)));
        if let Some(help) = self.class_suggestion(&name.text) {
            self.report.help(entered, help);
        }
        self.unknown_classes.insert(name.text.clone(), entered);
        let class = self.unknown_class(&name.text);
        self.class_scopes[0].insert(name.text.clone(), class);
        class
    }

    fn unknown_class(&mut self, name: &str) -> ClassId {
        self.classes.push(Class::Unknown(name.to_string()));
        self.classes.len() - 1
    }

    fn near_class(&mut self, name: &str) -> Option<String> {
        self.suggestions_left = self.suggestions_left.checked_sub(1)?;
        let table = self.table;
        let builtins = self.names.get_or_insert_with(|| table.names());
        let classes = &self.classes;
        let local = self.class_scopes.iter().flatten();
        let local =
            local.filter(|(_, id)| !matches!(classes[**id], Class::Unknown(_))).map(|(n, _)| n.as_str());
        nearest(name, builtins.iter().map(String::as_str).chain(local)).map(str::to_string)
    }

    fn class_suggestion(&mut self, name: &str) -> Option<String> {
        self.near_class(name).map(|near| format!("did you mean '{near}'?"))
    }

    fn class_statement(&mut self, name: &Name, definition: &ClassDefinition, scope: &Scope) {
        let class = match definition {
            ClassDefinition::Synonym(other) => self.force_class(other),
            ClassDefinition::Compound(compound) => self.compound(&name.text, name.span, compound, scope),
            ClassDefinition::Broken => self.unknown_class(&name.text),
        };
        self.define_class(&name.text, class, name.span);
    }

    /// Makes the templates of a compound element and returns the class of the first one.
    fn compound(&mut self, name: &str, span: Span, compound: &Compound, around: &Scope) -> ClassId {
        let extended = compound.extends.map(|dots| match self.class(name) {
            Some(class) => class,
            None => {
                let shown = if name.is_empty() { "<anonymous>" } else { name };
                let message = format!("cannot extend unknown element class '{}'", printable(shown));
                let entered = self.report.error(dots, message);
                self.report
                    .help(entered, "'...' stands for the older definitions of the class of the same name");
                self.unknown_class(name)
            }
        });
        let mut next = extended;
        let mut made: Vec<Template> = Vec::new();
        for (number, alternative) in compound.alternatives.iter().enumerate() {
            let span = if number == 0 { span } else { alternative.span };
            made.push(self.alternative(name, span, alternative, around));
        }
        for mut template in made.into_iter().rev() {
            template.next = next;
            self.templates.push(template);
            self.classes.push(Class::Compound(self.templates.len() - 1));
            next = Some(self.classes.len() - 1);
        }
        match next {
            Some(class) => class,
            None => self.unknown_class(name),
        }
    }

    fn alternative(&mut self, name: &str, span: Span, alternative: &Alternative, around: &Scope) -> Template {
        let mut scope = Scope::new(name.to_string(), span, around.template.depth + 1);
        scope.template.formals = alternative.formals.clone();
        let input = scope.add("input".to_string(), MemberKind::Input, span);
        let output = scope.add("output".to_string(), MemberKind::Output(None), span);
        scope.elements.insert("input".to_string(), input);
        scope.elements.insert("output".to_string(), output);
        scope.template.uncounted = 2;
        self.class_scopes.push(HashMap::new());
        self.statements(&alternative.statements, &mut scope);
        self.class_scopes.pop();
        let shown = if name.is_empty() { "<anonymous>" } else { name };
        scope.template.inputs = self.check_pseudo(&mut scope, input, false, shown, 0);
        scope.template.outputs = self.check_pseudo(&mut scope, output, true, shown, 0);
        self.finish(scope)
    }

    /// Checks how an `input` or `output` is used in the links from `first_link` on, and returns the number of its ports.
    fn check_pseudo(
        &mut self,
        scope: &mut Scope,
        member: usize,
        is_output: bool,
        owner: &str,
        first_link: usize,
    ) -> usize {
        let span = scope.template.members[member].span;
        let names = ["input", "output"];
        let side = usize::from(is_output);
        let ports = scope.template.members[member].ports_used[1 - side];
        let mut used = vec![false; ports];
        let mut misuse = None;
        for link in &scope.template.links[first_link..] {
            let (right, wrong) = if is_output { (link.to, link.from) } else { (link.from, link.to) };
            if right.0 == member {
                used[right.1 as usize] = true;
            }
            if wrong.0 == member && misuse.is_none() {
                misuse = Some(link.span);
            }
        }
        if let Some(place) = misuse {
            let message =
                format!("'{owner}' pseudoelement '{}' may only be used as {}", names[side], names[1 - side]);
            let entered = self.report.error(place, message);
            let help = if is_output {
                "packets leave through it: element -> output"
            } else {
                "packets come in through it: input -> element"
            };
            self.report.help(entered, help);
        }
        let trusted = scope.template.members[member].trust == Trust::Full;
        // A gap may be wide; one message about it is enough.
        if let Some(port) = used.iter().position(|used| !used).filter(|_| trusted) {
            let entered = self.report.error(span, format!("'{owner}' {} {port} missing", names[side]));
            let help =
                format!("ports are numbered from 0 without gaps; [{}] is the highest one used", ports - 1);
            self.report.help(entered, help);
            scope.distrust(member, Trust::UsedPorts);
        }
        ports
    }

    /// Gives anonymous elements their final names.
    fn finish(&mut self, mut scope: Scope) -> Template {
        let members = &mut scope.template.members;
        for index in 0..members.len() {
            if members[index].anonymous && scope.elements.contains_key(&members[index].name) {
                let name = &members[index].name;
                let (prefix, number) = name.rsplit_once('@').unwrap_or((name, "0"));
                let mut number: u64 = number.parse().unwrap_or(0);
                let free = loop {
                    number += 1;
                    let name = format!("{prefix}@{number}");
                    if !scope.elements.contains_key(&name) {
                        break name;
                    }
                };
                members[index].name = free;
            }
            if members[index].anonymous {
                scope.elements.insert(members[index].name.clone(), index);
                if members[index].kind == MemberKind::Group {
                    let name = members[index].name.clone();
                    members[index + 1].name = format!("{name}/input");
                    members[index + 2].name = format!("{name}/output");
                }
            }
        }
        scope.template
    }

    // Connections and declarations.

    fn chain(&mut self, chain: &Chain, scope: &mut Scope) {
        let mut before: Option<(Vec<End>, Span)> = None;
        for (number, stage) in chain.stages.iter().enumerate() {
            let first = number == 0;
            let alone = first && chain.stages.len() == 1;
            let ends = self.stage(stage, alone, scope);
            if chain.broken {
                for end in &ends {
                    scope.distrust(end.element, Trust::UsedPorts);
                }
            }
            match &before {
                None => self.check_useless(&ends, false, scope),
                Some((from, span)) => {
                    let length = (stage.span.start + stage.span.length).saturating_sub(span.start);
                    self.connect(from, &ends, stage.many, Span { length, ..*span }, scope);
                }
            }
            before = Some((ends, stage.span));
        }
        if let Some((ends, _)) = &before {
            self.check_useless(ends, true, scope);
        }
    }

    /// Makes the members of a stage.
    fn stage(&mut self, stage: &Stage, alone: bool, scope: &mut Scope) -> Vec<End> {
        let spread = spread_declaration(&stage.references, alone);
        // Names are looked up one after the other, but elements come into being together at the end of the stage;
        // only groups take their numbers where they stand.
        let mut pending: Vec<(Pending, Option<ClassId>, [Option<PortList>; 2])> = Vec::new();
        for reference in &stage.references {
            let mut ports = [reference.inputs.clone(), reference.outputs.clone()];
            let subject = match &reference.subject {
                Subject::Name(name) => match self.class(name) {
                    Some(class) => Pending::Class { name: name.clone(), class },
                    None => Pending::Named(name.clone()),
                },
                Subject::Compound(compound) => {
                    let class = self.compound("", reference.span, compound, scope);
                    Pending::Class { name: String::new(), class }
                }
                Subject::Group(statements) => {
                    let (group, counts) = self.group(statements, reference.span, scope);
                    for (list, count) in ports.iter_mut().zip(counts) {
                        if list.is_none() && count > 0 && self.take_ports(count, reference.span) {
                            let all = (0..count as u32).collect();
                            *list = Some(PortList { ports: all, open: false, span: reference.span });
                        }
                    }
                    Pending::Known(group)
                }
                Subject::ImplicitInput => Pending::Named("input".to_string()),
                Subject::ImplicitOutput => Pending::Named("output".to_string()),
            };
            let class = match &reference.class {
                None => None,
                Some(ClassReference::Name(name)) => Some(self.force_class(name)),
                Some(ClassReference::Compound(compound)) => {
                    Some(self.compound("", reference.span, compound, scope))
                }
                Some(ClassReference::Missing) => Some(self.unknown_class("")),
            };
            pending.push((subject, class, ports));
        }
        let spread_class = spread.then(|| pending.last().and_then(|p| p.1)).flatten();
        let spread_config =
            if spread { stage.references.last().and_then(|r| r.config.as_ref()) } else { None };
        let mut ends = Vec::with_capacity(pending.len());
        for (reference, (subject, class, [inputs, outputs])) in stage.references.iter().zip(pending) {
            let class = class.or(spread_class);
            let config = reference.config.as_ref().or(spread_config);
            let element = self.element(reference, subject, class, config, scope);
            ends.push(End { element, inputs, outputs });
        }
        ends
    }

    /// The member that a reference means or declares.
    fn element(
        &mut self,
        reference: &Reference,
        subject: Pending,
        class: Option<ClassId>,
        config: Option<&(String, Span)>,
        scope: &mut Scope,
    ) -> usize {
        let span = reference.span;
        let element = match subject {
            Pending::Known(group) => {
                if class.is_some() {
                    self.report.error(span, "an element group cannot have a class");
                    scope.distrust(group, Trust::Nothing);
                }
                self.check_config_ignored(config);
                return group;
            }
            Pending::Class { name, class: own } => {
                let element = scope.add_anonymous(&name, MemberKind::Element(own), span);
                if class.is_some() {
                    let message = match &reference.subject {
                        Subject::Compound(_) => "compound element used as element name".to_string(),
                        _ => format!("class '{}' used as element name", printable(&name)),
                    };
                    let entered = self.report.error(span, message);
                    self.report.help(entered, "give the element a name that is not a class");
                    scope.distrust(element, Trust::Nothing);
                }
                element
            }
            Pending::Named(name) => match scope.elements.get(&name).copied() {
                Some(element) => return self.known(reference, name, element, class, config, scope),
                None => match class {
                    Some(class) => self.declare(name, class, span, scope),
                    None => self.undeclared(name, config.is_some(), span, scope),
                },
            },
        };
        if let Some((text, _)) = config {
            scope.template.members[element].config.clone_from(text);
        }
        element
    }

    fn check_config_ignored(&mut self, config: Option<&(String, Span)>) {
        if let Some((_, span)) = config {
            let entered = self.report.error(*span, "configuration string ignored on element reference");
            self.report.help(entered, "an element gets its configuration where it is declared");
        }
    }

    /// A name that is in use: a reference, or a second declaration.
    fn known(
        &mut self,
        reference: &Reference,
        name: String,
        element: usize,
        class: Option<ClassId>,
        config: Option<&(String, Span)>,
        scope: &mut Scope,
    ) -> usize {
        let Some(class) = class else {
            if !scope.undeclared.contains_key(&name) {
                self.check_config_ignored(config);
            }
            return element;
        };
        if let Some(entered) = scope.undeclared.remove(&name) {
            // It was used too early: the declaration comes now, and one complaint is enough.
            self.report.help(
                entered,
                format!("an element is declared before its first use; declare '{name}' earlier"),
            );
            self.report.note(entered, reference.span, format!("'{name}' declared here"));
            let member = &mut scope.template.members[element];
            member.kind = MemberKind::Element(class);
            member.span = reference.span;
            if let Some((text, _)) = config {
                member.config.clone_from(text);
            }
            return element;
        }
        let entered =
            self.report.error(reference.span, format!("redeclaration of element '{}'", printable(&name)));
        let pseudo =
            matches!(scope.template.members[element].kind, MemberKind::Input | MemberKind::Output(_));
        if pseudo {
            self.report.help(entered, format!("'{name}' stands for connections from outside here"));
        } else {
            let first = scope.template.members[element].span;
            self.report.note(entered, first, format!("element '{name}' previously declared here"));
            self.report.help(entered, "give the second element another name");
        }
        scope.distrust(element, Trust::Nothing);
        element
    }

    fn declare(&mut self, name: String, class: ClassId, span: Span, scope: &mut Scope) -> usize {
        if name.split('/').any(|part| part.bytes().all(|b| b.is_ascii_digit())) {
            let message = format!("element name '{}' has all-digit component", printable(&name));
            let entered = self.report.error(span, message);
            self.report.help(entered, "put a letter into it");
        }
        let element = scope.add(name.clone(), MemberKind::Element(class), span);
        scope.elements.insert(name, element);
        element
    }

    fn undeclared(&mut self, name: String, as_class: bool, span: Span, scope: &mut Scope) -> usize {
        if as_class {
            // With a configuration string behind it, it is meant as a class.
            let class = self.force_class(&Name { text: name.clone(), span });
            let element = scope.add_anonymous(&name, MemberKind::Element(class), span);
            scope.distrust(element, Trust::Nothing);
            return element;
        }
        let entered = self.report.error(span, format!("undeclared element '{}'", printable(&name)));
        let near_element = match self.suggestions_left {
            0 => None,
            _ => nearest(&name, scope.elements.keys().map(String::as_str)).map(str::to_string),
        };
        let help = match (near_element, self.near_class(&name)) {
            (Some(element), _) => format!("did you mean the element '{element}'?"),
            (None, Some(class)) => format!("did you mean the class '{class}'?"),
            (None, None) if matches!(name.as_str(), "input" | "output") => {
                format!("'{name}' exists inside compound elements and element groups")
            }
            (None, None) => format!("declare it first: {} :: SomeClass", printable(&name)),
        };
        self.report.help(entered, help);
        let class = self.unknown_class(&name);
        let element = scope.add(name.clone(), MemberKind::Element(class), span);
        scope.distrust(element, Trust::Nothing);
        scope.elements.insert(name.clone(), element);
        scope.undeclared.insert(name, entered);
        element
    }

    /// An element group: it shares the scope, but `input` and `output` mean its own inside it. Returns the group and
    /// the numbers of its inputs and outputs.
    fn group(&mut self, statements: &[Statement], span: Span, scope: &mut Scope) -> (usize, [usize; 2]) {
        let group = scope.add_anonymous("", MemberKind::Group, span);
        let input = scope.add(String::new(), MemberKind::Input, span);
        let output = scope.add(String::new(), MemberKind::Output(Some(group)), span);
        let first_link = scope.template.links.len();
        let outer_input = scope.elements.insert("input".to_string(), input);
        let outer_output = scope.elements.insert("output".to_string(), output);
        self.statements(statements, scope);
        for (name, outer) in [("input", outer_input), ("output", outer_output)] {
            match outer {
                Some(element) => scope.elements.insert(name.to_string(), element),
                None => scope.elements.remove(name),
            };
        }
        let owner = "<anonymous group>";
        let inputs = self.check_pseudo(scope, input, false, owner, first_link);
        let outputs = self.check_pseudo(scope, output, true, owner, first_link);
        (group, [inputs, outputs])
    }
}

/// Whether a stage declares all its names with the class and configuration of the last one: `a, b :: C(x);`.
fn spread_declaration(references: &[Reference], alone: bool) -> bool {
    let Some((last, others)) = references.split_last() else { return false };
    alone
        && !others.is_empty()
        && last.class.is_some()
        && others.iter().all(Reference::is_bare)
        && references.iter().all(|r| r.inputs.is_none() && r.outputs.is_none())
}

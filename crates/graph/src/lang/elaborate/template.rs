//! Templates: compound elements in which names have become numbers.

use std::collections::HashMap;

use super::super::ast::Formal;
use super::super::lexer::Span;
use super::super::report::Entered;
use super::ClassId;

/// How far to believe what a configuration says about the ports of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::lang) enum Trust {
    /// Nothing about its ports may be complained about: its declaration is wrong already.
    Nothing,
    /// Connections may be missing because of an error that has been reported.
    UsedPorts,
    /// Everything.
    Full,
}

/// What a member of a template is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::lang) enum MemberKind {
    Element(ClassId),
    /// An element group, followed by its input and its output.
    Group,
    /// Where packets from outside come in.
    Input,
    /// Where packets leave the group at the given index, or the compound itself.
    Output(Option<usize>),
}

#[derive(Debug)]
pub(in crate::lang) struct Member {
    pub(in crate::lang) name: String,
    pub(in crate::lang) kind: MemberKind,
    pub(in crate::lang) config: String,
    pub(in crate::lang) span: Span,
    pub(in crate::lang) trust: Trust,
    /// Inputs and outputs that connections use: the highest port number plus one.
    pub(in crate::lang) ports_used: [usize; 2],
    /// The number in the name may still change, because names are taken at the end of the scope.
    pub(in crate::lang) anonymous: bool,
}

/// A connection between members: member and port.
#[derive(Debug, Clone, Copy)]
pub(in crate::lang) struct Link {
    pub(in crate::lang) from: (usize, u32),
    pub(in crate::lang) to: (usize, u32),
    pub(in crate::lang) span: Span,
}

/// One definition of a compound element.
#[derive(Debug)]
pub(in crate::lang) struct Template {
    /// Empty for `{ ... }` without a name.
    pub(in crate::lang) name: String,
    pub(in crate::lang) span: Span,
    pub(in crate::lang) formals: Vec<Formal>,
    pub(in crate::lang) definitions: Vec<(String, String)>,
    pub(in crate::lang) members: Vec<Member>,
    pub(in crate::lang) links: Vec<Link>,
    pub(in crate::lang) inputs: usize,
    pub(in crate::lang) outputs: usize,
    /// How many scopes are around it; 0 for the file.
    pub(in crate::lang) depth: usize,
    /// The next definition to try when this one does not fit.
    pub(in crate::lang) next: Option<ClassId>,
    /// The first members are the compound's input and output; Click does not count them.
    pub(in crate::lang) uncounted: usize,
}

/// A template that is being made.
pub(super) struct Scope {
    pub(super) template: Template,
    pub(super) elements: HashMap<String, usize>,
    /// Elements that were used before or without being declared, and what was said about it.
    pub(super) undeclared: HashMap<String, Entered>,
}

impl Scope {
    pub(super) fn new(name: String, span: Span, depth: usize) -> Self {
        Scope {
            template: Template {
                name,
                span,
                formals: Vec::new(),
                definitions: Vec::new(),
                members: Vec::new(),
                links: Vec::new(),
                inputs: 0,
                outputs: 0,
                depth,
                next: None,
                uncounted: 0,
            },
            elements: HashMap::new(),
            undeclared: HashMap::new(),
        }
    }

    pub(super) fn add(&mut self, name: String, kind: MemberKind, span: Span) -> usize {
        self.template.members.push(Member {
            name,
            kind,
            config: String::new(),
            span,
            trust: Trust::Full,
            ports_used: [0, 0],
            anonymous: false,
        });
        self.template.members.len() - 1
    }

    pub(super) fn add_anonymous(&mut self, class_name: &str, kind: MemberKind, span: Span) -> usize {
        let number = self.template.members.len() - self.template.uncounted + 1;
        let index = self.add(format!("{class_name}@{number}"), kind, span);
        self.template.members[index].anonymous = true;
        index
    }

    pub(super) fn distrust(&mut self, element: usize, trust: Trust) {
        let member = &mut self.template.members[element];
        member.trust = member.trust.min(trust);
    }

    pub(super) fn connect(&mut self, from: (usize, u32), to: (usize, u32), span: Span) {
        let template = &mut self.template;
        let outputs = &mut template.members[from.0].ports_used[1];
        *outputs = (*outputs).max(from.1 as usize + 1);
        let inputs = &mut template.members[to.0].ports_used[0];
        *inputs = (*inputs).max(to.1 as usize + 1);
        template.links.push(Link { from, to, span });
    }
}

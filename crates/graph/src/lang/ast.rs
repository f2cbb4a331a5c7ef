//! The syntax tree: what a configuration says, before names mean anything.

use super::lexer::Span;

/// A name and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Name {
    pub(super) text: String,
    pub(super) span: Span,
}

#[derive(Debug)]
pub(super) enum Statement {
    /// Declarations and connections: `a, b :: C`, `a -> b [1] -> C(x)`.
    Chain(Chain),
    /// `elementclass Name { ... }` and `elementclass Name Other`.
    Class { name: Name, definition: ClassDefinition },
    /// `define($x value, ...)`: names without the `$`.
    Define(Vec<(Name, String)>),
    /// `require(...)`, except for libraries.
    Require(Requirement),
    /// The statements of a library file that `require(library ...)` brought in.
    Library(Vec<Statement>),
}

/// What a configuration needs from the program that runs it: `require(package x)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// `package`, `compact_config`.
    pub kind: String,
    /// The name of the package; empty for `compact_config`.
    pub value: String,
}

#[derive(Debug)]
pub(super) enum ClassDefinition {
    Synonym(Name),
    Compound(Compound),
    /// It could not be read; the name stands for a class of which nothing is known.
    Broken,
}

/// `{ ... || ... || ... }`.
#[derive(Debug)]
pub(super) struct Compound {
    pub(super) alternatives: Vec<Alternative>,
    /// The `...` that makes this an extension of an older class.
    pub(super) extends: Option<Span>,
}

/// One of the definitions of a compound element.
#[derive(Debug)]
pub(super) struct Alternative {
    pub(super) formals: Vec<Formal>,
    pub(super) statements: Vec<Statement>,
    pub(super) span: Span,
}

/// A parameter of a compound element: `$x`, `KEYWORD $x`, `__REST__ $x`.
#[derive(Debug, Clone)]
pub(super) struct Formal {
    pub(super) name: Name,
    /// Empty for a positional parameter.
    pub(super) keyword: String,
}

#[derive(Debug)]
pub(super) struct Chain {
    pub(super) stages: Vec<Stage>,
    /// Syntax errors in or before this chain may have swallowed connections.
    pub(super) broken: bool,
}

/// What stands between two arrows.
#[derive(Debug)]
pub(super) struct Stage {
    /// Whether the arrow in front of it is `=>`; meaningless for the first stage.
    pub(super) many: bool,
    pub(super) references: Vec<Reference>,
    pub(super) span: Span,
}

/// One element in a stage: `[port] name :: Class(config) [port]`.
#[derive(Debug)]
pub(super) struct Reference {
    pub(super) subject: Subject,
    pub(super) class: Option<ClassReference>,
    pub(super) config: Option<(String, Span)>,
    pub(super) inputs: Option<PortList>,
    pub(super) outputs: Option<PortList>,
    pub(super) span: Span,
}

impl Reference {
    /// Only a name, which a declaration behind a comma may give a class.
    pub(super) fn is_bare(&self) -> bool {
        matches!(self.subject, Subject::Name(_)) && self.class.is_none() && self.config.is_none()
    }
}

#[derive(Debug)]
pub(super) enum Subject {
    /// An element or, when no element is meant, a class.
    Name(String),
    /// `{ ... }`.
    Compound(Compound),
    /// `( ... )`.
    Group(Vec<Statement>),
    /// Nothing at the start of a connection inside a compound element or group: its input.
    ImplicitInput,
    /// Nothing at its end: its output.
    ImplicitOutput,
}

impl Subject {
    pub(super) fn is_implicit(&self) -> bool {
        matches!(self, Subject::ImplicitInput | Subject::ImplicitOutput)
    }
}

#[derive(Debug)]
pub(super) enum ClassReference {
    Name(Name),
    Compound(Compound),
    /// `a ::` and then no class; it has been complained about.
    Missing,
}

/// `[0]`, `[0,1]`, `[0-2]`, `[1-]`, `[]`.
#[derive(Debug, Clone)]
pub(super) struct PortList {
    /// At least one port.
    pub(super) ports: Vec<u32>,
    /// Whether the list grows upwards to fit the other side.
    pub(super) open: bool,
    pub(super) span: Span,
}

//! From tokens to the syntax tree.
//!
//! The grammar is that of click(5), "BNF grammar". Nothing here depends on what a name means. After a syntax error the
//! parser goes on behind the offending token, as Click does; chains that may have lost connections by it are marked as
//! broken, so that nobody complains about ports which only look unused.

mod definitions;

use super::ast::{Chain, ClassReference, Name, PortList, Reference, Stage, Statement, Subject};
use super::diagnostics::printable;
use super::lexer::{Kind, Lexer, SourceFile, Span, Token};
use super::report::{Entered, Report};
use super::{Library, Source};

/// How deep compound elements and groups may be nested in the text.
const MAX_NESTING: usize = 64;
/// Port numbers are below this; no machine has room for the ports of an element that uses more.
const MAX_PORTS: u32 = 16_384;
/// Ports that all lists of a file may name; ranges would let a short text take all memory.
const MAX_LISTED_PORTS: usize = 4_000_000;
/// Longest file, in bytes.
const MAX_FILE: usize = 1 << 30;
/// Library files that one configuration may draw in.
const MAX_LIBRARIES: usize = 256;

/// The syntax trees of a configuration and its libraries, and the files they came from.
pub(super) struct Parsed {
    pub(super) statements: Vec<Statement>,
    pub(super) files: Vec<SourceFile>,
    /// The text was too deeply nested to be read to its end.
    pub(super) gave_up: bool,
}

/// Reads a configuration and the libraries that it requires.
pub(super) fn parse(source: &Source, library: &dyn Library, report: &mut Report) -> Parsed {
    let mut reading = Reading { files: Vec::new(), library, report, gave_up: false };
    let statements = reading.file(&source.name, &source.text, 0);
    Parsed { statements, files: reading.files, gave_up: reading.gave_up }
}

/// What the parsers of all files of a configuration share.
struct Reading<'r> {
    files: Vec<SourceFile>,
    library: &'r dyn Library,
    report: &'r mut Report,
    gave_up: bool,
}

impl Reading<'_> {
    fn file(&mut self, name: &str, text: &str, depth: usize) -> Vec<Statement> {
        let index = self.files.len() as u16;
        let text = if text.len() <= MAX_FILE {
            text
        } else {
            self.report.global_error(format!("{name}: file too large; at most {MAX_FILE} bytes can be read"));
            ""
        };
        self.files.push(SourceFile::new(name, text.to_string()));
        // The parser borrows the text while libraries may be added to the files, hence a copy of its own.
        let mut parser = Parser {
            lexer: Lexer::new(index, name, text),
            token: Token { kind: Kind::End, text: "", span: Span::default() },
            reading: self,
            library_depth: depth,
            nesting: 0,
            broken: false,
            last_error_line: None,
            ports_left: MAX_LISTED_PORTS,
            ends_in_output: true,
        };
        parser.advance();
        let statements = parser.statements(Closer::File, Span::default());
        let (directives, bad, open_comment) = parser.lexer.finish();
        if let Some(begin) = open_comment {
            let entered = self.report.error(begin, "the comment that begins here is not closed");
            self.report.help(entered, "expected '*/' behind it");
        }
        for span in bad {
            let entered = self.report.error(span, "unknown preprocessor directive");
            self.report
                .help(entered, "'#' at the start of a line is for line directives: # 100 \"file.click\"");
        }
        self.files[usize::from(index)].set_directives(directives);
        statements
    }
}

/// What ends a list of statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closer {
    File,
    Compound,
    Group,
}

struct Parser<'s, 'r, 'l> {
    lexer: Lexer<'s>,
    /// The token that is looked at; the lexer stands behind it.
    token: Token<'s>,
    reading: &'r mut Reading<'l>,
    library_depth: usize,
    nesting: usize,
    /// A syntax error happened since the last `;`.
    broken: bool,
    /// Line of the last syntax error: one complaint a line is enough.
    last_error_line: Option<usize>,
    /// Ports that lists may still name, in all.
    ports_left: usize,
    /// The last chain at this level ended in `output`, or there was none.
    ends_in_output: bool,
}

impl<'s> Parser<'s, '_, '_> {
    fn advance(&mut self) -> Token<'s> {
        let old = self.token;
        self.token = self.lexer.next();
        old
    }

    fn at(&self, kind: Kind) -> bool {
        self.token.kind == kind
    }

    fn eat(&mut self, kind: Kind) -> bool {
        let found = self.at(kind);
        if found {
            self.advance();
        }
        found
    }

    fn at_arrow(&self) -> bool {
        matches!(self.token.kind, Kind::Arrow | Kind::DoubleArrow)
    }

    /// Reports a syntax error, unless there was one on the same line.
    fn syntax_error(&mut self, span: Span, message: String, help: Option<&str>) -> Option<Entered> {
        self.broken = true;
        let line = self.reading.files[usize::from(span.file)].physical_line(span.start);
        if self.last_error_line == Some(line) {
            return None;
        }
        self.last_error_line = Some(line);
        let entered = self.reading.report.error(span, message);
        if let Some(help) = help {
            self.reading.report.help(entered, help);
        }
        Some(entered)
    }

    fn near(&mut self, token: Token<'_>, help: Option<&str>) {
        let message = match token.kind {
            Kind::End => "syntax error near end of file".to_string(),
            Kind::Variable => format!("syntax error near '${}'", printable(token.text)),
            _ => format!("syntax error near '{}'", printable(token.text)),
        };
        self.syntax_error(token.span, message, help);
    }

    /// Takes the `)` of the configuration string that begins at `config`.
    fn end_config(&mut self, config: Span) {
        if self.eat(Kind::Symbol(')')) {
            return;
        }
        let entered = self.syntax_error(self.token.span, "expected ')'".to_string(), None);
        if let (Some(entered), true) = (entered, config.start > 0) {
            let open = Span { start: config.start - 1, length: 1, ..config };
            self.reading.report.note(entered, open, "for the configuration string that begins here");
        }
    }

    fn statements(&mut self, closer: Closer, open: Span) -> Vec<Statement> {
        let mut all = Vec::new();
        loop {
            match self.token.kind {
                Kind::Identifier | Kind::Arrow | Kind::DoubleArrow | Kind::Symbol('[' | '{' | '(') => {
                    if let Some(chain) = self.chain(closer != Closer::File || self.nesting > 0) {
                        all.push(Statement::Chain(chain));
                    }
                }
                Kind::ElementClass => all.extend(self.element_class()),
                Kind::Require | Kind::Provide => self.require(&mut all),
                Kind::Define => all.extend(self.define()),
                Kind::Symbol(';') => {
                    self.advance();
                    self.broken = false;
                }
                Kind::Symbol('}') | Kind::DoubleBar if closer == Closer::Compound => return all,
                Kind::Symbol(')') if closer == Closer::Group => return all,
                Kind::Symbol('}') | Kind::DoubleBar if closer == Closer::Group => {
                    let message = format!("expected ')' before '{}'", self.token.text);
                    self.syntax_error(self.token.span, message, Some("close the element group first"));
                    return all;
                }
                Kind::End => {
                    match closer {
                        Closer::File => {}
                        Closer::Compound => self.end_too_early("expected '}'", open),
                        Closer::Group => self.end_too_early("expected ')'", open),
                    }
                    return all;
                }
                _ => {
                    let token = self.advance();
                    let help = match token.kind {
                        Kind::Symbol('}') => Some("there is no '{' that this '}' closes"),
                        Kind::Symbol(')') => Some("there is no '(' that this ')' closes"),
                        _ => None,
                    };
                    self.near(token, help);
                }
            }
        }
    }

    fn end_too_early(&mut self, message: &str, open: Span) {
        if self.reading.gave_up {
            return;
        }
        if let Some(entered) = self.syntax_error(self.token.span, message.to_string(), None) {
            self.reading.report.note(entered, open, "for what begins here");
        }
    }

    /// Whether something nested may begin here; if not, the rest of the file is left unread.
    fn enter(&mut self, what: &str) -> bool {
        if self.nesting >= MAX_NESTING {
            if !self.reading.gave_up {
                let message = format!("maximum {what} nesting depth exceeded");
                let entered = self.reading.report.error(self.token.span, message);
                self.reading.report.help(entered, format!("nest at most {MAX_NESTING} deep"));
            }
            self.reading.gave_up = true;
            self.lexer.stop();
            self.advance();
            return false;
        }
        self.nesting += 1;
        true
    }

    fn chain(&mut self, nested: bool) -> Option<Chain> {
        let was_broken = self.broken;
        let mut stages: Vec<Stage> = Vec::new();
        let mut many = false;
        let mut ended = false;
        loop {
            let start = self.token.span;
            let (references, complete) = self.references(stages.is_empty(), nested);
            if !references.is_empty() {
                let end = references.last().map_or(start, |r| r.span);
                let length = (end.start + end.length).saturating_sub(start.start);
                stages.push(Stage { many, references, span: Span { length, ..start } });
            }
            if !complete {
                break;
            }
            while matches!(self.token.kind, Kind::Symbol(',') | Kind::DoubleColon) {
                let token = self.advance();
                self.near(token, None);
            }
            match self.token.kind {
                Kind::Arrow | Kind::DoubleArrow => many = self.advance().kind == Kind::DoubleArrow,
                Kind::Symbol(';') => {
                    self.advance();
                    ended = true;
                    break;
                }
                Kind::Identifier
                | Kind::Symbol('{' | '}' | '[' | ')')
                | Kind::DoubleBar
                | Kind::ElementClass
                | Kind::Require
                | Kind::Provide
                | Kind::Define
                | Kind::End => break,
                _ => {
                    let token = self.advance();
                    let help = (token.kind == Kind::Symbol('('))
                        .then_some("end the statement before an element group with ';'");
                    self.near(token, help);
                    break;
                }
            }
        }
        let broken = self.broken || was_broken;
        self.broken &= !ended;
        self.ends_in_output = stages.last().is_some_and(|last| match &last.references[..] {
            [only] => match &only.subject {
                Subject::ImplicitOutput => true,
                Subject::Name(name) => name == "output" && only.class.is_none(),
                _ => false,
            },
            _ => false,
        });
        (!stages.is_empty()).then_some(Chain { stages, broken })
    }

    /// The elements between two arrows; false when the chain cannot go on behind them.
    fn references(&mut self, first_stage: bool, nested: bool) -> (Vec<Reference>, bool) {
        let mut all: Vec<Reference> = Vec::new();
        loop {
            match self.reference(first_stage, nested, all.is_empty()) {
                Some(reference) => all.push(reference),
                None if all.is_empty() => return (all, false),
                None => {}
            }
            if !self.eat(Kind::Symbol(',')) {
                break;
            }
        }
        let implicit = all.iter().find(|r| r.subject.is_implicit());
        if let Some(implicit) = implicit.filter(|_| !first_stage && self.at_arrow()) {
            let message = "implicit ports used in the middle of a chain".to_string();
            self.syntax_error(implicit.span, message, Some("name an element between the two arrows"));
        }
        (all, true)
    }

    /// One element with its ports. `None` when there is no element here.
    fn reference(&mut self, first_stage: bool, nested: bool, first_in_stage: bool) -> Option<Reference> {
        let start = self.token.span;
        let mut inputs = self.ports();
        let mut outputs = None;
        let mut span = self.token.span;
        let subject = match self.token.kind {
            Kind::Identifier => Subject::Name(self.advance().text.to_string()),
            Kind::Symbol('{') => Subject::Compound(self.compound()?),
            Kind::Symbol('(') => Subject::Group(self.group()?),
            _ => {
                span = start;
                let subject = self.implicit(first_stage, nested, first_in_stage, inputs.is_some(), start)?;
                if matches!(subject, Subject::ImplicitInput) {
                    // `[0] ->`: the port is an output port of `input`.
                    std::mem::swap(&mut inputs, &mut outputs);
                }
                subject
            }
        };
        let mut reference = Reference { subject, class: None, config: None, inputs, outputs, span };
        if reference.subject.is_implicit() {
            return Some(reference);
        }
        if self.eat(Kind::DoubleColon) {
            reference.class = Some(self.class_reference());
        }
        if self.at(Kind::Symbol('(')) {
            let (text, config_span) = self.lexer.config();
            self.advance();
            self.end_config(config_span);
            reference.config = Some((text, config_span));
        }
        if self.at(Kind::Symbol('[')) {
            reference.outputs = self.ports();
        }
        Some(reference)
    }

    fn class_reference(&mut self) -> ClassReference {
        match self.token.kind {
            Kind::Identifier => {
                let token = self.advance();
                ClassReference::Name(Name { text: token.text.to_string(), span: token.span })
            }
            Kind::Symbol('{') => match self.compound() {
                Some(compound) => ClassReference::Compound(compound),
                None => ClassReference::Missing,
            },
            _ => {
                let message = "missing element type in declaration".to_string();
                self.syntax_error(self.token.span, message, Some("write the element's class behind '::'"));
                ClassReference::Missing
            }
        }
    }

    /// Inside compound elements and groups, nothing before the first arrow is the input and nothing behind the last one
    /// the output.
    fn implicit(
        &mut self,
        first_stage: bool,
        nested: bool,
        first_in_stage: bool,
        ports: bool,
        start: Span,
    ) -> Option<Subject> {
        let meant = nested
            && match self.token.kind {
                Kind::Arrow | Kind::DoubleArrow => first_stage && (ports || first_in_stage),
                Kind::Symbol(',') => ports,
                Kind::DoubleColon => false,
                _ => !first_stage && (ports || first_in_stage),
            };
        if meant {
            if self.at_arrow() && !ports && !self.ends_in_output {
                let arrow = self.token.text;
                let message = format!("suggest 'input {arrow}' or '[0] {arrow}' to start connection");
                self.reading.report.warning(self.token.span, message);
            }
            return Some(if first_stage { Subject::ImplicitInput } else { Subject::ImplicitOutput });
        }
        if ports {
            self.syntax_error(
                start,
                "stranded port ignored".to_string(),
                Some("a port list belongs to an element"),
            );
        } else if first_in_stage {
            let token = self.token;
            let help = if first_stage && self.at_arrow() {
                Some("a connection starts with an element: element -> element")
            } else if !first_stage {
                Some("an element must follow the arrow")
            } else {
                None
            };
            self.near(token, help);
            // What can begin or end a statement is looked at again.
            let keep = matches!(
                token.kind,
                Kind::End
                    | Kind::Symbol(';' | '}' | ')')
                    | Kind::DoubleBar
                    | Kind::ElementClass
                    | Kind::Require
                    | Kind::Provide
                    | Kind::Define
            );
            if !keep {
                self.advance();
            }
        } else {
            let token = self.token;
            self.near(token, Some("an element must follow the ','"));
        }
        None
    }

    /// A port list, if there is one.
    fn ports(&mut self) -> Option<PortList> {
        let open_bracket = self.token.span;
        if !self.eat(Kind::Symbol('[')) {
            return None;
        }
        let mut list = PortList { ports: Vec::new(), open: false, span: open_bracket };
        let mut dash = false;
        loop {
            match self.token.kind {
                Kind::Identifier => {
                    let token = self.advance();
                    let port = self.port_number(token);
                    match list.ports.last() {
                        Some(&last) if dash => list.ports.extend(last + 1..=port),
                        _ => list.ports.push(port),
                    }
                }
                Kind::Symbol(']') => {
                    list.open = true;
                    break;
                }
                _ => {
                    let message = "syntax error: expected port number".to_string();
                    self.syntax_error(
                        self.token.span,
                        message,
                        Some("port lists look like [0], [0,1], [0-2] or [1-]"),
                    );
                    return self.end_ports(list);
                }
            }
            match self.token.kind {
                Kind::Symbol(']') => break,
                Kind::Symbol('-') if !dash => dash = true,
                Kind::Symbol(',') => dash = false,
                _ => {
                    let message = "syntax error: expected ',' or ']'".to_string();
                    self.syntax_error(
                        self.token.span,
                        message,
                        Some("port lists look like [0], [0,1], [0-2] or [1-]"),
                    );
                    return self.end_ports(list);
                }
            }
            self.advance();
            if list.ports.len() > MAX_PORTS as usize || list.ports.len() > self.ports_left {
                self.syntax_error(open_bracket, "port list is too long".to_string(), None);
                list.ports.truncate(1);
                return self.end_ports(list);
            }
        }
        let end = self.advance().span;
        list.span.length = (end.start + end.length).saturating_sub(open_bracket.start);
        self.end_ports(list)
    }

    fn end_ports(&mut self, mut list: PortList) -> Option<PortList> {
        if list.ports.is_empty() {
            list.ports.push(0);
        }
        self.ports_left = self.ports_left.saturating_sub(list.ports.len());
        Some(list)
    }

    fn port_number(&mut self, token: Token<'_>) -> u32 {
        let text = token.text;
        let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(hex) => u64::from_str_radix(hex, 16),
            None if text.len() > 1 && text.starts_with('0') => u64::from_str_radix(text, 8),
            None => text.parse(),
        };
        match parsed {
            Ok(port) if port < u64::from(MAX_PORTS) => port as u32,
            Ok(_) => {
                let entered = self.reading.report.error(token.span, format!("port number {text} too large"));
                self.reading.report.help(entered, format!("port numbers are at most {}", MAX_PORTS - 1));
                self.broken = true;
                0
            }
            Err(_) => {
                let message = "syntax error: port number should be integer".to_string();
                self.syntax_error(token.span, message, None);
                0
            }
        }
    }
}

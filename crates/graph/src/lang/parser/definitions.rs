//! Groups, compound elements, and the statements with a keyword: `elementclass`, `define`, `require`.

use super::super::arguments::{next_word, split_arguments, split_words, unquote};
use super::super::ast::{Alternative, ClassDefinition, Compound, Formal, Name, Requirement, Statement};
use super::super::diagnostics::printable;
use super::super::lexer::{Kind, Span, is_variable};
use super::{Closer, MAX_LIBRARIES, MAX_NESTING, Parser};

impl Parser<'_, '_, '_> {
    pub(super) fn group(&mut self) -> Option<Vec<Statement>> {
        if !self.enter("element group") {
            return None;
        }
        let open = self.advance().span;
        let statements = self.nested_statements(Closer::Group, open);
        self.nesting -= 1;
        self.eat(Kind::Symbol(')'));
        Some(statements)
    }

    fn nested_statements(&mut self, closer: Closer, open: Span) -> Vec<Statement> {
        let outer = std::mem::replace(&mut self.ends_in_output, true);
        let statements = self.statements(closer, open);
        self.ends_in_output = outer;
        statements
    }

    /// `{ ... || ... }`, from the `{`.
    pub(super) fn compound(&mut self) -> Option<Compound> {
        if !self.enter("compound element") {
            return None;
        }
        let mut compound = Compound { alternatives: Vec::new(), extends: None };
        let open = self.advance().span;
        let mut span = open;
        loop {
            if self.at(Kind::Ellipsis) {
                let dots = self.advance().span;
                compound.extends = Some(dots);
                if compound.alternatives.is_empty() || !self.at(Kind::Symbol('}')) {
                    let message = "'...' should occur last, after one or more compounds".to_string();
                    self.syntax_error(dots, message, Some("{ ... new definition ... || ... }"));
                }
                if self.eat(Kind::Symbol('}')) {
                    break;
                }
            }
            let formals = self.formals();
            let statements = self.nested_statements(Closer::Compound, open);
            compound.alternatives.push(Alternative { formals, statements, span });
            if self.at(Kind::DoubleBar) {
                span = self.advance().span;
                if self.at(Kind::Ellipsis) {
                    continue;
                }
            } else {
                self.eat(Kind::Symbol('}'));
                break;
            }
        }
        self.nesting -= 1;
        Some(compound)
    }

    /// `$a, KEYWORD $b |`, if the compound starts with it.
    fn formals(&mut self) -> Vec<Formal> {
        let mut all: Vec<Formal> = Vec::new();
        let mut order_reported = false;
        loop {
            let kind = self.token.kind;
            let keyword = match kind {
                Kind::Variable => String::new(),
                Kind::Identifier if self.variable_follows() => self.advance().text.to_string(),
                Kind::Symbol('|') => {
                    self.advance();
                    return all;
                }
                _ => {
                    if !all.is_empty() {
                        self.syntax_error(self.token.span, "expected variable".to_string(), None);
                    }
                    return all;
                }
            };
            let token = self.advance();
            let name = Name { text: token.text.to_string(), span: token.span };
            self.check_formal(&all, &name, &keyword, &mut order_reported);
            if all.iter().all(|f| f.name.text != name.text) {
                all.push(Formal { name, keyword });
            }
            if self.eat(Kind::Symbol('|')) {
                return all;
            }
            if !self.eat(Kind::Symbol(',')) {
                self.syntax_error(
                    self.token.span,
                    "expected ',' or '|'".to_string(),
                    Some("{ $a, KEYWORD $b | ... }"),
                );
                return all;
            }
        }
    }

    fn variable_follows(&mut self) -> bool {
        let position = self.lexer.position();
        let found = self.lexer.next().kind == Kind::Variable;
        self.lexer.rewind(position);
        found
    }

    fn check_formal(&mut self, before: &[Formal], name: &Name, keyword: &str, order_reported: &mut bool) {
        let report = &mut *self.reading.report;
        if let Some(first) = before.iter().find(|f| f.name.text == name.text) {
            let entered = report.error(name.span, format!("parameter '${}' multiply defined", name.text));
            report.note(entered, first.name.span, format!("'${}' previously defined here", name.text));
            return;
        }
        if !keyword.is_empty() && before.iter().any(|f| f.keyword == keyword) {
            report.error(name.span, format!("repeated keyword parameter '{keyword}' in compound element"));
        }
        let Some(last) = before.last() else { return };
        let wrong = last.keyword == "__REST__" || (keyword.is_empty() && !last.keyword.is_empty());
        if wrong && !*order_reported {
            *order_reported = true;
            let entered = report.error(name.span, "compound element parameters out of order");
            report.help(entered, "the correct order is '[positional], [keywords], [__REST__]'");
        }
    }

    pub(super) fn element_class(&mut self) -> Option<Statement> {
        self.advance();
        let mut name = Name { text: String::new(), span: self.token.span };
        if self.at(Kind::Identifier) {
            name.text = self.advance().text.to_string();
        } else {
            let help = Some("elementclass Name { ... }");
            self.syntax_error(self.token.span, "expected element type name".to_string(), help);
        }
        let definition = match self.token.kind {
            Kind::Symbol('{') => match self.compound() {
                Some(compound) => ClassDefinition::Compound(compound),
                None => ClassDefinition::Broken,
            },
            Kind::Identifier => {
                let token = self.advance();
                ClassDefinition::Synonym(Name { text: token.text.to_string(), span: token.span })
            }
            _ => {
                let token = self.token;
                self.near(token, Some("elementclass Name { ... } or elementclass Name OtherName"));
                ClassDefinition::Broken
            }
        };
        (!name.text.is_empty()).then_some(Statement::Class { name, definition })
    }

    /// `(config)` behind a keyword.
    fn keyword_config(&mut self) -> Option<(String, Span)> {
        if !self.at(Kind::Symbol('(')) {
            self.syntax_error(self.token.span, "expected '('".to_string(), None);
            return None;
        }
        let config = self.lexer.config();
        self.advance();
        self.end_config(config.1);
        Some(config)
    }

    pub(super) fn define(&mut self) -> Option<Statement> {
        self.advance();
        let (config, span) = self.keyword_config()?;
        let mut definitions = Vec::new();
        for argument in split_arguments(&config) {
            if argument.is_empty() {
                continue;
            }
            let (variable, value) = next_word(&argument);
            match variable.strip_prefix('$') {
                Some(name) if !name.is_empty() && name.bytes().all(is_variable) => {
                    let found = config.find(variable).unwrap_or(0) as u32;
                    let span = Span { start: span.start + found, length: variable.len() as u32, ..span };
                    definitions.push((Name { text: name.to_string(), span }, value.to_string()));
                }
                _ => {
                    let message = "bad 'define' declaration: not a variable";
                    let entered = self.reading.report.error(span, message);
                    self.reading.report.help(entered, "define($NAME value, $NAME2 value2)");
                }
            }
        }
        Some(Statement::Define(definitions))
    }

    pub(super) fn require(&mut self, all: &mut Vec<Statement>) {
        let provide = self.advance().kind == Kind::Provide;
        let Some((config, span)) = self.keyword_config() else { return };
        self.eat(Kind::Symbol(';'));
        if provide {
            // It tells linking tools what a package brings along; a running configuration has no use for it.
            return;
        }
        for argument in split_arguments(&config) {
            let words: Vec<String> = split_words(&argument).iter().map(|w| unquote(w)).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let (kind, value) = match words[..] {
                [] => continue,
                ["compact_config"] => ("compact_config", ""),
                ["package" | "library"] => ("", ""),
                [package] => ("package", package),
                ["package", value] => ("package", value),
                ["library", value] => {
                    all.extend(self.library(value, span));
                    continue;
                }
                _ => ("", ""),
            };
            if kind.is_empty() {
                let entered = self.reading.report.error(span, "syntax error at requirement");
                self.reading.report.help(entered, "require(package NAME) or require(library FILE)");
                continue;
            }
            all.push(Statement::Require(Requirement { kind: kind.to_string(), value: value.to_string() }));
        }
    }

    /// The statements of a library file; each file is read once.
    fn library(&mut self, name: &str, span: Span) -> Option<Statement> {
        if self.nesting > 0 {
            self.reading.report.error(span, "'require library' must be used at file scope");
            return None;
        }
        let from = self.reading.files[usize::from(span.file)].name().to_string();
        let Some(source) = self.reading.library.open(name, &from) else {
            let message = format!("library '{}' not found in CLICKPATH/conf", printable(name));
            let entered = self.reading.report.error(span, message);
            self.reading.report.help(entered, "set CLICKPATH, or put the file beside the configuration");
            return None;
        };
        if self.reading.files.iter().any(|f| f.name() == source.name) {
            return None;
        }
        if self.reading.files.len() >= MAX_LIBRARIES || self.library_depth >= MAX_NESTING {
            self.reading
                .report
                .error(span, format!("too many libraries, at most {MAX_LIBRARIES} can be used"));
            return None;
        }
        let depth = self.library_depth + 1;
        Some(Statement::Library(self.reading.file(&source.name, &source.text, depth)))
    }
}

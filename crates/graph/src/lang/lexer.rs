//! Tokens of the Click language, and where in which file each of them stands.
//!
//! Whether a `(` opens a configuration string or an element group is for the parser to know, so tokens are made on
//! demand: [`Lexer::next`] gives a token and [`Lexer::config`] takes the raw text up to the matching `)`.
//! Line directives are collected on the way and make the [`SourceFile`] that turns byte positions into locations.

use std::sync::Arc;

use super::arguments::unquote;
use super::diagnostics::Location;

/// Longest source line that is shown with a message, in bytes.
const LONGEST_EXCERPT: usize = 400;

/// A piece of text in one of the source files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Span {
    /// Index of the source file.
    pub(super) file: u16,
    /// First byte.
    pub(super) start: u32,
    /// Bytes.
    pub(super) length: u32,
}

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    End,
    Identifier,
    Variable,
    Arrow,
    DoubleArrow,
    DoubleColon,
    DoubleBar,
    Ellipsis,
    ElementClass,
    Require,
    Provide,
    Define,
    Symbol(char),
}

/// One token; `text` is the source text, of a variable without the `$`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Token<'s> {
    pub(super) kind: Kind,
    pub(super) text: &'s str,
    pub(super) span: Span,
}

/// Where a line directive took hold.
#[derive(Debug, Clone)]
struct Directive {
    /// Byte position of the `#`.
    position: u32,
    /// Physical line of the directive, counted from 0.
    physical_line: u32,
    /// File name from there on.
    file: Arc<str>,
    /// Line number of the line after the directive.
    next_line: u32,
}

/// A source file that has been read, and its line numbers.
#[derive(Debug)]
pub(super) struct SourceFile {
    name: Arc<str>,
    text: String,
    line_starts: Vec<u32>,
    directives: Vec<Directive>,
}

impl SourceFile {
    pub(super) fn new(name: &str, text: String) -> Self {
        let line_starts = line_starts(&text);
        SourceFile { name: name.into(), text, line_starts, directives: Vec::new() }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Takes over what the lexer learned about line numbers.
    pub(super) fn set_directives(&mut self, directives: Directives) {
        self.directives = directives.0;
    }

    /// The line of a position, counted from 0, whatever line directives say.
    pub(super) fn physical_line(&self, position: u32) -> usize {
        self.line_starts.partition_point(|&start| start <= position).saturating_sub(1)
    }

    /// The user's view of a position.
    pub(super) fn location(&self, span: Span) -> Location {
        let line = self.physical_line(span.start);
        let column = span.start - self.line_starts[line] + 1;
        let before = self.directives.partition_point(|d| d.position < span.start);
        let (file, number) = match before.checked_sub(1).map(|i| &self.directives[i]) {
            Some(directive) => {
                let since = (line as u32).saturating_sub(directive.physical_line + 1);
                (directive.file.clone(), directive.next_line.saturating_add(since))
            }
            None => (self.name.clone(), line as u32 + 1),
        };
        let end = self.line_starts.get(line + 1).copied().unwrap_or(self.text.len() as u32);
        let length = span.length.min(end.saturating_sub(span.start));
        Location { file, line: number, column, length }
    }

    /// The source line that holds a position, unless it is too long to be shown or empty.
    pub(super) fn excerpt(&self, span: Span) -> Option<String> {
        let line = self.physical_line(span.start);
        let start = self.line_starts[line] as usize;
        let end = self.line_starts.get(line + 1).map_or(self.text.len(), |&e| e as usize);
        let text = self.text.get(start..end)?.trim_end();
        (!text.is_empty() && text.len() <= LONGEST_EXCERPT).then(|| text.to_string())
    }
}

/// Line directives of one file, in order.
#[derive(Debug, Default)]
pub(super) struct Directives(Vec<Directive>);

fn line_starts(text: &str) -> Vec<u32> {
    let bytes = text.as_bytes();
    let mut starts = vec![0];
    let mut at = 0;
    while at < bytes.len() {
        let width = newline(bytes, at);
        at += width.max(1);
        if width > 0 {
            starts.push(at as u32);
        }
    }
    starts
}

/// Bytes of the line end at `at`, 0 when there is none. `\n`, `\r\n` and a lone `\r` all end a line.
fn newline(bytes: &[u8], at: usize) -> usize {
    match bytes.get(at) {
        Some(b'\n') => 1,
        Some(b'\r') if bytes.get(at + 1) == Some(&b'\n') => 2,
        Some(b'\r') => 1,
        _ => 0,
    }
}

/// Makes tokens of a text.
pub(super) struct Lexer<'s> {
    text: &'s str,
    bytes: &'s [u8],
    file: u16,
    original_name: Arc<str>,
    position: usize,
    directives: Directives,
    /// Directives that could not be read.
    bad_directives: Vec<Span>,
    /// Directives before this position have been seen: the parser may look ahead and come back.
    directives_seen: usize,
    /// The beginning of a comment that is not closed.
    open_comment: Option<Span>,
}

impl<'s> Lexer<'s> {
    pub(super) fn new(file: u16, name: &str, text: &'s str) -> Self {
        Lexer {
            text,
            bytes: text.as_bytes(),
            file,
            original_name: name.into(),
            position: 0,
            directives: Directives::default(),
            bad_directives: Vec::new(),
            directives_seen: 0,
            open_comment: None,
        }
    }

    /// The line directives, once everything has been read, those that made no sense, and a comment that is not closed.
    pub(super) fn finish(self) -> (Directives, Vec<Span>, Option<Span>) {
        (self.directives, self.bad_directives, self.open_comment)
    }

    /// Byte position behind the last token.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// Goes back to a position that [`Lexer::position`] gave.
    pub(super) fn rewind(&mut self, position: usize) {
        self.position = position;
    }

    /// Ignores the rest of the text.
    pub(super) fn stop(&mut self) {
        self.position = self.bytes.len();
    }

    fn byte(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(0)
    }

    fn span(&self, start: usize, end: usize) -> Span {
        Span { file: self.file, start: start as u32, length: (end - start) as u32 }
    }

    fn at_line_start(&self, at: usize) -> bool {
        at == 0 || matches!(self.bytes[at - 1], b'\n' | b'\r')
    }

    /// The next token.
    pub(super) fn next(&mut self) -> Token<'s> {
        let start = self.skip_space(self.position);
        let (kind, text_start, end) = self.scan(start);
        self.position = end;
        Token { kind, text: &self.text[text_start..end], span: self.span(start, end) }
    }

    fn skip_space(&mut self, mut at: usize) -> usize {
        loop {
            while is_space(self.byte(at)) && at < self.bytes.len() {
                at += 1;
            }
            match (self.byte(at), self.byte(at + 1)) {
                (b'/', mark @ (b'/' | b'*')) => {
                    let end = skip_comment(self.bytes, at);
                    if mark == b'*' && !(end >= at + 4 && self.text[at..end].ends_with("*/")) {
                        self.open_comment = Some(self.span(at, at + 2));
                    }
                    at = end;
                }
                (b'#', _) if self.at_line_start(at) => at = self.directive(at),
                _ => return at,
            }
        }
    }

    fn scan(&self, start: usize) -> (Kind, usize, usize) {
        let Some(first) = self.text[start..].chars().next() else {
            return (Kind::End, start, start);
        };
        if is_word(self.byte(start)) {
            let mut end = start;
            loop {
                while is_word(self.byte(end)) {
                    end += 1;
                }
                if self.byte(end) == b'/' && is_word(self.byte(end + 1)) {
                    end += 1;
                } else {
                    break;
                }
            }
            let kind = match &self.text[start..end] {
                "elementclass" => Kind::ElementClass,
                "require" => Kind::Require,
                "provide" => Kind::Provide,
                "define" => Kind::Define,
                _ => Kind::Identifier,
            };
            return (kind, start, end);
        }
        if first == '$' {
            let mut end = start + 1;
            while is_variable(self.byte(end)) {
                end += 1;
            }
            return (Kind::Variable, start + 1, end);
        }
        let rest = &self.text[start..];
        let long = [
            ("...", Kind::Ellipsis),
            ("->", Kind::Arrow),
            ("=>", Kind::DoubleArrow),
            ("::", Kind::DoubleColon),
            ("||", Kind::DoubleBar),
        ];
        for (text, kind) in long {
            if rest.starts_with(text) {
                return (kind, start, start + text.len());
            }
        }
        (Kind::Symbol(first), start, start + first.len_utf8())
    }

    /// The configuration string from here to the `)` that closes it, which is left for the next token. Line directives
    /// hold in it and are taken out of it; everything else stays as it is.
    pub(super) fn config(&mut self) -> (String, Span) {
        let start = self.position;
        let mut kept_from = start;
        let mut text = String::new();
        let mut depth = 1u32;
        let mut at = start;
        while at < self.bytes.len() {
            match self.bytes[at] {
                b'(' => depth += 1,
                b')' => {
                    depth -= 1;
                    if depth == 0 {
                        break;
                    }
                }
                b'#' if self.at_line_start(at) => {
                    text.push_str(&self.text[kept_from..at]);
                    at = self.directive(at);
                    kept_from = at;
                    continue;
                }
                b'/' if matches!(self.byte(at + 1), b'/' | b'*') => {
                    at = skip_comment(self.bytes, at);
                    continue;
                }
                b'\'' | b'"' => {
                    at = skip_quoted(self.bytes, at);
                    continue;
                }
                b'\\' if self.byte(at + 1) == b'<' => {
                    at = skip_hex(self.bytes, at);
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
        let at = at.min(self.bytes.len());
        text.push_str(&self.text[kept_from..at]);
        self.position = at;
        (text, self.span(start, at))
    }

    /// Reads `# LINE "FILE"` or `#line LINE "FILE"` and returns the position of the line's end.
    fn directive(&mut self, start: usize) -> usize {
        let mut end = start;
        while end < self.bytes.len() && newline(self.bytes, end) == 0 {
            end += 1;
        }
        if start < self.directives_seen {
            return end;
        }
        self.directives_seen = end;
        let mut rest = self.text[start + 1..end].trim_matches([' ', '\t']);
        if let Some(after) = rest.strip_prefix("line").filter(|r| r.starts_with([' ', '\t'])) {
            rest = after.trim_start_matches([' ', '\t']);
        }
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            self.bad_directives.push(self.span(start, end));
            return end;
        }
        let next_line = rest[..digits].parse().unwrap_or(u32::MAX);
        let name = rest[digits..].trim_start_matches([' ', '\t']);
        let file = if name.starts_with('"') {
            let close = skip_quoted(name.as_bytes(), 0).min(name.len());
            let quoted = name.get(..close).unwrap_or(name);
            let plain = unquote(quoted);
            // An empty name means the file that is being read.
            if plain.is_empty() { self.original_name.clone() } else { Arc::from(plain.as_str()) }
        } else {
            self.directives.0.last().map_or_else(|| self.original_name.clone(), |d| d.file.clone())
        };
        let physical_line = self.count_lines(start);
        self.directives.0.push(Directive { position: start as u32, physical_line, file, next_line });
        end
    }

    /// Line ends before `to`, counted on from the last directive so that many directives stay cheap.
    fn count_lines(&self, to: usize) -> u32 {
        let (mut at, mut lines) = match self.directives.0.last() {
            Some(last) => (last.position as usize, last.physical_line),
            None => (0, 0),
        };
        while at < to {
            let width = newline(self.bytes, at);
            lines += u32::from(width > 0);
            at += width.max(1);
        }
        lines
    }
}

/// C's `isspace`.
pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'@'
}

/// Whether a byte may stand in a variable's name.
pub(super) fn is_variable(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The position behind the comment at `at`; a `//` comment includes its line end. Comments that are not closed reach to
/// the end.
pub(super) fn skip_comment(bytes: &[u8], at: usize) -> usize {
    let mut at = at + 2;
    if bytes[at - 1] == b'/' {
        while at < bytes.len() {
            let width = newline(bytes, at);
            if width > 0 {
                return at + width;
            }
            at += 1;
        }
        return bytes.len();
    }
    while at + 1 < bytes.len() {
        if bytes[at] == b'*' && bytes[at + 1] == b'/' {
            return at + 2;
        }
        at += 1;
    }
    bytes.len()
}

/// The position behind the quoted string at `at`, or the end when it is not closed.
pub(super) fn skip_quoted(bytes: &[u8], at: usize) -> usize {
    let quote = bytes[at];
    let mut at = at + 1;
    while at < bytes.len() {
        if bytes[at] == quote {
            return at + 1;
        }
        if bytes[at] == b'\\' && quote == b'"' {
            at = skip_backslash(bytes, at);
        } else {
            at += 1;
        }
    }
    bytes.len()
}

/// The position behind the escape at `at` inside double quotes.
fn skip_backslash(bytes: &[u8], at: usize) -> usize {
    match bytes.get(at + 1) {
        Some(b'<') => skip_hex(bytes, at),
        Some(b'\r') => at + 1 + newline(bytes, at + 1),
        _ => (at + 2).min(bytes.len()),
    }
}

/// The position behind the `\<...>` at `at`; comments inside may hold a `>`.
pub(super) fn skip_hex(bytes: &[u8], at: usize) -> usize {
    let mut at = at + 2;
    while at < bytes.len() {
        match (bytes[at], bytes.get(at + 1)) {
            (b'>', _) => return at + 1,
            (b'/', Some(b'/' | b'*')) => at = skip_comment(bytes, at),
            _ => at += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<(Kind, String)> {
        let mut lexer = Lexer::new(0, "t", text);
        let mut all = Vec::new();
        loop {
            let token = lexer.next();
            if token.kind == Kind::End {
                return all;
            }
            all.push((token.kind, token.text.to_string()));
        }
    }

    #[test]
    fn identifiers_hold_slashes_but_comments_end_them() {
        let all = kinds("an/identifier/with/slashes//too/many\nx/ y/*c*/z 10 a@1");
        let texts: Vec<_> = all.iter().map(|(_, t)| t.as_str()).collect();
        assert_eq!(texts, ["an/identifier/with/slashes", "x", "/", "y", "z", "10", "a@1"]);
    }

    #[test]
    fn symbols_variables_and_keywords() {
        let all: Vec<_> = kinds("a->b=>c::||...$x_1 define é").into_iter().map(|(k, _)| k).collect();
        assert_eq!(
            all,
            [
                Kind::Identifier,
                Kind::Arrow,
                Kind::Identifier,
                Kind::DoubleArrow,
                Kind::Identifier,
                Kind::DoubleColon,
                Kind::DoubleBar,
                Kind::Ellipsis,
                Kind::Variable,
                Kind::Define,
                Kind::Symbol('é')
            ]
        );
    }

    #[test]
    fn configuration_strings_end_at_the_matching_parenthesis() {
        for (text, config) in [
            ("simple string) x", "simple string"),
            ("a (b) c)", "a (b) c"),
            ("\")quoted\" paren)", "\")quoted\" paren"),
            ("')' \"\\\")\" x)", "')' \"\\\")\" x"),
            ("// end)\n still)", "// end)\n still"),
            ("/* ) */ \\ )", "/* ) */ \\ "),
            ("\\<29 /* > ) */ 2>)", "\\<29 /* > ) */ 2>"),
            ("open", "open"),
        ] {
            assert_eq!(Lexer::new(0, "t", text).config().0, config);
        }
    }

    #[test]
    fn line_directives_move_the_line_number() {
        let text = "a\n# 100 \"x.click\"\nb\n#line 7\nc\n# 3 \"\"\nd";
        let mut file = SourceFile::new("t", text.to_string());
        let mut lexer = Lexer::new(0, "t", text);
        let spans: Vec<Span> = (0..4).map(|_| lexer.next().span).collect();
        let (directives, bad, _) = lexer.finish();
        assert!(bad.is_empty());
        file.set_directives(directives);
        let at: Vec<_> = spans.into_iter().map(|s| file.location(s).to_string()).collect();
        assert_eq!(at, ["t:1", "x.click:100", "x.click:7", "t:3"]);
    }
}

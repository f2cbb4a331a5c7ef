//! The expression language of `IPClassifier`, and the rules of `IPFilter`, which are expressions
//! with an action before them.
//!
//! ```text
//! rule    ::= ACTION expr                      ACTION: allow (output 0) | deny | drop | OUTPUT
//! expr    ::= orexpr [ '?' expr ':' expr ]     '-', 'any', 'all' alone: everything; 'none': nothing
//! orexpr  ::= term { ('or' | '||') term }
//! term    ::= factor { ['and' | '&&'] factor }         one beside the other is 'and'
//! factor  ::= ('not' | '!') factor | '(' expr ')' | 'true' | 'false' | primitive
//! primitive ::= { qualifier } ['&' MASK] [ '=' '==' '!=' '<' '>' '<=' '>=' ] [VALUE]
//! ```
//!
//! | primitive | true of |
//! | --- | --- |
//! | `[SD] host ADDR`, `[SD] net ADDR/BITS`, `[SD] net ADDR mask MASK` | packets from or to there |
//! | `[SD] [tcp\|udp] port PORT` | first fragments of TCP or UDP with that port |
//! | `ip proto PROTO`, `tcp`, `udp`, `icmp`, `igmp`, `ipip`, `tcpudp` | that protocol |
//! | `ip vers\|hl\|tos\|dscp\|len\|id\|ttl N` | a field of the IP header |
//! | `ip ect`, `ip ce`, `ip frag`, `ip unfrag` | ECN-capable, congestion marked, fragments or not |
//! | `tcp opt syn\|ack\|fin\|rst\|psh\|urg`, `tcp win N`, `icmp type T` | fields of first fragments |
//! | `ip[POS:LEN] N`, `transp[POS:LEN] N`, `tcp[..]`, `udp[..]`, `icmp[..]` | up to 4 bytes in one word |
//! | `[SD] ether host ADDR` | frames from or to there |
//!
//! SD is `src`, `dst`, `src or dst` (what is meant if nothing is said), or `src and dst`. Much can
//! be left out: `host`, `net`, `port`, `opt` and the like where the value tells (`10.0.0.0/8`,
//! `www`, `syn`), and qualifiers that are the same as before (`src port 80 or 81`). Beyond Click,
//! PORT and N may be ranges, `1024-65535`.
//!
//! ```
//! use elements::decision::Program;
//! let rules = ["deny src 10.0.0.0/8", "allow tcp dst port 1024-2047 and not syn"].map(String::from);
//! let (program, _) = Program::ip_filter(&rules).unwrap();
//! let mut packet = [0u8; 40];
//! (packet[0], packet[9], packet[22], packet[33]) = (0x45, 6, 5, 0x10);
//! assert_eq!(program.run(&packet, 0, 20), Some(0));
//! packet[12] = 10;
//! assert_eq!(program.run(&packet, 0, 20), None);
//! ```

use super::expr::Expr;
use super::ip_names::{self, Names, TCP, TCP_OR_UDP, UDP};
use super::ip_primitive::{
    self as primitive, Data, Direction, Field, Header, Kind, Mask, Operator, Primitive,
};
use super::ip_words::{ether_address, integer, keyword, prefix, range, words};
use super::{Jump, Rule, excerpt};

/// How deep parentheses and `?:` may nest.
const MOST_DEPTH: usize = 100;
/// Errors reported per pattern; one mistake often makes several.
const MOST_ERRORS: usize = 8;
/// The highest output number of a rule.
const LAST_OUTPUT: u32 = 65_535;
/// Headers are at most this long as far as `ip[POS]` and `transp[POS]` go.
const LONGEST_HEADER: u32 = 8192;

type Parsed = Result<(Vec<Rule>, Vec<String>), Vec<String>>;

/// The rules of an `IPClassifier`: expression `i` leads to output `i`.
pub(super) fn parse_expressions(expressions: &[String], names: &dyn Names) -> Parsed {
    parse_all(expressions, |i, words, parser_of| {
        let mut parser = parser_of(words, names);
        let rule = Rule { expr: parser.whole(0), action: Jump::Output(i) };
        (rule, parser.errors, parser.warnings)
    })
}

/// The rules of an `IPFilter`. `outputs` is how many outputs the element has, if known.
pub(super) fn parse_rules(rules: &[String], outputs: Option<u32>, names: &dyn Names) -> Parsed {
    parse_all(rules, |_, words, parser_of| {
        let mut parser = parser_of(words, names);
        let action = match parser.word(0) {
            Some("allow") => {
                if outputs == Some(0) {
                    parser.errors.push("'allow' is meaningless, element has zero outputs".into());
                }
                Jump::Output(0)
            }
            Some("deny" | "drop") => Jump::Drop,
            Some(word) => match integer(word) {
                Some(output) if output < outputs.unwrap_or(LAST_OUTPUT + 1) => Jump::Output(output),
                Some(_) => {
                    let last = outputs.map_or(LAST_OUTPUT, |outputs| outputs.saturating_sub(1));
                    parser.errors.push(format!("slot '{word}' out of range (0-{last})"));
                    Jump::Drop
                }
                None => {
                    let word = excerpt(word);
                    parser.errors.push(format!(
                        "unknown slot ID '{word}'; a rule starts with 'allow', 'deny', 'drop' or an output number"
                    ));
                    Jump::Drop
                }
            },
            None => {
                let hint =
                    "empty pattern; a rule is 'allow', 'deny', 'drop' or an output number, and an expression";
                parser.errors.push(hint.into());
                Jump::Drop
            }
        };
        let rule = Rule { expr: parser.whole(1), action };
        (rule, parser.errors, parser.warnings)
    })
}

fn parse_all<'a>(
    texts: &[String],
    mut parse: impl FnMut(
        u32,
        Vec<String>,
        fn(Vec<String>, &'a dyn Names) -> Parser<'a>,
    ) -> (Rule, Vec<String>, Vec<String>),
) -> Parsed {
    let (mut rules, mut errors, mut warnings) = (Vec::new(), Vec::new(), Vec::new());
    for (i, text) in texts.iter().enumerate() {
        let (rule, faults, doubts) = parse(i as u32, words(text), Parser::new);
        let located = |what: String| format!("pattern {i}: {what} (in '{}')", excerpt(text));
        errors.extend(faults.into_iter().take(MOST_ERRORS).map(located));
        warnings.extend(doubts.into_iter().take(MOST_ERRORS).map(located));
        rules.push(rule);
    }
    if errors.is_empty() { Ok((rules, warnings)) } else { Err(errors) }
}

/// What a word by itself can be.
enum Meaning {
    Keyword(Kind),
    Value(Kind, u32),
    /// It is a name, but of several things or not of what is wanted.
    Unclear(String),
    Unknown,
}

struct Parser<'a> {
    words: Vec<String>,
    names: &'a dyn Names,
    /// The primitive before, whose qualifiers the next may leave out.
    previous: Primitive,
    errors: Vec<String>,
    warnings: Vec<String>,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn new(words: Vec<String>, names: &'a dyn Names) -> Self {
        let (errors, warnings) = (Vec::new(), Vec::new());
        Parser { words, names, previous: Primitive::default(), errors, warnings, depth: 0 }
    }

    fn word(&self, position: usize) -> Option<&str> {
        self.words.get(position).map(String::as_str)
    }

    fn is(&self, position: usize, wanted: &[&str]) -> bool {
        self.word(position).is_some_and(|word| wanted.contains(&word))
    }

    /// Parses all the words from `first` on.
    fn whole(&mut self, first: usize) -> Expr {
        match self.words.len().saturating_sub(first) {
            0 => return Expr::Always(true),
            1 if self.is(first, &["-", "any", "all"]) => return Expr::Always(true),
            1 if self.is(first, &["none"]) => return Expr::Always(false),
            _ => {}
        }
        let (expr, end) = self.expr(first);
        if let Some(word) = self.word(end).map(excerpt) {
            self.errors.push(format!("garbage after expression at '{word}'"));
        }
        expr
    }

    fn expr(&mut self, mut at: usize) -> (Expr, usize) {
        if self.depth == MOST_DEPTH {
            self.errors.push(format!("expression nested deeper than {MOST_DEPTH} levels"));
            return (Expr::Always(false), self.words.len());
        }
        self.depth += 1;
        let mut arms = Vec::new();
        let (mut last, end) = self.or_expr(at);
        at = end;
        while self.is(at, &["?"]) {
            let (then, end) = self.expr(at + 1);
            if end == at + 1 || !self.is(end, &[":"]) {
                self.errors.push("missing ':' in ternary expression; it stands between spaces".into());
                at = end;
                break;
            }
            let (otherwise, end) = self.or_expr(end + 1);
            arms.push((std::mem::replace(&mut last, otherwise), then));
            at = end;
        }
        self.depth -= 1;
        let expr = if arms.is_empty() { last } else { Expr::Choose(arms, Box::new(last)) };
        (expr, at)
    }

    fn or_expr(&mut self, at: usize) -> (Expr, usize) {
        let (first, mut at) = self.term(at);
        let mut parts = vec![first];
        while self.is(at, &["or", "||"]) {
            let (part, end) = self.term(at + 1);
            parts.push(part);
            at = end;
        }
        (Expr::any_of(parts), at)
    }

    fn term(&mut self, mut at: usize) -> (Expr, usize) {
        let mut parts = Vec::new();
        let mut required = true;
        loop {
            let (part, end) = self.factor(at);
            if end == at {
                if required {
                    self.errors.push("missing expression".into());
                }
                return (Expr::all_of(parts), at);
            }
            parts.push(part);
            required = self.is(end, &["and", "&&"]);
            at = if required { end + 1 } else { end };
        }
    }

    fn factor(&mut self, mut at: usize) -> (Expr, usize) {
        let start = at;
        let mut negated = false;
        while self.is(at, &["not", "!"]) {
            negated = !negated;
            at += 1;
        }
        let (expr, end) = if self.is(at, &["("]) {
            let (expr, mut end) = self.expr(at + 1);
            let empty = end == at + 1;
            if empty {
                self.errors.push("missing expression after '('".into());
            }
            if self.is(end, &[")"]) {
                end += 1;
            } else if !empty {
                self.errors.push("missing ')'".into());
            }
            (expr, end)
        } else {
            self.primitive(at)
        };
        if end == at && at > start {
            self.errors.push(format!("missing expression after '{}'", self.words[at - 1]));
        }
        (if negated { expr.not() } else { expr }, end)
    }

    /// Parses a primitive; returns `at` itself if there is none.
    fn primitive(&mut self, at: usize) -> (Expr, usize) {
        let nothing = (Expr::Always(false), at);
        match self.word(at) {
            None | Some(")" | "||" | "or" | "?" | ":") => return nothing,
            Some("true") => return (Expr::Always(true), at + 1),
            Some("false") => return (Expr::Always(false), at + 1),
            Some(_) => {}
        }
        let mut prim = Primitive::default();
        let (header, negated, mut end) = self.qualifiers(at, &mut prim);
        if end > at {
            self.previous = Primitive::default();
        }
        // Something has to follow brackets, masks and operators.
        let is_last = |parser: &Self, end: usize| end + 1 >= parser.words.len();
        if !is_last(self, end) && self.is(end, &["["]) && end > at && prim.kind.is_none() {
            end = self.brackets(end, &mut prim);
        }
        let mut mask = None;
        if !is_last(self, end) && self.is(end, &["&"]) {
            (mask, end) = self.mask(end, header);
        }
        let operator = if is_last(self, end) { None } else { self.word(end) };
        let operator = match operator {
            Some("=" | "==") => Some((Operator::Equal, false)),
            Some("!=") => Some((Operator::Equal, true)),
            Some(">") => Some((Operator::Greater, false)),
            Some("<") => Some((Operator::Less, false)),
            Some(">=") => Some((Operator::Less, true)),
            Some("<=") => Some((Operator::Greater, true)),
            _ => None,
        };
        if let Some(operator) = operator {
            (prim.operator, prim.negated) = operator;
            end += 1;
        }
        let Some(end) = self.value(end, header, operator.is_some(), &mut prim) else {
            return (Expr::Always(false), end + 1);
        };
        if end == at {
            let word = excerpt(&self.words[at]);
            self.errors.push(format!("empty term near '{word}'"));
            return nothing;
        }
        match prim.resolve(&self.previous, header, mask, &mut self.warnings) {
            Ok(()) => {
                let expr = prim.expression();
                self.previous = prim;
                (if negated { expr.not() } else { expr }, end)
            }
            Err(fault) => {
                self.errors.push(fault);
                (Expr::Always(false), end)
            }
        }
    }

    /// Reads the words before the value. Returns the header they name, whether they negate the
    /// primitive, and where they end.
    fn qualifiers(&mut self, mut at: usize, prim: &mut Primitive) -> (Option<Header>, bool, usize) {
        let (mut header, mut negated) = (None, false);
        while let Some(word) = self.word(at) {
            match word {
                "src" | "dst" | "dest" => {
                    let mut direction = if word == "src" { Direction::Src } else { Direction::Dst };
                    if direction == Direction::Src && self.is(at + 2, &["dst", "dest"]) {
                        let both = self.is(at + 1, &["and", "&&"]);
                        if both || self.is(at + 1, &["or", "||"]) {
                            direction = if both { Direction::Both } else { Direction::Either };
                            at += 2;
                        }
                    }
                    if prim.direction.replace(direction).is_some() {
                        self.errors.push("'src' or 'dst' specified twice".into());
                    }
                }
                "ip" | "ether" if header.is_none() => {
                    header = Some(if word == "ip" { Header::Ip } else { Header::Ether });
                }
                "not" | "!" => negated = !negated,
                _ => match self.meaning(word, None, None) {
                    Meaning::Keyword(kind) => {
                        if prim.kind.replace(kind).is_some() {
                            self.errors.push("type specified twice".into());
                        }
                        if let Kind::Field(Field { transport: Some(transport), .. }) = kind {
                            self.set_transport(prim, transport);
                        }
                    }
                    Meaning::Value(Kind::Proto, protocol) => self.set_transport(prim, protocol),
                    _ => break,
                },
            }
            at += 1;
        }
        (header, negated, at)
    }

    fn set_transport(&mut self, prim: &mut Primitive, transport: u32) {
        if prim.transport.replace(transport).is_some_and(|before| before != transport) {
            self.errors.push("transport protocol specified twice".into());
        }
    }

    /// Reads `[POS]`, `[POS:LEN]` or `[POS,LAST]`; `at` is the opening bracket.
    fn brackets(&mut self, at: usize, prim: &mut Primitive) -> usize {
        let Some(length) = self.words[at..].iter().position(|word| word == "]") else {
            self.errors.push("missing ']'".into());
            return at + 1;
        };
        let text = self.words[at + 1..at + length].concat();
        let end = at + length + 1;
        let place = if let Some((position, length)) = text.split_once(':') {
            integer(position).zip(integer(length))
        } else if let Some((position, last)) = text.split_once(',') {
            integer(position)
                .zip(integer(last))
                .map(|(position, last)| (position, last.wrapping_sub(position).wrapping_add(1)))
        } else {
            integer(&text).map(|position| (position, 1))
        };
        let shown = excerpt(&text);
        match place {
            None => {
                let fault = format!("syntax error after '[' at '{shown}', expected '[POS]' or '[POS:LEN]'");
                self.errors.push(fault);
            }
            Some((_, length)) if !(1..=4).contains(&length) => {
                let fault = "LEN in '[POS:LEN]' out of range, should be between 1 and 4";
                self.errors.push(format!("{fault}, got '{shown}'"));
            }
            Some((position, length)) if position > LONGEST_HEADER - length => {
                self.errors.push(format!(
                    "POS in '[POS:LEN]' out of range, should be between 0 and {}, got '{shown}'",
                    LONGEST_HEADER - 1
                ));
            }
            Some((position, length)) if position / 4 != (position + length - 1) / 4 => {
                self.errors.push(format!(
                    "field [{position}:{length}] does not fit in a single word (bytes {} to {} are one)",
                    position / 4 * 4,
                    position / 4 * 4 + 3
                ));
            }
            Some((position, length)) => {
                let field = Field { transport: prim.transport, first_bit: position * 8, bits: length * 8 };
                prim.kind = Some(Kind::Field(field));
            }
        }
        end
    }

    /// Reads `& MASK`; `at` is the `&`.
    fn mask(&mut self, at: usize, header: Option<Header>) -> (Option<Mask>, usize) {
        let Some(word) = self.word(at + 1) else { return (None, at) };
        let mask = if let Some(mask) = integer(word) {
            Mask::Int(mask)
        } else if header != Some(Header::Ether)
            && let Some(address) = self.address(word)
        {
            Mask::Address(address)
        } else if header != Some(Header::Ip)
            && let Some(address) = self.ether(word)
        {
            Mask::Ether(address)
        } else {
            return (None, at);
        };
        if matches!(mask, Mask::Int(0) | Mask::Address(0)) {
            self.errors.push("zero mask ignored; a mask needs at least one bit".into());
            return (None, at + 2);
        }
        (Some(mask), at + 2)
    }

    /// Reads the value at `at`, if there is one, and returns where it ends. `None`: the word there
    /// is not a fit value, which has been reported.
    fn value(
        &mut self,
        at: usize,
        header: Option<Header>,
        has_operator: bool,
        prim: &mut Primitive,
    ) -> Option<usize> {
        let Some(word) = self.word(at) else { return Some(at) };
        let ip = header != Some(Header::Ether);
        let value_of = |kind, value| (Data::Of(kind), value);
        let (data, value) = match self.meaning(word, prim.kind, prim.transport) {
            Meaning::Unclear(fault) => {
                self.errors.push(fault);
                return None;
            }
            Meaning::Value(kind, value) => value_of(kind, value),
            Meaning::Keyword(_) | Meaning::Unknown => {
                if let Some(value) = integer(word) {
                    (Data::Int, value)
                } else if let Some((first, last)) = range(word) {
                    prim.last = Some(last);
                    (Data::Int, first)
                } else if ip && let Some(address) = self.address(word) {
                    let mask = self.word(at + 2).filter(|_| self.is(at + 1, &["mask"]));
                    if let Some(mask) = mask.and_then(|mask| self.address(mask)) {
                        (prim.data, prim.value, prim.mask) = (Data::Of(Kind::Net), address, mask);
                        return Some(at + 3);
                    }
                    match self.names.network(word).filter(|_| prim.kind == Some(Kind::Net)) {
                        Some((address, mask)) => {
                            prim.mask = mask.into();
                            value_of(Kind::Net, address.into())
                        }
                        None => value_of(Kind::Host, address),
                    }
                } else if ip && let Some((address, mask)) = self.network(word) {
                    prim.mask = mask;
                    value_of(Kind::Net, address)
                } else if header != Some(Header::Ip)
                    && let Some(address) = self.ether(word)
                {
                    prim.ether = address;
                    value_of(Kind::Ether, 0)
                } else {
                    if has_operator {
                        let word = excerpt(word);
                        self.errors.push(format!("dangling operator near '{word}'"));
                    }
                    return Some(at);
                }
            }
        };
        (prim.data, prim.value) = (data, value);
        Some(at + 1)
    }

    fn address(&self, word: &str) -> Option<u32> {
        word.parse().ok().or_else(|| self.names.address(word)).map(u32::from)
    }

    fn network(&self, word: &str) -> Option<(u32, u32)> {
        let named = || self.names.network(word).map(|(address, mask)| (address.into(), mask.into()));
        prefix(word).or_else(named)
    }

    fn ether(&self, word: &str) -> Option<[u8; 6]> {
        ether_address(word).or_else(|| self.names.ether(word))
    }

    /// What `word` is, where a value of `kind` and `transport` is wanted (`None`: anything).
    fn meaning(&self, word: &str, kind: Option<Kind>, transport: Option<u32>) -> Meaning {
        if kind.is_none()
            && let Some(kind) = keyword(word)
        {
            return Meaning::Keyword(kind);
        }
        // A long list, whose names only mean something where a port is wanted.
        let of_host = |protocol| match kind {
            Some(Kind::Port) => ip_names::host_port(word, protocol),
            _ => None,
        };
        let known = |own: Option<u16>| own.map(u32::from).or_else(|| ip_names::port(word));
        let tcp_port = known(self.names.tcp_port(word)).or_else(|| of_host("tcp"));
        let udp_port = known(self.names.udp_port(word)).or_else(|| of_host("udp"));
        let tcp = matches!(transport, None | Some(TCP | TCP_OR_UDP));
        let udp = matches!(transport, None | Some(UDP | TCP_OR_UDP));
        let icmp = matches!(transport, None | Some(ip_names::ICMP));
        let all = [
            (Kind::Proto, ip_names::protocol(word), true),
            (Kind::Port, tcp_port, tcp),
            (Kind::Port, udp_port, udp),
            (Kind::TcpOpt, ip_names::tcp_option(word), tcp),
            (primitive::ICMP_TYPE, ip_names::icmp_type(word), icmp),
        ];
        let mut fitting: Vec<(Kind, u32)> = Vec::new();
        let mut uses: Vec<String> = Vec::new();
        for (of, value, transport_fits) in all {
            let Some(value) = value else { continue };
            let name = format!("'{} {word}'", primitive::kind_name(Some(of)));
            if !uses.contains(&name) {
                uses.push(name);
            }
            if transport_fits && kind.is_none_or(|kind| kind == of) && !fitting.contains(&(of, value)) {
                fitting.push((of, value));
            }
        }
        match fitting[..] {
            [(kind, value)] => Meaning::Value(kind, value),
            _ if uses.is_empty() => Meaning::Unknown,
            _ => {
                let mut said = kind.map_or(String::new(), |kind| primitive::kind_name(Some(kind)) + " ");
                if let Some(transport) = transport {
                    said = format!("{said}{} ", ip_names::protocol_name(transport));
                }
                let fault = if fitting.is_empty() { "meaningless" } else { "ambiguous" };
                Meaning::Unclear(format!("'{said}{word}' is {fault}; try {}", uses.join(", ")))
            }
        }
    }
}

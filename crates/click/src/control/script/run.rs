//! A script at work: where it is, what its variables hold, and how it goes on.

use graph::arguments::Interval;
use graph::lang::{Reference, TooLong, expand, next_word, split_words, unquote};
use graph::messages::Output;
use graph::{Context, FromArgument};

use super::instructions::{Ending, Instruction, Place, find_label};
use super::{CHANGE, Kind, WAIT, functions};

/// So often may a script go to another place without waiting.
const MOST_JUMPS: u32 = 1_000;

/// What Click's handlers return for a mistake, and `$?` holds: EINVAL, negative.
const MISTAKE: i32 = -22;

/// Who has a script go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Steps {
    /// A handler, a timer, a signal, a packet.
    Usual,
    /// The router, which is to stop.
    Router,
}

/// How a script left off.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Left {
    /// It waits, or there is nothing left of it.
    Waiting,
    Returned,
    Ended(Ending, String),
}

/// A script and its state.
#[derive(Debug)]
pub(super) struct Run {
    /// The element, for messages.
    name: String,
    instructions: Vec<Instruction>,
    /// Steps that each `pause` has had.
    paused: Vec<u64>,
    variables: Vec<(String, String)>,
    exported: Vec<String>,
    position: usize,
    /// Whether the `Begin` still waits for its step.
    begins: bool,
    /// What the handler was called with that has it run, its name, and whether it was written.
    arguments: String,
    called: String,
    is_write: bool,
    /// `$?`.
    status: i32,
    /// `$_`, what it returned.
    returned: String,
    /// While it runs, the steps that it has been given meanwhile.
    more_steps: Option<i64>,
    /// Whether the mistakes of this step have had their heading.
    headed: bool,
    /// Whether somebody else carries out a `stop`, and how the script ended meanwhile.
    is_signals: bool,
    /// Whether nobody waits for what the script returns.
    goes_on_alone: bool,
    ending: Option<Ending>,
}

impl Run {
    pub(super) fn new(name: String, instructions: Vec<Instruction>, exported: Vec<String>) -> Self {
        let paused = vec![0; instructions.len()];
        Self {
            name,
            instructions,
            paused,
            variables: Vec::new(),
            exported,
            position: 0,
            begins: false,
            arguments: String::new(),
            called: String::new(),
            is_write: false,
            status: 0,
            returned: String::new(),
            more_steps: None,
            headed: false,
            is_signals: false,
            goes_on_alone: false,
            ending: None,
        }
    }

    /// How a signal script has ended since this was asked before.
    pub(super) fn take_ending(&mut self) -> Option<Ending> {
        self.ending.take()
    }

    /// Sets the variables that have values from the start, and begins if the script begins by itself.
    pub(super) fn initialise(&mut self, cx: &mut Context, kind: Kind) {
        self.is_signals = kind == Kind::Signal;
        self.goes_on_alone = matches!(kind, Kind::Active | Kind::Driver | Kind::Signal);
        for at in 0..self.instructions.len() {
            if let Instruction::Init { variable, text, unquoted } = self.instructions[at].clone() {
                let value = self.text(cx, &text, unquoted);
                self.set(&variable, value);
            }
        }
        if !matches!(kind, Kind::Active | Kind::Driver) {
            return;
        }
        match self.instructions.first().cloned() {
            Some(Instruction::Wait(time)) => self.wait(cx, &time),
            Some(Instruction::Begin) => {
                self.begins = true;
                match kind {
                    // The router asks the driver script at once what to do.
                    Kind::Driver => cx.stop(),
                    _ => cx.set_timer(WAIT, cx.now_ns()),
                }
            }
            _ => {}
        }
    }

    /// Whether the variable `name` is a handler.
    pub(super) fn exports(&self, name: &str) -> bool {
        self.exported.iter().any(|exported| exported == name)
    }

    // ---- variables and texts ----------------------------------------------------------------------------

    fn set(&mut self, name: &str, value: String) {
        match self.variables.iter_mut().find(|(known, _)| known == name) {
            Some(known) => known.1 = value,
            None => self.variables.push((name.to_owned(), value)),
        }
    }

    fn value(&self, name: &str) -> Option<String> {
        if let Some((_, value)) = self.variables.iter().find(|(known, _)| known == name) {
            return Some(value.clone());
        }
        let words = || split_words(&self.arguments);
        Some(match name {
            "?" => self.status.to_string(),
            "args" => self.arguments.clone(),
            "_" => self.returned.clone(),
            "$" => std::process::id().to_string(),
            "0" => self.called.clone(),
            "#" => words().len().to_string(),
            "write" => self.is_write.to_string(),
            _ if name.starts_with(|c: char| c.is_ascii_digit()) => {
                let number: usize = name.parse().ok()?;
                number.checked_sub(1).and_then(|at| words().get(at).cloned()).unwrap_or_default()
            }
            _ => return None,
        })
    }

    /// A text with what it refers to put in.
    fn expanded(&mut self, cx: &mut Context, text: &str, protected: bool) -> String {
        let expanded = expand(text, protected, &mut |reference| match reference {
            Reference::Variable(name) => self.value(name),
            Reference::Call(call) => self.call(cx, call, false),
        });
        expanded.unwrap_or_else(|TooLong| {
            self.complain(cx, &format!("'{text}' becomes too long with what its variables and handlers say"));
            String::new()
        })
    }

    fn text(&mut self, cx: &mut Context, text: &str, unquoted: bool) -> String {
        let text = self.expanded(cx, text, false);
        if unquoted { unquote(&text) } else { text }
    }

    // ---- handlers ---------------------------------------------------------------------------------------

    /// What `HANDLER [ARGUMENTS]` says; `None`, with a message, if it says nothing.
    fn call(&mut self, cx: &mut Context, call: &str, unquoted: bool) -> Option<String> {
        let (name, argument) = split_call(call, unquoted);
        let own = self.own_name(cx, &name);
        let answer = match &own {
            Some(own) => self.read(cx, own, own, &argument),
            None => cx.call_read(&name, &argument),
        };
        let exists = own.is_some() || cx.has_handler(&name, false);
        answer.map_err(|problem| self.complain_of(cx, call, &problem, exists)).ok()
    }

    fn write_call(&mut self, cx: &mut Context, call: &str, unquoted: bool) {
        let (name, value) = split_call(call, unquoted);
        let own = self.own_name(cx, &name);
        let result = match &own {
            Some(own) => self.write(cx, own, own, &value),
            None => cx.call_write(&name, &value),
        };
        self.status = if result.is_ok() { 0 } else { MISTAKE };
        if let Err(problem) = result {
            let exists = own.is_some() || cx.has_handler(&name, true);
            self.complain_of(cx, call, &problem, exists);
        }
    }

    /// The name of one of the script's own handlers, with its element or without.
    fn own_name(&self, cx: &Context, name: &str) -> Option<String> {
        if name.contains('.') {
            return cx.own_name(name);
        }
        let listed = super::HANDLERS.iter().any(|handler| handler.name == name);
        (listed || self.exports(name)).then(|| name.to_owned())
    }

    /// Reads one of the script's own handlers; `called` is how it was called.
    pub(super) fn read(
        &mut self,
        cx: &mut Context,
        name: &str,
        called: &str,
        argument: &str,
    ) -> Result<String, String> {
        if let Some(result) = functions::compute(name, argument) {
            return result;
        }
        match name {
            "run" => {
                if self.more_steps.is_some() {
                    return Err("the script is at work, and cannot run within itself".into());
                }
                self.begin(called, argument, false);
                self.answer(cx, 0, Steps::Usual)
            }
            "now" | "now_steady" => Ok(time_text(cx.now_ns())),
            "random" => random(cx, argument),
            "get" | "shift" => self.variable_of(name, argument),
            "readable" | "writable" => {
                let is_write = name == "writable";
                let has = |word: &String| match self.own_name(cx, word) {
                    Some(own) => {
                        let listed = super::HANDLERS.iter().find(|handler| handler.name == own);
                        listed.map_or(!is_write, |known| {
                            if is_write { known.is_writable() } else { known.is_readable() }
                        })
                    }
                    None => cx.has_handler(word, is_write),
                };
                Ok(split_words(argument).iter().all(has).to_string())
            }
            _ if self.exports(name) => Ok(self.value(name).unwrap_or_default()),
            _ => Err(format!("no '{name}' read handler that the script could ask itself")),
        }
    }

    fn variable_of(&mut self, name: &str, argument: &str) -> Result<String, String> {
        let words = split_words(argument);
        let variable = match words.as_slice() {
            [] if name == "shift" => "args",
            [variable] => variable,
            [] => return Err("no variable".into()),
            _ => return Err("too many arguments".into()),
        };
        let undefined = || format!("undefined variable '{variable}'");
        if name == "get" {
            // A variable that some instruction names is there from the start.
            let named = |instruction: &Instruction| matches!(instruction, Instruction::Set { variable: v, .. } | Instruction::Init { variable: v, .. } if v == variable);
            let empty = || self.instructions.iter().any(named).then(String::new);
            return self.value(variable).or_else(empty).ok_or_else(undefined);
        }
        let list = match variable {
            "args" => &mut self.arguments,
            _ => {
                let known = self.variables.iter_mut().find(|(known, _)| known == variable);
                &mut known.ok_or_else(undefined)?.1
            }
        };
        let (first, rest) = next_word(list);
        let (first, rest) = (first.to_owned(), rest.to_owned());
        *list = rest;
        Ok(first)
    }

    /// Writes one of the script's own handlers.
    pub(super) fn write(
        &mut self,
        cx: &mut Context,
        name: &str,
        called: &str,
        value: &str,
    ) -> Result<(), String> {
        let trimmed = value.trim();
        match name {
            "set" => {
                let (variable, text) = next_word(value);
                if variable.is_empty() {
                    return Err("no variable".into());
                }
                self.set(variable, text.to_owned());
                Ok(())
            }
            "goto" => {
                let Some(Place::At(at)) = find_label(&self.instructions, trimmed) else {
                    return Err(format!("jump to nonexistent label '{trimmed}'"));
                };
                self.paused[at..].fill(0);
                self.position = at;
                self.go_on(cx, 0, Steps::Usual)
            }
            "step" => {
                let (count, who) = match trimmed {
                    "router" => (1, Steps::Router),
                    "" => (1, Steps::Usual),
                    count => (i64::from_argument(count).ok_or("syntax error")?, Steps::Usual),
                };
                self.go_on(cx, count, who)
            }
            _ => {
                if self.more_steps.is_some() {
                    return Err("the script is at work, and cannot run within itself".into());
                }
                self.begin(called, value, true);
                self.answer(cx, 0, Steps::Usual).map(drop)
            }
        }
    }

    /// Steps for a script that may be at work: then it has them when it goes on.
    fn go_on(&mut self, cx: &mut Context, steps: i64, who: Steps) -> Result<(), String> {
        match &mut self.more_steps {
            Some(more) => {
                *more = more.saturating_add(steps);
                Ok(())
            }
            None => self.answer(cx, steps, who).map(drop),
        }
    }

    // ---- running ----------------------------------------------------------------------------------------

    /// Goes back to the first instruction, for a handler that was called.
    pub(super) fn begin(&mut self, called: &str, arguments: &str, is_write: bool) {
        self.position = 0;
        self.paused.fill(0);
        self.called = called.to_owned();
        self.arguments = arguments.to_owned();
        self.is_write = is_write;
    }

    /// Goes on for nobody who waits for an answer.
    pub(super) fn step_alone(&mut self, cx: &mut Context, steps: i64) {
        if let Err(problem) = self.answer(cx, steps, Steps::Usual) {
            self.complain(cx, &problem);
        }
    }

    /// The output by which a packet leaves.
    pub(super) fn packet(&mut self, cx: &mut Context, input: usize) -> Option<usize> {
        self.set("input", input.to_string());
        self.begin("push", "", false);
        self.headed = false;
        match self.run(cx, 0, Steps::Usual) {
            Left::Ended(Ending::End, _) => Some(0),
            Left::Returned => usize::from_argument(self.returned.trim()),
            Left::Ended(Ending::Error, problem) => {
                self.complain(cx, &problem);
                None
            }
            _ => None,
        }
    }

    /// Goes on, and says what the script returned.
    fn answer(&mut self, cx: &mut Context, steps: i64, who: Steps) -> Result<String, String> {
        self.headed = false;
        match self.run(cx, steps, who) {
            Left::Returned => Ok(self.returned.clone()),
            Left::Ended(Ending::Error, problem) => Err(problem),
            _ => Ok(String::new()),
        }
    }

    /// Goes on with as many steps as there are, those included that it is given meanwhile.
    fn run(&mut self, cx: &mut Context, steps: i64, who: Steps) -> Left {
        let (mut steps, mut who, mut jumps) = (steps, who, 0);
        loop {
            self.more_steps = Some(-1);
            let left = self.advance(cx, steps, who, &mut jumps);
            // Steps that came meanwhile were added to -1.
            steps = self.more_steps.take().unwrap_or(-1);
            who = Steps::Usual;
            if steps < 0 {
                return left;
            }
        }
    }

    /// Carries out instructions until one waits and no step is left, or the script ends.
    fn advance(&mut self, cx: &mut Context, mut steps: i64, who: Steps, jumps: &mut u32) -> Left {
        while steps >= 0 && self.position < self.instructions.len() {
            if *jumps >= MOST_JUMPS {
                self.position = self.instructions.len();
                cx.clear_timer(WAIT);
                cx.message(&format!("{}: too many jumps, giving up", self.name));
                break;
            }
            // Gone on from before the instruction is carried out, since that may go elsewhere.
            let at = self.position;
            self.position += 1;
            match self.instructions[at].clone() {
                Instruction::Begin => steps -= i64::from(std::mem::take(&mut self.begins)),
                Instruction::Label(_) | Instruction::Init { .. } => {}
                Instruction::Pause(count) => {
                    let taken = count.saturating_sub(self.paused[at]).min(steps.max(0) as u64);
                    self.paused[at] += taken;
                    steps -= taken as i64;
                    if self.paused[at] < count {
                        self.position = at;
                        break;
                    }
                }
                Instruction::Wait(time) => {
                    if steps == 0 {
                        self.position = at;
                        self.wait(cx, &time);
                        break;
                    }
                    steps -= 1;
                    cx.clear_timer(WAIT);
                }
                Instruction::Print { text, newline, unquoted } => self.print(cx, &text, newline, unquoted),
                Instruction::Read { call, unquoted } => {
                    let call = self.expanded(cx, &call, false);
                    if let Some(value) = self.call(cx, &call, unquoted) {
                        let value = value.strip_suffix('\n').unwrap_or(&value);
                        let name = unquote(next_word(&call).0);
                        let own = self.own_name(cx, &name);
                        let element = self.name.split(" :: ").next().unwrap_or_default();
                        let name = own.map_or(name, |own| format!("{element}.{own}"));
                        cx.message(&format!("{name}:\n{value}"));
                    }
                }
                Instruction::Write { call, unquoted } => {
                    let call = self.expanded(cx, &call, false);
                    self.write_call(cx, &call, unquoted);
                    let is_config = next_word(&call).0.ends_with(".config");
                    if is_config && self.goes_on_alone && cx.change_is_due() {
                        cx.set_timer(CHANGE, cx.now_ns());
                        return self.left(cx, who, Left::Waiting);
                    }
                }
                Instruction::Set { variable, text, unquoted } => {
                    let value = self.text(cx, &text, unquoted);
                    self.set(&variable, value);
                }
                Instruction::Return { text, unquoted } => {
                    self.returned = self.text(cx, &text, unquoted);
                    if self.position == at + 1 {
                        self.position = at;
                        return self.left(cx, who, Left::Returned);
                    }
                }
                Instruction::Goto { to, condition } => {
                    let condition = self.expanded(cx, &condition, false);
                    match bool::from_argument(&condition) {
                        Some(false) => {}
                        None if !condition.is_empty() => {
                            self.complain(cx, &format!("bad condition '{condition}'"));
                        }
                        _ => match to {
                            Place::End(ending) => {
                                self.position = at;
                                return self.end(cx, who, ending, String::new());
                            }
                            Place::At(to) => {
                                self.paused[to.min(at)..at].fill(0);
                                self.position = to;
                            }
                        },
                    }
                }
                Instruction::Error { text, unquoted } => {
                    let problem = self.text(cx, &text, unquoted);
                    self.position = at;
                    return self.end(cx, who, Ending::Error, problem);
                }
                Instruction::End(ending) => {
                    self.position = at;
                    return self.end(cx, who, ending, String::new());
                }
            }
            *jumps += u32::from(self.position != at + 1);
        }
        self.left(cx, who, Left::Waiting)
    }

    /// The end of a script that waits or returned: the router goes on.
    fn left(&mut self, cx: &mut Context, who: Steps, left: Left) -> Left {
        if who == Steps::Router {
            cx.resume();
        }
        left
    }

    /// The end of a script: the router stays stopped if it was to stop.
    fn end(&mut self, cx: &mut Context, who: Steps, ending: Ending, problem: String) -> Left {
        if self.is_signals {
            self.ending = Some(ending);
        } else if ending == Ending::Stop && who != Steps::Router {
            cx.stop();
        }
        Left::Ended(ending, problem)
    }

    /// Has a timer end the wait.
    fn wait(&mut self, cx: &mut Context, time: &str) {
        let text = self.expanded(cx, time, false);
        match Interval::from_argument(&text) {
            Some(interval) => cx.set_timer(WAIT, cx.now_ns() + interval.ns),
            None => {
                // Gone past, or it would be tried again for ever.
                self.position += 1;
                self.complain(cx, &format!("syntax error at 'wait': '{text}' is not a time"));
            }
        }
    }

    fn print(&mut self, cx: &mut Context, text: &str, newline: bool, unquoted: bool) {
        let mut text = text;
        let mut file = None;
        if let Some(after) = text.strip_prefix('>') {
            let appends = after.starts_with('>');
            let (name, rest) = next_word(after.trim_start_matches('>'));
            text = rest;
            file = Some((name.to_owned(), appends)).filter(|(name, _)| name != "-" && !name.is_empty());
        }
        let is_call = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '@' || c == '_');
        let mut printed = if is_call {
            let call = self.expanded(cx, text, false);
            match self.call(cx, &call, unquoted) {
                Some(value) => value,
                None => return,
            }
        } else {
            unquote(&self.expanded(cx, text, true))
        };
        if newline && !printed.ends_with('\n') {
            printed.push('\n');
        }
        if let Err(problem) = write_out(&printed, file.as_ref()) {
            self.complain(cx, &problem);
        }
    }

    // ---- mistakes ---------------------------------------------------------------------------------------

    fn complain(&mut self, cx: &Context, problem: &str) {
        if problem.is_empty() {
            return;
        }
        let heading = format!("While executing '{}':\n", self.name);
        let heading = if std::mem::replace(&mut self.headed, true) { "" } else { &heading };
        cx.message(&format!("{heading}{}", indented(problem)));
    }

    fn complain_of(&mut self, cx: &Context, call: &str, problem: &str, exists: bool) {
        match exists {
            true => self.complain(cx, &format!("While calling '{call}':\n{}", indented(problem))),
            false => self.complain(cx, problem),
        }
    }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

/// Prints to standard output, or to a file that is made anew or added to.
fn write_out(text: &str, file: Option<&(String, bool)>) -> Result<(), String> {
    use std::io::Write;
    let Some((name, appends)) = file else {
        // A reader that went away is not a reason to stop.
        let _ = Output.write_all(text.as_bytes()).and_then(|()| Output.flush());
        return Ok(());
    };
    let mut options = std::fs::OpenOptions::new();
    options.create(true).write(true).append(*appends).truncate(!appends);
    let written = options.open(name).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| format!("{name}: {error}"))
}

/// A time as Click writes it: with six decimals, or nine where these say more.
fn time_text(ns: u64) -> String {
    let (seconds, ns) = (ns / 1_000_000_000, ns % 1_000_000_000);
    if ns.is_multiple_of(1_000) {
        format!("{seconds}.{:06}", ns / 1_000)
    } else {
        format!("{seconds}.{ns:09}")
    }
}

fn random(cx: &mut Context, argument: &str) -> Result<String, String> {
    let words = split_words(argument);
    let numbers: Option<Vec<u32>> = words.iter().map(|word| u32::from_argument(word)).collect();
    let (low, count) = match numbers.as_deref() {
        Some([]) => (0, 1 << 31),
        Some([count]) if *count > 0 => (0, u64::from(*count)),
        Some([low, high]) if low <= high => (*low, u64::from(high - low) + 1),
        _ => return Err("bad N; expected a number above 0, or two, the larger one last".into()),
    };
    Ok((u64::from(low) + u64::from(cx.random()) % count).to_string())
}

/// The handler and what it is called with.
fn split_call(call: &str, unquoted: bool) -> (String, String) {
    let (name, argument) = next_word(call);
    (unquote(name), if unquoted { unquote(argument) } else { argument.to_owned() })
}

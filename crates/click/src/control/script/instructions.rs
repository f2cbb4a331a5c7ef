//! From a Script's arguments to its instructions.

use graph::lang::{next_word, split_words};
use graph::{ConfigError, FromArgument};

/// What a script does, one at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Instruction {
    /// Nothing: where a script begins that does not begin by waiting.
    Begin,
    /// Wait for so many steps.
    Pause(u64),
    /// Wait for so long (text, since variables may stand in it), or for a step.
    Wait(String),
    /// Print a text, or what a handler says.
    Print { text: String, newline: bool, unquoted: bool },
    /// Print a handler's name and what it says to standard error.
    Read { call: String, unquoted: bool },
    /// Write a handler.
    Write { call: String, unquoted: bool },
    /// Give a variable a value.
    Set { variable: String, text: String, unquoted: bool },
    /// As `Set`, at the start only.
    Init { variable: String, text: String, unquoted: bool },
    /// A place to go to.
    Label(String),
    /// Go on elsewhere, if the condition holds.
    Goto { to: Place, condition: String },
    /// End with a value.
    Return { text: String, unquoted: bool },
    /// End.
    End(Ending),
    /// End with a mistake.
    Error { text: String, unquoted: bool },
}

/// How a script ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// It is done; a signal script waits for the next signal.
    End,
    /// It is done.
    Exit,
    /// It is done, and the router is to stop.
    Stop,
    /// It failed.
    Error,
}

/// Where a `goto` leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// To the instruction of this number.
    At(usize),
    /// To an end.
    End(Ending),
}

/// The place that `label` names.
pub(super) fn find_label(instructions: &[Instruction], label: &str) -> Option<Place> {
    let named = |instruction: &Instruction| matches!(instruction, Instruction::Label(name) if name == label);
    if let Some(at) = instructions.iter().position(named) {
        return Some(Place::At(at));
    }
    Some(match label {
        "begin" | "loop" => Place::At(0),
        "end" => Place::End(Ending::End),
        "exit" => Place::End(Ending::Exit),
        "stop" => Place::End(Ending::Stop),
        "error" | "errorq" => Place::End(Ending::Error),
        _ => return None,
    })
}

/// Whether an instruction stands at the beginning as it is; others get a `Begin` before them.
fn may_begin(instruction: &Instruction) -> bool {
    matches!(instruction, Instruction::Pause(_) | Instruction::Wait(_))
}

/// Reads the arguments of a script, all mistakes in one go; `last` is what happens at the end.
pub(super) fn parse(arguments: &[String], last: Ending) -> Result<Vec<Instruction>, ConfigError> {
    let mut instructions = Vec::new();
    let mut gotos = Vec::new();
    let mut problems = Vec::new();
    for argument in arguments {
        let (word, rest) = next_word(argument);
        if word.is_empty() {
            continue;
        }
        let Some(instruction) = instruction(word, rest) else {
            problems.push(format!("syntax error at '{word}'"));
            continue;
        };
        if instructions.is_empty() && !may_begin(&instruction) {
            instructions.push(Instruction::Begin);
        }
        if word == "goto" {
            gotos.push((instructions.len(), next_word(rest).0.to_owned()));
        }
        instructions.push(instruction);
    }
    if instructions.is_empty() {
        instructions.push(if last == Ending::Stop { Instruction::Pause(1) } else { Instruction::Begin });
    }
    instructions.push(Instruction::End(last));
    for (at, label) in gotos {
        let place = find_label(&instructions, &label);
        match (place, &mut instructions[at]) {
            (Some(place), Instruction::Goto { to, .. }) => *to = place,
            _ => problems.push(format!("no such label '{label}'")),
        }
    }
    if problems.is_empty() { Ok(instructions) } else { Err(problems.into()) }
}

fn instruction(word: &str, rest: &str) -> Option<Instruction> {
    let (first, after) = next_word(rest);
    let text = || rest.to_owned();
    let pause = || match rest {
        "" => Some(Instruction::Pause(1)),
        count => u64::from_argument(count).map(Instruction::Pause),
    };
    let wait = || (!rest.is_empty()).then(|| Instruction::Wait(text()));
    let nothing_more = |ending| rest.is_empty().then_some(Instruction::End(ending));
    // "set" and its like need a variable; all but "init" and "export" a value too.
    let variable = |needs_value: bool| {
        let right = !first.is_empty() && (!after.is_empty() || !needs_value);
        right.then(|| (first.to_owned(), after.to_owned()))
    };
    // To a file, as the other forms of "print" have it.
    let to_file = |arrow: &str| {
        // What stands between the handler and the file is for the handler.
        let words = split_words(after);
        let file = words.last().map_or("-", String::as_str);
        let call = rest.strip_suffix(file).map_or(first, str::trim_end);
        Instruction::Print { text: format!("{arrow}{file} {call}"), newline: true, unquoted: false }
    };
    Some(match word {
        "append" => to_file(">>"),
        "save" => to_file(">"),
        "end" => nothing_more(Ending::End)?,
        "exit" => nothing_more(Ending::Exit)?,
        "stop" => nothing_more(Ending::Stop)?,
        "error" | "errorq" => Instruction::Error { text: text(), unquoted: word == "errorq" },
        "export" | "init" | "exportq" | "initq" => {
            let (variable, text) = variable(false)?;
            Instruction::Init { variable, text, unquoted: word.ends_with('q') }
        }
        "set" | "setq" => {
            let (variable, text) = variable(true)?;
            Instruction::Set { variable, text, unquoted: word == "setq" }
        }
        "goto" => Instruction::Goto { to: Place::At(0), condition: after.to_owned() },
        "label" if after.is_empty() && !first.is_empty() => Instruction::Label(first.to_owned()),
        "loop" if rest.is_empty() => Instruction::Goto { to: Place::At(0), condition: String::new() },
        "pause" | "wait_step" | "wait_stop" => pause()?,
        "wait" if rest.is_empty() => pause()?,
        "wait" | "wait_for" | "wait_time" => wait()?,
        "print" | "printn" | "printq" | "printnq" => Instruction::Print {
            text: text(),
            newline: !word.starts_with("printn"),
            unquoted: word.ends_with('q'),
        },
        "read" | "readq" => Instruction::Read { call: text(), unquoted: word == "readq" },
        "write" | "writeq" => Instruction::Write { call: text(), unquoted: word == "writeq" },
        "return" | "returnq" => Instruction::Return { text: text(), unquoted: word == "returnq" },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Vec<Instruction>, Vec<String>> {
        let arguments: Vec<String> = arguments.iter().map(|&text| text.to_owned()).collect();
        parse(&arguments, Ending::End).map_err(|error| error.messages)
    }

    #[test]
    fn words_become_instructions() {
        let print =
            |text: &str, newline, unquoted| Instruction::Print { text: text.into(), newline, unquoted };
        assert_eq!(
            parsed(&["print a.b  c", "printnq \"x\"", "save a.b FILE", ""]).unwrap(),
            [
                Instruction::Begin,
                print("a.b  c", true, false),
                print("\"x\"", false, true),
                print(">FILE a.b", true, false),
                Instruction::End(Ending::End)
            ]
        );
        assert_eq!(
            parsed(&["wait", "wait 1ms", "pause 3", "label x", "goto x $(eq 1 1)", "loop"]).unwrap(),
            [
                Instruction::Pause(1),
                Instruction::Wait("1ms".into()),
                Instruction::Pause(3),
                Instruction::Label("x".into()),
                Instruction::Goto { to: Place::At(3), condition: "$(eq 1 1)".into() },
                Instruction::Goto { to: Place::At(0), condition: String::new() },
                Instruction::End(Ending::End),
            ]
        );
        assert_eq!(parse(&[], Ending::Stop).unwrap()[0], Instruction::Pause(1));
    }

    #[test]
    fn mistakes_are_all_told() {
        let error = parsed(&["jump", "set x", "goto nowhere", "stop now", "label", "pause x"]).unwrap_err();
        let expected =
            ["jump", "set", "stop", "label", "pause"].map(|word| format!("syntax error at '{word}'"));
        assert_eq!(error[..5], expected);
        assert_eq!(error[5], "no such label 'nowhere'");
    }
}

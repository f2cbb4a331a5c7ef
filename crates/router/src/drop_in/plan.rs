//! A configuration in the making: text in the Click language, whose elements are named once, by what makes them.

use std::fmt::{self, Display, Write};

use elements::devices::follow_linux::Followed;
use graph::lang::name_argument;

/// A configuration in the making.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    text: String,
    /// What follows Linux: what, of which port, and the targets.
    followed: Vec<(Followed, String, Vec<String>)>,
}

/// An element of a plan, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part(String);

impl Part {
    /// Returns the element of this name, which is made elsewhere.
    pub(crate) fn named(name: &str) -> Part {
        Part(name.to_owned())
    }

    /// Returns the element of this name inside a compound element.
    pub(crate) fn inside(&self, name: &str) -> Part {
        Part(format!("{self}/{name}"))
    }
}

impl Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Plan {
    /// Appends text as it is: classes of compound elements.
    pub(crate) fn text(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Appends an empty line and a comment.
    pub(crate) fn comment(&mut self, comment: &str) {
        self.text.push('\n');
        comment.lines().for_each(|line| self.line(format_args!("// {line}")));
    }

    /// Appends a line: connections.
    pub(crate) fn line(&mut self, words: fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "{words}");
    }

    /// Appends an element: its class, and what it is connected to behind that.
    pub(crate) fn element(&mut self, name: impl Display, class: fmt::Arguments<'_>) -> Part {
        self.line(format_args!("{name} :: {class};"));
        Part(name.to_string())
    }

    /// Has a handler of an element follow Linux: of a port, or of all, whose name is empty then.
    pub(crate) fn follow(&mut self, what: Followed, port: &str, part: &Part, handler: &str) {
        self.add_target(what, port, Some(format!("{part}.{handler}")));
    }

    /// Has a port follow Linux, without a handler.
    pub(crate) fn follow_alone(&mut self, what: Followed, port: &str) {
        self.add_target(what, port, None);
    }

    fn add_target(&mut self, what: Followed, port: &str, target: Option<String>) {
        match self.followed.iter_mut().find(|known| (known.0, known.1.as_str()) == (what, port)) {
            Some((.., targets)) => targets.extend(target),
            None => self.followed.push((what, port.to_owned(), target.into_iter().collect())),
        }
    }

    /// Returns the text, with what follows Linux at its end.
    pub(crate) fn finish(mut self) -> String {
        if self.followed.is_empty() {
            return self.text;
        }
        self.comment("What follows Linux.");
        let followed = std::mem::take(&mut self.followed).into_iter().map(|(what, port, targets)| {
            let port = Some(port).filter(|port| !port.is_empty()).map(|port| name_argument(&port));
            [what.word().to_owned()].into_iter().chain(port).chain(targets).collect::<Vec<_>>().join(" ")
        });
        let arguments = followed.collect::<Vec<_>>().join(",\n    ");
        self.line(format_args!("FollowLinux(\n    {arguments});"));
        self.text
    }
}

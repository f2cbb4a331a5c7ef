//! =c
//! Message(TEXT, [TYPE])
//!
//! =s control
//! prints a message when the router starts
//!
//! =d
//! TYPE is MESSAGE (the default), WARNING, or ERROR, which keeps the router from starting.
//!
//! =a Error

use graph::{Class, ConfigError, Context, Element, Setup};

pub(crate) static CLASS: Class =
    Class { name: "Message", ports: "0/0", manual: graph::manual!("message.rs"), make, ..Class::DEFAULT };

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let message: String = setup.arguments.required("MESSAGE")?;
    let kind: String = setup.arguments.optional("TYPE")?.unwrap_or_else(|| "MESSAGE".to_owned());
    setup.arguments.finish()?;
    let text = format!("{}: While configuring '{} :: Message':\n  {message}", setup.location(), setup.name());
    let line = match kind.to_ascii_uppercase().as_str() {
        "MESSAGE" => text,
        "WARNING" => text.replacen("\n  ", "\n  warning: ", 1),
        // Not while it is only looked at: the message is for whoever runs the configuration.
        "ERROR" if setup.is_check() => text,
        "ERROR" => return Err(message.into()),
        other => return Err(format!("TYPE: expected MESSAGE, WARNING or ERROR, got '{other}'").into()),
    };
    Ok(Box::new(Message { line: (setup.copy().index == 0).then_some(line) }))
}

struct Message {
    /// `None` in every copy but the first.
    line: Option<String>,
}

impl Element for Message {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        if let Some(line) = &self.line {
            cx.message(line);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn it_speaks_once() {
        let mut bench = Bench::new(&crate::registry(), "Message(\"Hello, you\"); Message(careful, WARNING)");
        let expected = [("Message@1", "Hello, you"), ("Message@2", "warning: careful")];
        let line = |(name, text)| format!("test.click:1: While configuring '{name} :: Message':\n  {text}");
        assert_eq!(bench.messages(), expected.map(line));
        assert_eq!(configure(&CLASS, "no, TYPE ERROR").unwrap_err(), ["no"]);
        assert!(configure(&CLASS, "x, LOUD").unwrap_err()[0].contains("expected MESSAGE"));
    }
}

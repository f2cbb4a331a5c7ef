//! Settings as a file again, as a summary for people, and as the example.

use super::options::Section;
use super::{Driver, Host, PortSettings, Settings};
use crate::table::{Align, Table, wrapped};

/// Writes a section with the options that are set.
fn section_text(title: &str, section: &dyn Section) -> String {
    let options = section.options().iter().zip(section.values());
    let lines = options.filter_map(|(option, value)| Some(format!("{} = {}\n", option.key, value?)));
    title.to_owned() + &lines.collect::<String>()
}

/// Returns the line above a section's options: none for those above all sections.
fn title_of(section: &dyn Section) -> String {
    match section.options().first().map_or("", |option| option.section) {
        "" => String::new(),
        name => format!("[{name}]\n"),
    }
}

impl Settings {
    /// A settings file that says the same, defaults included.
    pub(crate) fn to_toml(&self) -> String {
        let mut texts: Vec<String> =
            self.sections().into_iter().map(|section| section_text(&title_of(section), section)).collect();
        texts.splice(1..1, self.ports.iter().map(|port| section_text("[[port]]\n", port)));
        texts.join("\n")
    }

    /// What the settings say, for people.
    pub(crate) fn summary(&self) -> String {
        let mut table =
            Table::new(&[("port", Align::Left), ("driver", Align::Left), ("Linux sees", Align::Left)]);
        for port in &self.ports {
            let host = match port.host {
                _ if port.driver == Driver::Vlan => format!("an interface {}", port.name),
                Host::Interface => "the interface itself".to_owned(),
                Host::Tap => format!("a TAP interface {}", port.name),
                Host::None => "nothing".to_owned(),
            };
            table.row([port.name.clone(), port.spec(), host]);
        }
        let sections = self.sections().into_iter().filter_map(|section| section.summary());
        let lines = sections.map(|(title, text)| format!("{title:<14}{text}\n"));
        format!("{}\n{}", table.render(), lines.collect::<String>())
    }
}

/// Most characters of a comment's line in the example.
const WIDTH: usize = 98;

/// What stands at the top of the example.
const EXAMPLE_HEAD: &str = "\
# Settings of a router that runs beside Linux: `brickway run --config brickway.toml`.
#
# `brickway check brickway.toml` finds every mistake. Lines with `#option` show an option's default,
# or an example where it has none; take the # away to change it. A line with `# ` explains.
";

/// Returns `examples/brickway.toml`: all options with what they mean.
pub(crate) fn example() -> String {
    let settings = Settings::default();
    let option_lines = |section: &dyn Section| -> String {
        let lines = section.options().iter().map(|option| {
            let words = option.doc.concat();
            let doc: String = wrapped(words.trim(), WIDTH).iter().map(|line| format!("# {line}\n")).collect();
            let hidden = if option.name() == "port.name" { "" } else { "#" };
            format!("{doc}{hidden}{} = {}\n", option.key, option.example)
        });
        lines.collect()
    };
    let port = format!(
        "# A port: an interface of Linux that the router takes transit packets from. Each has a section.\n[[port]]\n{}",
        option_lines(&PortSettings::default())
    );
    let mut texts: Vec<String> =
        settings.sections().into_iter().map(|section| title_of(section) + &option_lines(section)).collect();
    texts.splice(1..1, [port, "[[port]]\nname = \"eth2\"\n".to_owned()]);
    texts.insert(0, EXAMPLE_HEAD.to_owned());
    texts.join("\n")
}

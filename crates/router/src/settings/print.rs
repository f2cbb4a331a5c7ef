//! Settings as a file again, and as a summary for people.

use std::fmt::Write;

use super::Settings;
use crate::table::{Align, Table};

/// A text as TOML writes it.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for char in text.chars() {
        match char {
            '"' | '\\' => quoted.extend(['\\', char]),
            // TOML 1.0, String: other control characters have to be escaped.
            char if char.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(char));
            }
            char => quoted.push(char),
        }
    }
    quoted + "\""
}

/// Writes texts as a list of TOML.
fn list(texts: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let texts: Vec<String> = texts.into_iter().map(|text| quoted(text.as_ref())).collect();
    format!("[{}]", texts.join(", "))
}

impl Settings {
    /// A settings file that says the same, defaults included.
    pub(crate) fn to_toml(&self) -> String {
        let mut sections = vec![format!("fail = \"{}\"\n", self.fail.word())];
        for port in &self.ports {
            let mut section = format!("[[port]]\nname = {}\n", quoted(&port.name));
            let _ = writeln!(section, "driver = \"{}\"", port.driver.word());
            for (key, value) in [("device", port.device.as_deref()), ("options", Some(port.options.as_str()))]
            {
                if let Some(value) = value.filter(|value| !value.is_empty()) {
                    let _ = writeln!(section, "{key} = {}", quoted(value));
                }
            }
            sections.push(section + &format!("host = \"{}\"\n", port.host.word()));
        }
        let workers = &self.workers;
        let min = workers.min.map_or_else(String::new, |min| format!("min = {min}\n"));
        sections.push(format!(
            "[workers]\ncount = {}\nburst = {}\nbalance = {}\n{min}pin = {}\n",
            workers.count, workers.burst, workers.balance, workers.pin
        ));
        sections.push(format!("[slow_path]\nmode = \"{}\"\n", self.slow_path.word()));
        let file = self.acl.file.as_ref().map(|file| format!("file = {}\n", quoted(&file.to_string_lossy())));
        sections.push(format!(
            "[acl]\n{}rules = {}\ndefault = \"{}\"\n",
            file.unwrap_or_default(),
            list(&self.acl.rules),
            self.acl.default.word()
        ));
        sections.push(format!("[reverse_path]\nmode = \"{}\"\n", self.reverse_path.word()));
        sections.extend(self.fpm.as_ref().map(|fpm| {
            let users = fpm.users.as_ref().map(|users| format!("users = {}\n", list(users)));
            let (listen, insecure) = (fpm.listen, fpm.insecure);
            format!("[fpm]\nlisten = \"{listen}\"\n{}insecure = {insecure}\n", users.unwrap_or_default())
        }));
        let ignore = self.ignore.iter().map(|word| word.word());
        sections.push(format!("[beside_linux]\nignore = {}\n", list(ignore)));
        let control = &self.control;
        let socket = control.socket.as_ref().map(|path| path.to_string_lossy().into_owned());
        let mut section = "[control]\n".to_owned();
        for (key, value) in
            [("socket", &socket), ("read_group", &control.read_group), ("write_group", &control.write_group)]
        {
            if let Some(value) = value {
                let _ = writeln!(section, "{key} = {}", quoted(value));
            }
        }
        sections.push(section);
        sections.push(format!("[log]\nstats_seconds = {}\n", self.log.stats_seconds));
        sections.join("\n")
    }

    /// What the settings say, for people.
    pub(super) fn summary(&self) -> String {
        let mut table =
            Table::new(&[("port", Align::Left), ("opened as", Align::Left), ("Linux sees", Align::Left)]);
        for port in &self.ports {
            let host = match port.host {
                _ if port.driver == super::Driver::Vlan => format!("an interface {}", port.name),
                super::Host::Interface => "the interface itself".to_owned(),
                super::Host::Tap => format!("a TAP interface {}", port.name),
                super::Host::None => "nothing".to_owned(),
            };
            table.row([port.name.clone(), port.spec(), host]);
        }
        let workers = &self.workers;
        let rules = match (&self.acl.file, self.acl.rules.len()) {
            (None, 0) => "no rules".to_owned(),
            (None, count) => format!("{count} rules"),
            (Some(file), count) => format!("{count} rules and those of {}", file.display()),
        };
        let fpm = match &self.fpm {
            None => "off".to_owned(),
            Some(fpm) if fpm.insecure => format!("at {}, for everybody", fpm.listen),
            Some(fpm) => format!("at {}", fpm.listen),
        };
        let bypassed: Vec<&str> = self.ignore.iter().map(|word| word.word()).collect();
        let bypassed = if bypassed.is_empty() { "nothing".to_owned() } else { bypassed.join(", ") };
        let usual = || "the usual socket of the network namespace".to_owned();
        let socket = self.control.socket.as_ref().map_or_else(usual, |path| path.display().to_string());
        format!(
            "{}\nworkers       {} ({}, {}, bursts of {})\nslow path     {}\naccess list   {rules}, then {}\n\
             reverse path  {}\nno router     {}\nFPM           {fpm}\nbypasses      {bypassed}\ncontrol       {socket}\n",
            table.render(),
            workers.count,
            if workers.balance { "balanced" } else { "not balanced" },
            if workers.pin { "each on its CPU" } else { "on any CPU" },
            workers.burst,
            self.slow_path.word(),
            self.acl.default.word(),
            self.reverse_path.word(),
            match self.fail {
                super::Fail::Open => "Linux forwards between the ports (fail = \"open\")",
                super::Fail::Closed => "nothing is forwarded between the ports (fail = \"closed\")",
            },
        )
    }
}

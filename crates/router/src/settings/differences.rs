//! Which options differ between two settings, by their names in the file.

use toml::Table;

use super::Settings;

impl Settings {
    /// Returns the names of the options that differ, as `workers.count`; `port` for any of the ports. Both are compared as files,
    /// so that no option is forgotten.
    pub(crate) fn differences(&self, other: &Settings) -> Vec<String> {
        let (ours, theirs) = (self.table(), other.table());
        let mut names = Vec::new();
        for section in keys(&ours, &theirs) {
            let parts = [&ours, &theirs].map(|table| table.get(section));
            let [ours, theirs] = parts.map(|part| part.and_then(|part| part.as_table()));
            let empty = Table::new();
            let (ours, theirs) = (ours.unwrap_or(&empty), theirs.unwrap_or(&empty));
            let differ = keys(ours, theirs).into_iter().filter(|key| ours.get(*key) != theirs.get(*key));
            names.extend(differ.map(|key| format!("{section}.{key}")));
            // Ports are a list.
            if parts[0] != parts[1] && ours.is_empty() && theirs.is_empty() {
                names.push(section.to_owned());
            }
        }
        names
    }

    /// Returns the value of an option by its name, as the file has it; `None` if it is not set.
    pub(crate) fn value(&self, option: &str) -> Option<String> {
        let (section, key) = option.split_once('.')?;
        Some(self.table().get(section)?.get(key)?.to_string())
    }

    fn table(&self) -> Table {
        self.to_toml().parse().expect("what is printed is a settings file")
    }
}

/// Returns the keys of either table, each once.
fn keys<'a>(one: &'a Table, other: &'a Table) -> Vec<&'a str> {
    let only = other.keys().filter(|key| !one.contains_key(*key));
    one.keys().chain(only).map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{AclDefault, Driver, FpmSettings};
    use super::*;

    #[test]
    fn options_that_differ_are_named() {
        let settings = Settings::of_ports(["eth1", "eth2"], Driver::AfXdp).unwrap();
        assert!(settings.differences(&settings).is_empty());
        let mut other = Settings::of_ports(["eth1", "eth3"], Driver::AfXdp).unwrap();
        other.acl.default = AclDefault::Deny;
        other.workers.count = 2;
        other.fpm = Some(FpmSettings::at("127.0.0.1:1".parse().unwrap()));
        other.control.read_group = Some("x".into());
        let expected =
            ["acl.default", "control.read_group", "port", "workers.count", "fpm.insecure", "fpm.listen"];
        assert_eq!(settings.differences(&other), expected);
        assert_eq!(other.value("workers.count").as_deref(), Some("2"));
        assert_eq!(settings.value("control.read_group"), None);
    }
}

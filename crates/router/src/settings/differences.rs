//! Which options differ between two settings, by their names in the file.

use super::Settings;

impl Settings {
    /// Returns all options but those of ports, by their names, with their values as TOML.
    fn values(&self) -> impl Iterator<Item = (String, Option<String>)> {
        self.sections()
            .into_iter()
            .flat_map(|section| section.options().iter().map(|option| option.name()).zip(section.values()))
    }

    /// Returns the names of the options that differ, as `workers.count`; `port` for any of the ports.
    pub(crate) fn differences(&self, other: &Settings) -> Vec<String> {
        let differ = self.values().zip(other.values()).filter(|(ours, theirs)| ours != theirs);
        let ports = (self.ports != other.ports).then(|| "port".to_owned());
        differ.map(|((name, _), _)| name).chain(ports).collect()
    }

    /// Returns the value of an option by its name, as the file has it; `None` if it is not set.
    pub(crate) fn value(&self, option: &str) -> Option<String> {
        self.values().find(|(name, _)| name == option)?.1
    }
}

#[cfg(test)]
mod tests {
    use super::super::Driver;
    use super::*;

    #[test]
    fn options_that_differ_are_named() {
        let settings = Settings::of_ports(["eth1", "eth2"], Driver::AfXdp).unwrap();
        assert!(settings.differences(&settings).is_empty());
        let mut other = Settings::of_ports(["eth1", "eth3"], Driver::AfXdp).unwrap();
        let option = Settings::options().find(|option| option.name() == "acl.default").unwrap();
        other.set(option, "deny").unwrap();
        other.workers.count = 2;
        other.fpm.listen = "127.0.0.1:1".parse().ok();
        other.control.read_group = Some("x".into());
        let expected = ["workers.count", "acl.default", "fpm.listen", "control.read_group", "port"];
        assert_eq!(settings.differences(&other), expected);
        assert_eq!(other.value("workers.count").as_deref(), Some("2"));
        assert_eq!(settings.value("control.read_group"), None);
    }
}

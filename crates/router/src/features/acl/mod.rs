//! The access list: rules for packets that pass.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `mod` | its settings |
//! | `configuration` | its elements in the configuration |
//! | `in_kernel` | the lists by which the program in the kernel judges |
//! | `live` | `brickway show acl`, and what a reload changes |

mod configuration;
mod in_kernel;
mod live;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use elements::acl::{AccessList, RuleMistake};
use graph::setup::Shared;
use ports::KernelForwarding;

use super::{Feature, ItemMistake, Running, Shown};
use crate::drop_in::{Frame, Part, Plan};
use crate::settings::options::{About, options, words};

words! {
    /// What happens to packets that no rule decides.
    Action {
        /// They are forwarded.
        Permit "permit",
        /// They are dropped.
        Deny "deny",
    }
}

options! {
    /// The access list.
    Settings "acl" {
        /// Rules for packets that pass, as element ACL takes them (`brickway help ACL`): ["deny tcp any any port 25"].
        #[example = "[]"]
        #[live = true]
        rules: Vec<String> = Vec::new(),
        /// A file with more rules, one a line (`brickway help ACL`). Packets that no rule matches are denied; where all rules deny, they
        /// are permitted. In a settings file a relative path begins at that file's folder.
        #[example = "\"rules.txt\""]
        #[flag("acl", "FILE")]
        #[live = true]
        file: Option<PathBuf> = None,
        /// The action for packets that no rule matches: "permit" or "deny". Without it a list that has a `permit`, or no rule, denies
        /// them; a list of nothing but denials permits them.
        #[example = "\"deny\""]
        #[live = true]
        default: Option<Action> = None,
    }
}

impl Settings {
    /// Returns the text of the file of rules, empty without one.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    fn file_text(&self) -> Result<String> {
        let Some(file) = &self.file else { return Ok(String::new()) };
        graph::files::read_text(file)
            .with_context(|| format!("the file of rules '{}' cannot be read", file.display()))
    }

    /// Returns whether packets that no rule matches are permitted, if the settings decide it. Settings without a rule, a file or a
    /// default have no list, and permit all: at a reload too.
    fn permits_the_rest(&self) -> Option<bool> {
        match self.filters() {
            true => self.default.map(|default| default == Action::Permit),
            false => Some(true),
        }
    }

    /// Returns the rules of the settings, each with its place.
    fn own_rules(&self) -> impl Iterator<Item = (String, &str)> {
        (1..).zip(&self.rules).map(|(number, rule)| (format!("rule {number}"), rule.as_str()))
    }

    /// Returns these and those of the text of the file, each with its place.
    fn rules_and_file<'a>(&'a self, text: &'a str) -> impl Iterator<Item = (String, &'a str)> {
        let name = self.file.as_ref().map_or(String::new(), |file| file.display().to_string());
        let lines = (1..).zip(text.lines()).map(move |(number, line)| (format!("{name}:{number}"), line));
        self.own_rules().chain(lines)
    }
}

impl About for Settings {
    fn summary(&self) -> Option<(&'static str, String)> {
        let rules = match (&self.file, self.rules.len()) {
            (None, 0) => "no rules".to_owned(),
            (None, count) => format!("{count} rules"),
            (Some(file), count) => format!("{count} rules and those of {}", file.display()),
        };
        // Its rules decide else, once they are read.
        let rest = self.default.map_or(String::new(), |default| format!(", then {}", default.word()));
        Some(("access list", rules + &rest))
    }
}

impl Feature for Settings {
    fn filters(&self) -> bool {
        self.file.is_some() || !self.rules.is_empty() || self.default == Some(Action::Deny)
    }

    fn sees_transit(&self, shared: &Shared) -> Option<&'static str> {
        let fits = in_kernel::lists(shared).all(|(list, version)| list.fits_kernel(version));
        (!fits).then_some("the access list is too long for the kernel")
    }

    fn lists_in_kernel(&self) -> bool {
        self.filters()
    }

    fn follow_in_kernel(&self, shared: &Shared, forwarding: &mut KernelForwarding) {
        in_kernel::follow(shared, forwarding);
    }

    fn place_files(&mut self, folder: &Path) {
        self.file = self.file.take().map(|file| folder.join(file));
    }

    fn before_lookups(&self, plan: &mut Plan, frame: &Frame<'_>, to: [Part; 2]) -> Result<[Part; 2]> {
        configuration::before_lookups(self, plan, frame.ports, to)
    }

    fn shown(&self) -> &'static [Shown] {
        live::SHOWN
    }

    fn problems(&self, running: &Running<'_>) -> Vec<String> {
        // What one list has the other one has.
        live::lists(running).first().map_or_else(Vec::new, |list| list.doubts(self.filters()))
    }

    fn files(&self) -> Vec<PathBuf> {
        self.file.iter().cloned().collect()
    }

    fn can_reload(&self, running: &Running<'_>) -> bool {
        !live::lists(running).is_empty()
    }

    fn reload(&self, running: &Running<'_>) -> Result<Option<String>, String> {
        let rest = live::reload(self, running)?;
        Ok(Some(format!("access list read, then {}", rest.word())))
    }

    fn mistakes(&self, ports: &[&str]) -> Vec<ItemMistake> {
        if self.rules.is_empty() {
            return Vec::new();
        }
        let mistakes = AccessList::written(self.own_rules(), &configuration::inputs(ports)).err();
        let of_rules = mistakes.into_iter().flatten();
        of_rules.map(|RuleMistake { line, text }| ItemMistake { key: "rules", item: line, text }).collect()
    }

    fn check(&self, ports: &[&str]) -> Result<Vec<String>> {
        configuration::doubts(self, ports)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(rules: &[&str]) -> Result<String, String> {
        let rules = rules.iter().map(|rule| (*rule).to_owned()).collect();
        let settings = Settings { rules, ..Settings::default() };
        let arguments = configuration::arguments(&settings, &["eth1", "eth2"]);
        arguments.map(Option::unwrap).map_err(|error| error.to_string())
    }

    #[test]
    fn a_rule_is_one_rule_whatever_its_text_has() {
        let rest = "INPUTS \"eth1 1, eth2 2\"";
        let rules = [
            "10 permit tcp any any  # bob's web",
            "20 deny any any any in eth2",
            "# alice's \" /*",
            "deny udp any any # a, b",
        ];
        let expected =
            format!("10 permit tcp any any, 20 deny any any any in eth2, 30 deny udp any any, {rest}");
        assert_eq!(written(&rules), Ok(expected));
        for (rule, part) in [
            ("deny udp any any port 5000, permit any any any", "rule 1"),
            ("permit any any any) -> Discard; x :: Idle; //", "rule 1"),
            ("10 deny any any any // c", "rule 1"),
            ("permit any any any /* a", "rule 1"),
            ("DEFAULT permit", "rule 1: word 1 is 'DEFAULT'"),
        ] {
            let error = written(&[rule]).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_file_is_named_whatever_its_name_has() {
        let folder = testbed::Folder::new();
        let file = folder.path().join("a\"b, $c");
        std::fs::write(&file, "deny any any any\n").unwrap();
        let settings = Settings { file: Some(file), ..Settings::default() };
        let text = configuration::arguments(&settings, &["eth1"]).unwrap().unwrap();
        let text = format!("Idle -> ACL({text}) -> Discard;");
        let source = graph::lang::Source { name: "x".into(), text };
        assert!(crate::load::compile(&source, &graph::lang::Options::default(), &crate::classes()).is_some());
    }
}

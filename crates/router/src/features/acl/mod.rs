//! The access list: rules for packets that pass.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `mod` | its settings |
//! | `configuration` | its elements in the configuration |
//! | `live` | `brickway show acl`, and what a reload changes |

mod configuration;
mod live;

use std::path::{Path, PathBuf};

use anyhow::Result;
use graph::lang::{Options, Source};

use super::{Feature, Running, Shown};
use crate::drop_in::{Frame, Part, Plan};
use crate::load;
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
        /// A file with more rules, one a line (`brickway help ACL`). What no rule matches passes; a last rule `deny any any any`
        /// drops it. In a settings file a relative path begins at that file's folder.
        #[example = "\"rules.txt\""]
        #[flag("acl", "FILE")]
        #[live = true]
        file: Option<PathBuf> = None,
        /// What happens to packets that no rule matches: "permit" or "deny".
        #[example = "\"permit\""]
        #[live = true]
        default: Action = Action::Permit,
    }
}

impl About for Settings {
    fn summary(&self) -> Option<(&'static str, String)> {
        let rules = match (&self.file, self.rules.len()) {
            (None, 0) => "no rules".to_owned(),
            (None, count) => format!("{count} rules"),
            (Some(file), count) => format!("{count} rules and those of {}", file.display()),
        };
        Some(("access list", format!("{rules}, then {}", self.default.word())))
    }
}

impl Feature for Settings {
    fn filters(&self) -> bool {
        self.file.is_some() || !self.rules.is_empty() || self.default == Action::Deny
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
        let lists = live::lists(running);
        let warning = "the access list denies nothing: no rule denies, and what no rule matches is permitted; \
                       a last rule 'deny any any any' or [acl] default = \"deny\" changes that";
        let denies_nothing = !lists.is_empty() && lists.iter().all(|list| list.permits_all());
        denies_nothing.then(|| warning.to_owned()).into_iter().collect()
    }

    fn has_files(&self) -> bool {
        self.file.is_some()
    }

    fn can_reload(&self, running: &Running<'_>) -> bool {
        !live::lists(running).is_empty()
    }

    fn reload(&self, running: &Running<'_>) -> Result<Option<String>, String> {
        live::reload(self, running)?;
        Ok(Some(format!("access list read, then {}", self.default.word())))
    }

    fn is_right(&self, ports: &[&str]) -> Result<bool> {
        let Some(text) = configuration::alone(self, ports.iter().copied())? else { return Ok(true) };
        let source = Source { name: "[acl]".into(), text };
        Ok(load::compile(&source, &Options::default(), &crate::classes()).is_some())
    }
}

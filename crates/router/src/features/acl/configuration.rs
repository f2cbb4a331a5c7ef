//! The access list in the configuration.

use anyhow::{Result, bail};

use super::Settings;
use crate::drop_in::{Part, Plan, PlannedPort};
use crate::features::Feature;

/// The arguments of the elements of an access list, and what they are called; none without rules.
fn arguments<'a>(settings: &Settings, ports: impl Iterator<Item = &'a str>) -> Result<Option<String>> {
    if !settings.filters() {
        return Ok(None);
    }
    let mut arguments: Vec<String> = settings.rules.clone();
    if let Some(file) = &settings.file {
        if !file.is_file() {
            bail!("there is no file of rules '{}'", file.display());
        }
        arguments.push(format!("FILE \"{}\"", file.display()));
    }
    arguments.push(format!("DEFAULT {}", settings.default.word()));
    let inputs: Vec<String> = (1..).zip(ports).map(|(paint, port)| format!("{port} {paint}")).collect();
    arguments.push(format!("INPUTS \"{}\"", inputs.join(", ")));
    Ok(Some(arguments.join(", ")))
}

pub(super) fn before_lookups(
    settings: &Settings,
    plan: &mut Plan,
    ports: &[PlannedPort],
    to: [Part; 2],
) -> Result<[Part; 2]> {
    let Some(arguments) = arguments(settings, ports.iter().map(|port| port.name.as_str()))? else { return Ok(to) };
    plan.comment("The access list.");
    let [to4, to6] = to;
    Ok([("acl4", to4), ("acl6", to6)]
        .map(|(name, to)| plan.element(name, format_args!("ACL({arguments}) -> {to}"))))
}

/// Returns a configuration of nothing but the access list.
pub(super) fn alone<'a>(settings: &Settings, ports: impl Iterator<Item = &'a str>) -> Result<Option<String>> {
    let arguments = arguments(settings, ports)?;
    Ok(arguments.map(|arguments| format!("Idle -> ACL({arguments}) -> Discard;")))
}

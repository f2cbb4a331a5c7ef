//! The access list in the configuration.

use anyhow::{Result, anyhow};
use elements::acl::{AccessList, RuleMistake};
use graph::lang::{name_argument, quote};

use super::in_kernel::ELEMENTS;
use super::Settings;
use crate::drop_in::{Part, Plan, PlannedPort};
use crate::features::Feature;

/// Returns what an operator should know of the list, if there is one.
///
/// # Errors
///
/// What is wrong with each rule and each line of the file.
pub(super) fn doubts(settings: &Settings, ports: &[&str]) -> Result<Vec<String>> {
    if !settings.filters() {
        return Ok(Vec::new());
    }
    let text = settings.file_text()?;
    AccessList::doubts_of(settings.rules_and_file(&text), &inputs(ports), settings.permits_the_rest()).map_err(wrong)
}

fn wrong(mistakes: Vec<RuleMistake>) -> anyhow::Error {
    anyhow!("{}", RuleMistake::texts(mistakes).join("\n"))
}

/// Returns the argument INPUTS for these ports.
pub(super) fn inputs(ports: &[&str]) -> String {
    let inputs: Vec<String> = (1..).zip(ports).map(|(paint, port)| format!("{} {paint}", name_argument(port))).collect();
    inputs.join(", ")
}

/// The arguments of the elements of an access list; none without rules. Rules are read here, and written anew: whatever else a text
/// of the settings has never becomes a part of the configuration.
///
/// # Errors
///
/// What is wrong with each rule and each line of the file.
pub(super) fn arguments(settings: &Settings, ports: &[&str]) -> Result<Option<String>> {
    if !settings.filters() {
        return Ok(None);
    }
    let inputs = inputs(ports);
    let text = settings.file_text()?;
    // With those of the file, which may have their numbers.
    AccessList::written(settings.rules_and_file(&text), &inputs).map_err(wrong)?;
    let mut arguments = AccessList::written(settings.own_rules(), &inputs).map_err(wrong)?;
    if let Some(file) = &settings.file {
        arguments.push(format!("FILE {}", quote(&file.to_string_lossy())));
    }
    arguments.extend(settings.default.map(|default| format!("DEFAULT {}", default.word())));
    arguments.push(format!("INPUTS {}", quote(&inputs)));
    Ok(Some(arguments.join(", ")))
}

pub(super) fn before_lookups(
    settings: &Settings,
    plan: &mut Plan,
    ports: &[PlannedPort],
    to: [Part; 2],
) -> Result<[Part; 2]> {
    let names: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
    let Some(arguments) = arguments(settings, &names)? else { return Ok(to) };
    plan.comment("The access list.");
    let [name4, name6] = ELEMENTS.map(|(name, _)| name);
    let [to4, to6] = to;
    Ok([(name4, to4), (name6, to6)]
        .map(|(name, to)| plan.element(name, format_args!("ACL({arguments}) -> {to}"))))
}

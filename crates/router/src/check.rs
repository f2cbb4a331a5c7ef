//! `brickway check`: is a configuration, or a settings file, right, and what is in it?

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use graph::lang::Options;

use crate::load;
use crate::output::print;
use crate::settings;
use crate::table::{Align, Table};

/// Parses a configuration, checks its classes, ports and connections, and lists its elements. Nothing is
/// opened, so no privilege is needed.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway check router.click
  brickway check router.click PORT0=eth5
  brickway check router.click --dot | dot -Tsvg -o router.svg
  brickway check router.click --flat      one level, compounds expanded
  brickway check brickway.toml            the settings of `brickway run --config`")]
pub(crate) struct CheckArguments {
    /// The configuration (`-` is standard input), or a settings file (FILE.toml)
    file: PathBuf,
    /// Values of the configuration's variables
    #[arg(value_name = "NAME=VALUE", value_parser = load::parameter)]
    parameters: Vec<(String, String)>,
    /// Print a Graphviz graph
    #[arg(long, conflicts_with_all = ["flat", "json"])]
    dot: bool,
    /// Print the flat configuration: compounds expanded, one declaration a line
    #[arg(long, conflicts_with = "json")]
    flat: bool,
    /// Print one JSON object per element
    #[arg(long)]
    json: bool,
}

pub(crate) fn check(arguments: &CheckArguments) -> Result<ExitCode> {
    if settings::is_settings_file(&arguments.file) {
        return settings::check(&arguments.file);
    }
    let source = load::read(&arguments.file)?;
    load::check_parameters(&source, &arguments.parameters)?;
    let options = Options { parameters: arguments.parameters.clone(), ..Options::default() };
    let Some(flat) = load::compile(&source, &options, &crate::classes()) else {
        return Ok(ExitCode::FAILURE);
    };
    if arguments.dot {
        print(&flat.to_dot());
    } else if arguments.flat {
        print(&flat.flat_text());
    } else if arguments.json {
        for element in &flat.elements {
            let object = serde_json::json!({
                "name": element.name, "class": element.class, "config": element.config,
                "inputs": element.inputs, "outputs": element.outputs,
                "file": &*element.location.file, "line": element.location.line,
            });
            print(&format!("{object}\n"));
        }
    } else {
        let mut table = Table::new(&[
            ("element", Align::Left),
            ("class", Align::Left),
            ("in", Align::Right),
            ("out", Align::Right),
            ("line", Align::Right),
            ("configuration", Align::Left),
        ]);
        for element in &flat.elements {
            let config = element.config.split_whitespace().collect::<Vec<_>>().join(" ");
            let short: String = config.chars().take(60).collect();
            let config = if short.len() < config.len() { format!("{short} ...") } else { config };
            table.row([
                element.name.clone(),
                element.class.clone(),
                element.inputs.to_string(),
                element.outputs.to_string(),
                element.location.line.to_string(),
                config,
            ]);
        }
        print(&table.render());
        print(&format!(
            "{}: no mistakes; {} elements, {} connections\n",
            source.name,
            flat.elements.len(),
            flat.connections.len()
        ));
        let divided = crate::whole_frames::divided_before(&flat, &[]);
        if !divided.is_empty() {
            let names = divided.join(", ");
            print(&format!(
                "packets that senders have merged are divided before: {names} ('brickway help Divide')\n"
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}

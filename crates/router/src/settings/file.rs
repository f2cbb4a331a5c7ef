//! From a settings file to settings, or to every mistake in the file.

use std::collections::HashSet;
use std::io::{ErrorKind, IsTerminal};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use graph::lang::Diagnostics;

use super::options::About;
use super::reader::{File, Section};
use super::{
    BesideLinux, ControlSettings, FpmSettings, General, LogSettings, MemorySettings, MetricsSettings,
    PortSettings, Settings, TableSettings, WebSettings, WorkerSettings,
};
use crate::export::{ipfix, sflow};
use crate::features::{FeatureSettings, vlan};
use crate::output::print;

/// Ports of a router: more than it has numbers for.
const MOST_PORTS: usize = 250;

/// Whether a file is one of settings, by its name.
pub(crate) fn is_settings_file(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "toml")
}

/// Reads a settings file, or returns the mistakes in it.
///
/// # Errors
/// It cannot be read, or is a cluster's file.
pub(crate) fn load(path: &Path) -> Result<Result<Settings, Diagnostics>> {
    let name = path.display().to_string();
    let text = graph::files::read_text(path).with_context(|| format!("cannot read the settings '{name}'"))?;
    match parse(&name, &text) {
        Ok(mut settings) => {
            // Beside the settings, wherever the program was started.
            if let Some(folder) = path.parent() {
                settings.features.place_files(folder);
            }
            Ok(Ok(settings))
        }
        // Its mistakes as settings would help nobody.
        Err(_) if values(&text, "topology").next().is_some() => {
            bail!(
                "{name}: this is a cluster's file; run 'brickway cluster check {name}', or 'brickway cluster run {name} NODE'"
            )
        }
        Err(mistakes) => Ok(Err(mistakes)),
    }
}

/// Prints the mistakes of a settings file.
pub(crate) fn print_mistakes(mistakes: &Diagnostics) -> ExitCode {
    graph::messages::print_as_it_is(&mistakes.render(std::io::stderr().is_terminal()));
    ExitCode::FAILURE
}

/// Returns the ports of a settings file that asks for `fail = "closed"`, whatever mistakes are in it; it need not even be TOML. A `fail`
/// in any section counts, and every value but "open" means closed. Each `name` in the file counts as a port.
pub(crate) fn ports_to_close(path: &Path) -> Vec<PortSettings> {
    let Ok(bytes) = graph::files::read_beginning(path) else { return Vec::new() };
    let text = String::from_utf8_lossy(&bytes);
    if values(&text, "fail").all(|value| value == "open") {
        return Vec::new();
    }
    let file = File::new("", &text);
    let table = file.parse();
    let read = table
        .as_ref()
        .map(|table| ports(&file, Section::root(&file, table).sections("port"), &TableSettings::default()));
    let mut found = read.unwrap_or_default();
    let mut names: HashSet<String> = found.iter().map(|port| port.name.clone()).collect();
    for name in values(&text, "name") {
        if names.insert(name.to_owned()) {
            found.push(PortSettings::new(name));
        }
    }
    found
}

/// Returns the value behind each `KEY =`, which ends at a quote, comma, bracket or comment.
fn values<'t>(text: &'t str, key: &'t str) -> impl Iterator<Item = &'t str> {
    let code = text.lines().map(|line| line.split_once('#').map_or(line, |(code, _)| code));
    let values = code.flat_map(move |code| {
        code.match_indices(key).filter_map(move |(at, _)| {
            let is_end_of_word = code[..at].ends_with(|c: char| c.is_alphanumeric() || "_-.".contains(c));
            let value =
                code[at + key.len()..].trim_start_matches(['"', '\'']).trim_start().strip_prefix('=')?;
            let value = value.trim_start().trim_start_matches(['"', '\'']);
            let end = value.find(['"', '\'', ',', '}', ']']).unwrap_or(value.len());
            Some(value[..end].trim()).filter(|_| !is_end_of_word)
        })
    });
    values.filter(|value| !value.is_empty())
}

/// `brickway check FILE.toml`: the mistakes, or what the settings say.
///
/// # Errors
/// It cannot be read.
pub(crate) fn check(path: &Path) -> Result<ExitCode> {
    let settings = match load(path)? {
        Ok(settings) => settings,
        Err(mistakes) => return Ok(print_mistakes(&mistakes)),
    };
    let ports: Vec<&str> = settings.ports.iter().map(|port| port.name.as_str()).collect();
    let mut warnings = Vec::new();
    for feature in settings.features.all() {
        warnings.extend(feature.check(&ports)?);
    }
    match crate::run::Doors::check(&settings) {
        // Secrets may be root's alone, and on another machine.
        Err(error) if !rustix::process::geteuid().is_root() && cannot_be_read(&error) => {
            warnings.push(format!("{error:#}"));
        }
        checked => checked?,
    }
    print(&settings.summary());
    warnings.iter().for_each(|warning| print(&format!("warning: {warning}\n")));
    print(&format!("{}: no mistakes\n", path.display()));
    Ok(ExitCode::SUCCESS)
}

/// Whether a file is missing, or not for this user.
fn cannot_be_read(error: &anyhow::Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    causes.any(|cause| matches!(cause.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied))
}

/// Reads the text of a settings file; `name` is for messages.
///
/// # Errors
/// All mistakes in it.
pub(crate) fn parse(name: &str, text: &str) -> Result<Settings, Diagnostics> {
    let file = File::new(name, text);
    let settings = file.parse().map(|table| {
        let mut root = Section::root(&file, &table);
        let tables = root.options("tables", TableSettings::read);
        let settings = Settings {
            general: General::read(&mut root),
            ports: ports(&file, root.sections("port"), &tables),
            workers: root.options("workers", WorkerSettings::read),
            memory: root.options("memory", MemorySettings::read),
            tables,
            features: FeatureSettings::read(&mut root),
            fpm: root.options("fpm", FpmSettings::read),
            beside_linux: root.options("beside_linux", BesideLinux::read),
            control: root.options("control", ControlSettings::read),
            log: root.options("log", LogSettings::read),
            metrics: root.options("metrics", MetricsSettings::read),
            web: root.options("web", WebSettings::read),
            sflow: root.options("sflow", sflow::Settings::read),
            ipfix: root.options("ipfix", ipfix::Settings::read),
            follows_ipsec: false,
        };
        let mut ports: Vec<&str> = settings.ports.iter().map(|port| port.name.as_str()).collect();
        // One that is there twice is reported as that.
        let mut names = HashSet::new();
        ports.retain(|port| names.insert(*port));
        for feature in settings.features.all().into_iter().filter(|_| !ports.is_empty()) {
            let section = feature.options().first().map_or("", |option| option.section);
            feature.mistakes(&ports).iter().for_each(|mistake| root.mistake_in(section, mistake));
        }
        root.finish();
        settings
    });
    match file.into_mistakes() {
        Some(mistakes) => Err(mistakes),
        None => Ok(settings.expect("a file that is not TOML has a mistake")),
    }
}

fn ports(file: &File<'_>, sections: Vec<Section<'_, '_>>, tables: &TableSettings) -> Vec<PortSettings> {
    if sections.is_empty() {
        file.mistake(0..0, "there are no ports", "write [[port]], and below it name = \"eth1\"");
    }
    let mut ports: Vec<PortSettings> = Vec::new();
    let (mut of_ports, mut names) = (Vec::new(), HashSet::new());
    if sections.len() > MOST_PORTS {
        let message = format!("{} ports", sections.len());
        file.mistake(0..0, message, &format!("a router has {MOST_PORTS} at most"));
        return ports;
    }
    for mut section in sections {
        let mut port = PortSettings::read(&mut section);
        if !section.has("host") {
            port.host = PortSettings::usual_host(port.driver);
        }
        if port.name.is_empty() {
            if !section.has("name") {
                section.mistake("name", "a port without a name", "add the interface: name = \"eth1\"");
            }
            section.finish();
            continue;
        }
        if let Some((key, message, right)) = port.problem() {
            section.mistake(key, message, &right);
        }
        if let Some((message, right)) = tables.problem_with(port.driver) {
            section.mistake("driver", message, &right);
        }
        if !names.insert(port.name.clone()) {
            let message = format!("port '{}' is there twice", port.name);
            section.mistake("name", message, "each port has a name of its own");
        }
        ports.push(port);
        of_ports.push(section);
    }
    vlan::find_vlans(&mut ports, |at| {
        !["driver", "device", "options", "host"].iter().any(|key| of_ports[at].has(key))
    });
    for (port, section) in ports.iter().zip(of_ports) {
        if let Some((key, message, right)) = vlan::problem(port, &ports) {
            section.mistake(key, message, &right);
        }
        section.finish();
    }
    ports
}

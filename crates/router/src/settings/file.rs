//! From a settings file to settings, or to every mistake in the file.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use graph::lang::Diagnostics;

use super::reader::{File, Section};
use super::{
    AclDefault, AclSettings, Bypass, ControlSettings, Driver, Fail, FpmSettings, Host, LogSettings,
    MOST_WORKERS, PortSettings, RIGHT_LISTEN, ReversePath, Settings, SlowPath, WorkerSettings, vlan,
};
use crate::drop_in;
use crate::output::print;

/// Whether a file is one of settings, by its name.
pub(crate) fn is_settings_file(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "toml")
}

/// Reads a settings file. `None`: it has mistakes, which were printed.
///
/// # Errors
/// It cannot be read.
pub(crate) fn load(path: &Path) -> Result<Option<Settings>> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read the settings '{name}'"))?;
    match parse(&name, &text) {
        Ok(mut settings) => {
            // Beside the settings, wherever the program was started.
            if let (Some(rules), Some(folder)) = (&mut settings.acl.file, path.parent()) {
                *rules = folder.join(&rules);
            }
            Ok(Some(settings))
        }
        Err(mistakes) => {
            graph::messages::print_as_it_is(&mistakes.render(std::io::stderr().is_terminal()));
            Ok(None)
        }
    }
}

/// Returns the ports of a settings file that asks for `fail = "closed"`, whatever mistakes are in it; it need not even be TOML. A `fail`
/// in any section counts, and every value but "open" means closed. Each `name` in the file counts as a port.
pub(crate) fn ports_to_close(path: &Path) -> Vec<PortSettings> {
    let Ok(bytes) = std::fs::read(path) else { return Vec::new() };
    let text = String::from_utf8_lossy(&bytes);
    if values(&text, "fail").all(|value| value == "open") {
        return Vec::new();
    }
    let file = File::new("", &text);
    let table = file.parse();
    let read =
        table.as_ref().map(|table| ports(&file, Section::root(&file, table).sections("port", "[[port]]")));
    let mut found = read.unwrap_or_default();
    for name in values(&text, "name") {
        if !found.iter().any(|port| port.name == name) {
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
    let Some(settings) = load(path)? else { return Ok(ExitCode::FAILURE) };
    if !drop_in::rules_are_right(&settings)? {
        return Ok(ExitCode::FAILURE);
    }
    print(&settings.summary());
    print(&format!("{}: no mistakes\n", path.display()));
    Ok(ExitCode::SUCCESS)
}

/// Reads the text of a settings file; `name` is for messages.
///
/// # Errors
/// All mistakes in it.
pub(super) fn parse(name: &str, text: &str) -> Result<Settings, Diagnostics> {
    let file = File::new(name, text);
    let settings = file.parse().map(|table| {
        let mut root = Section::root(&file, &table);
        let settings = Settings {
            fail: root.choice("fail", Fail::WORDS).unwrap_or_default(),
            ports: ports(&file, root.sections("port", "[[port]]")),
            workers: workers(root.section("workers", "[workers]")),
            slow_path: slow_path(root.section("slow_path", "[slow_path]")),
            acl: acl(root.section("acl", "[acl]")),
            reverse_path: reverse_path(root.section("reverse_path", "[reverse_path]")),
            fpm: fpm(root.section("fpm", "[fpm]")),
            ignore: beside_linux(root.section("beside_linux", "[beside_linux]")),
            control: control(root.section("control", "[control]")),
            log: log(root.section("log", "[log]")),
        };
        root.finish();
        settings
    });
    match file.into_mistakes() {
        Some(mistakes) => Err(mistakes),
        None => Ok(settings.expect("a file that is not TOML has a mistake")),
    }
}

fn ports(file: &File<'_>, sections: Vec<Section<'_, '_>>) -> Vec<PortSettings> {
    if sections.is_empty() {
        file.mistake(0..0, "there are no ports", "write [[port]], and below it name = \"eth1\"");
    }
    let mut ports: Vec<PortSettings> = Vec::new();
    let mut of_ports = Vec::new();
    for mut section in sections {
        let name = section.text("name");
        let driver = section.choice("driver", Driver::WORDS).unwrap_or_default();
        let device = section.text("device");
        let options = section.text("options").unwrap_or_default();
        let host = section.choice("host", Host::WORDS).unwrap_or(PortSettings::usual_host(driver));
        if let Some(name) = name {
            let port = PortSettings { name, driver, device, options, host };
            if let Some((key, message, right)) = port.problem() {
                section.mistake(key, message, &right);
            }
            if ports.iter().any(|other| other.name == port.name) {
                section.mistake(
                    "name",
                    format!("port '{}' is there twice", port.name),
                    "each port has a name of its own",
                );
            }
            ports.push(port);
            of_ports.push(section);
            continue;
        } else if !section.has("name") {
            section.mistake("name", "a port without a name", "add the interface: name = \"eth1\"");
        }
        section.finish();
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

fn workers(mut section: Section<'_, '_>) -> WorkerSettings {
    let usual = WorkerSettings::default();
    let workers = WorkerSettings {
        count: section.number("count", 1..=MOST_WORKERS).unwrap_or(usual.count),
        burst: section.number("burst", 1..=packet::MAX_BATCH).unwrap_or(usual.burst),
        balance: section.switch("balance").unwrap_or(usual.balance),
        min: section.number("min", 1..=MOST_WORKERS),
        pin: section.switch("pin").unwrap_or(usual.pin),
    };
    if let Some(min) = workers.min.filter(|&min| min > workers.count) {
        section.mistake(
            "min",
            format!("at least {min} of {} workers", workers.count),
            "min is at most count",
        );
    }
    if workers.min.is_some() && !workers.balance {
        section.mistake("min", "min without balance does nothing", "set balance = true, or leave min out");
    }
    section.finish();
    workers
}

fn slow_path(mut section: Section<'_, '_>) -> SlowPath {
    let mode = section.choice("mode", SlowPath::WORDS).unwrap_or_default();
    section.finish();
    mode
}

fn acl(mut section: Section<'_, '_>) -> AclSettings {
    let acl = AclSettings {
        file: section.text("file").map(PathBuf::from),
        rules: section.texts("rules").unwrap_or_default(),
        default: section.choice("default", AclDefault::WORDS).unwrap_or_default(),
    };
    section.finish();
    acl
}

fn reverse_path(mut section: Section<'_, '_>) -> ReversePath {
    let mode = section.choice("mode", ReversePath::WORDS).unwrap_or_default();
    section.finish();
    mode
}

fn fpm(mut section: Section<'_, '_>) -> Option<FpmSettings> {
    let listen = section.parsed("listen", "an address and a port, as in \"127.0.0.1:2620\",");
    let users = section.texts("users");
    let insecure = section.switch("insecure").unwrap_or_default();
    let fpm = listen.map(|listen| FpmSettings { listen, users, insecure });
    if let Some(problem) = fpm.as_ref().and_then(FpmSettings::problem) {
        section.mistake("listen", problem, RIGHT_LISTEN);
    }
    for key in ["users", "insecure"] {
        if section.has(key) && !section.has("listen") {
            section.mistake(key, format!("{key} without listen does nothing"), "add listen, or leave it out");
        }
    }
    section.finish();
    fpm
}

fn beside_linux(mut section: Section<'_, '_>) -> Vec<Bypass> {
    let ignore = section.choices("ignore", Bypass::WORDS).unwrap_or_default();
    section.finish();
    ignore
}

fn control(mut section: Section<'_, '_>) -> ControlSettings {
    let control = ControlSettings {
        socket: section.text("socket").map(PathBuf::from),
        read_group: section.text("read_group"),
        write_group: section.text("write_group"),
    };
    section.finish();
    control
}

fn log(mut section: Section<'_, '_>) -> LogSettings {
    let stats_seconds = section.decimal("stats_seconds", 0.0..=86_400.0);
    section.finish();
    LogSettings { stats_seconds: stats_seconds.unwrap_or_default() }
}

//! `brickway extcap`: our ports in Wireshark's list of interfaces, by its interface for external programs (extcap(4)).

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use control::api::{CaptureQuery, PortFilter, PortRow, Request, Show};

use super::places::{DROPS, PUNTS};
use super::{Sink, filter, receive};
use crate::output::print;
use crate::show::{Socket, find};

/// What interfaces are called there, before the port.
const PREFIX: &str = "brickway-";

/// Under this name the program is always this subcommand: Wireshark calls all programs of a folder.
const PROGRAM: &str = "brickway-extcap";

/// Answers Wireshark, which calls this by a link in a folder: a running router's ports are then among its interfaces.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  ln -s $(command -v brickway) FOLDER/brickway-extcap
  tshark -D                                     lists brickway-PORT, brickway-drops, brickway-punts
  tshark -i brickway-eth1 -f icmp

FOLDER is an extcap path of Help, About Wireshark, Folders (tshark -G folders). Wireshark has to run in the router's network namespace,
and its user has to be allowed to capture: root, or a member of the group in [control] write_group.")]
pub(crate) struct ExtcapArguments {
    /// List the interfaces
    #[arg(long)]
    extcap_interfaces: bool,
    /// List the link types of an interface
    #[arg(long)]
    extcap_dlts: bool,
    /// List the options of an interface
    #[arg(long)]
    extcap_config: bool,
    /// The interface
    #[arg(long, value_name = "INTERFACE")]
    extcap_interface: Option<String>,
    /// The version of Wireshark, which does not matter
    #[arg(long, value_name = "VERSION", num_args = 0..=1)]
    extcap_version: Option<Option<String>>,
    /// Packets that this selects; without --capture it is checked
    #[arg(long, value_name = "FILTER")]
    extcap_capture_filter: Option<String>,
    /// Capture
    #[arg(long, requires = "fifo", requires = "extcap_interface")]
    capture: bool,
    /// Where packets are written
    #[arg(long, value_name = "FILE")]
    fifo: Option<PathBuf>,
    /// Keep so many bytes of a packet
    #[arg(long, value_name = "BYTES")]
    snaplen: Option<u32>,
    #[command(flatten)]
    socket: Socket,
}

/// Returns whether the program was called by Wireshark's name for it.
pub(crate) fn is_extcap(program: &Path) -> bool {
    program.file_name().is_some_and(|name| name == PROGRAM)
}

pub(crate) fn extcap(arguments: &ExtcapArguments) -> Result<ExitCode> {
    let filter = arguments.extcap_capture_filter.as_deref().unwrap_or_default();
    if arguments.capture {
        let (Some(interface), Some(fifo)) = (&arguments.extcap_interface, &arguments.fifo) else {
            anyhow::bail!("--capture: no interface or no file; expected --extcap-interface and --fifo");
        };
        let what = interface.strip_prefix(PREFIX).unwrap_or(interface).to_owned();
        let filter = filter::compile(filter)?;
        let query =
            CaptureQuery { what: Some(what), count: None, bytes: arguments.snaplen, filter, sample: None };
        return receive(&arguments.socket, query, || Sink::file(fifo));
    }
    if arguments.extcap_interfaces {
        print(&format!("extcap {{version={}}}{{display=Brickway}}\n", env!("CARGO_PKG_VERSION")));
        print(&interfaces(&ports(&arguments.socket)?));
    } else if arguments.extcap_dlts {
        print("dlt {number=1}{name=EN10MB}{display=Ethernet}\n");
    } else if arguments.extcap_config {
        print(
            "arg {number=0}{call=--snaplen}{display=Bytes of a packet}{type=unsigned}{range=64,65535}\
             {tooltip=Longer packets are cut}{required=false}\n\
             arg {number=1}{call=--socket}{display=Control socket}{type=string}\
             {tooltip=That of the router in this network namespace, if none is given}{required=false}\n",
        );
    } else if let Err(error) = filter::compile(filter) {
        // Wireshark shows what is printed as what is wrong.
        print(&format!("{error}\n"));
    }
    Ok(ExitCode::SUCCESS)
}

/// The ports of the router; none where none may be asked, for Wireshark has other interfaces to list.
fn ports(socket: &Socket) -> Result<Vec<String>> {
    let Ok(Ok(mut client)) = find(socket, true) else { return Ok(Vec::new()) };
    let Ok(rows) = client.ask(&Request::Show(Show::Ports(PortFilter::default()))) else {
        return Ok(Vec::new());
    };
    let mut ports = Vec::new();
    for row in rows {
        let row: PortRow = serde_json::from_str(&row?).context("the router's answer cannot be read")?;
        ports.push(row.name);
    }
    Ok(ports)
}

fn interfaces(ports: &[String]) -> String {
    let places = if ports.is_empty() { &[][..] } else { &[DROPS, PUNTS] };
    let names = ports.iter().map(String::as_str).chain(places.iter().copied());
    names.map(|name| format!("interface {{value={PREFIX}{name}}}{{display=Brickway: {name}}}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_sentences_that_wireshark_reads() {
        let ports = ["eth1".to_owned(), "eth1.100".to_owned()];
        let text = interfaces(&ports);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "interface {value=brickway-eth1.100}{display=Brickway: eth1.100}");
        assert_eq!(lines.len(), 4);
        assert!(interfaces(&[]).is_empty());
        assert!(is_extcap(Path::new("/home/x/.local/lib/wireshark/extcap/brickway-extcap")));
        assert!(!is_extcap(Path::new("brickway")));
    }
}

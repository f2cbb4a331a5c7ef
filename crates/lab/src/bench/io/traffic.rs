//! What passes between the veth links of a group: the destinations of its frames, and the routes that Linux has for them.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fib::read::Row;
use fib::synthesize::{destinations_inside, next_hop_of_origin};
use packet::{Family, IpVersion};

use super::Setting;
use super::cases::{Load, Routes};
use super::network::{NEXT_HOPS, SINK, address, neighbour_mac, neighbours};
use crate::bench::{frames, routes};

/// Files for the source and for Linux.
pub(super) struct Traffic {
    /// An address a line.
    pub(super) destinations: PathBuf,
    /// What `ip -batch` reads: neighbours, and the routes over them.
    pub(super) routes: PathBuf,
}

impl Traffic {
    /// Makes the files of a line, for routes that leave by its interface `sending`. Lines behind the first have no routes but those of their
    /// own networks.
    pub(super) fn new(setting: &Setting<'_>, load: Load, line: u8, sending: &str) -> Result<Self> {
        let (folder, arguments) = (setting.folder.path(), setting.arguments);
        match load.family {
            // The network of the sink is the only one.
            family if load.routes == Routes::One || line > 0 => {
                let sink = address(family, 2 * line + 1, SINK);
                Self::write(folder, family, &format!("{sink}\n"), "", (line, sending))
            }
            IpVersion::V4 => {
                let rows = rows(&arguments.frames.table, load.routes)?;
                let destinations = frames::destinations(&rows, load.dests).into_iter().map(u32::from);
                Self::through(folder, &rows, destinations, sending)
            }
            IpVersion::V6 => {
                let rows = rows::<u128>(&arguments.table6, load.routes)?;
                let destinations = destinations_inside(&rows, load.dests, 7).into_iter();
                Self::through(folder, &rows, destinations, sending)
            }
        }
    }

    fn through<A: Family>(
        folder: &Path,
        rows: &[Row<A>],
        destinations: impl Iterator<Item = A>,
        sending: &str,
    ) -> Result<Self> {
        let destinations: String =
            destinations.map(|destination| format!("{}\n", A::Ip::from(destination))).collect();
        let mut routes = String::with_capacity(rows.len() * 64);
        for row in rows {
            let number = next_hop_of_origin(row.origin, NEXT_HOPS).get() - 1;
            let gateway = address(A::VERSION, 1, SINK + number);
            writeln!(routes, "route add {} via {gateway} dev {sending}", row.prefix)?;
        }
        Self::write(folder, A::VERSION, &destinations, &routes, (0, sending))
    }

    fn write(
        folder: &Path,
        family: IpVersion,
        destinations: &str,
        routes: &str,
        (line, sending): (u8, &str),
    ) -> Result<Self> {
        let neighbour = |host| {
            let (address, mac) = (address(family, 2 * line + 1, host), neighbour_mac(host));
            format!("neigh replace {address} lladdr {mac} dev {sending} nud permanent\n")
        };
        let neighbours: String = neighbours().map(neighbour).collect();
        let file = |name: &str| folder.join(format!("{name}{line}"));
        let traffic = Self { destinations: file("destinations"), routes: file("routes") };
        for (path, text) in [(&traffic.destinations, destinations), (&traffic.routes, &(neighbours + routes))]
        {
            fs::write(path, text).with_context(|| format!("cannot write '{}'", path.display()))?;
        }
        Ok(traffic)
    }
}

/// The rows of a table with so many of them.
fn rows<A: Family>(table: &Path, wanted: Routes) -> Result<Vec<Row<A>>> {
    let real = routes::real(table)?;
    Ok(match wanted {
        Routes::Grown(count) => routes::grown(&real, count),
        _ => real,
    })
}

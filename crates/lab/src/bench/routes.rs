//! The tables of routes that the example router is measured with.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fib::read::Row;
use packet::Family;

use tempfile::TempDir;

use super::single_core::ROUTER_PORTS;

/// The real table, out of which larger ones are grown.
pub(super) fn real<A: Family>(path: &Path) -> Result<Vec<Row<A>>> {
    let table = fib::read::load(path).with_context(|| {
        format!("cannot read the table '{}' (run in the project's folder)", path.display())
    })?;
    Ok(table.rows)
}

/// A table of so many routes: the real one, thinned or grown.
pub(super) fn grown<A: Family>(real: &[Row<A>], count: usize) -> Vec<Row<A>> {
    fib::synthesize::table(real, count, 1)
}

/// Writes a grown table into the folder.
pub(super) fn write_table(folder: &TempDir, name: &str, rows: &[Row]) -> Result<PathBuf> {
    let path = folder.path().join(format!("{name}.txt"));
    let mut text = String::with_capacity(rows.len() * 24);
    for row in rows {
        text.push_str(&format!("{} {}\n", row.prefix, row.origin));
    }
    std::fs::write(&path, text).with_context(|| format!("cannot write '{}'", path.display()))?;
    Ok(path)
}

/// The port, 1 to 3, that routes of an origin lead to: as the example router draws it.
pub(super) fn port_of(origin: u32) -> usize {
    fib::synthesize::next_hop_of_origin(origin, ROUTER_PORTS as u16 - 1).index()
}

/// One next hop for everything. In two halves, because the example router has its own route for 0.0.0.0/0.
pub(super) fn default_route() -> Vec<Row> {
    let half = |first: u8| ipnet::Ipv4Net::new_assert(Ipv4Addr::new(first, 0, 0, 0), 1);
    vec![Row { prefix: half(0), origin: 1 }, Row { prefix: half(128), origin: 1 }]
}

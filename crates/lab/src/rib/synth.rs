//! `brickway-lab rib synth`: a table of any size, made of a real one.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use fib::read::Row;
use fib::synthesize;
use flate2::Compression;
use flate2::write::GzEncoder;
use ipnet::IpNet;
use packet::Family;

use super::input::{self, InputArguments};
use super::route::{Route, Target};
use super::show::print_all;
use router::table::thousands;

/// Makes a table of N routes out of a real one. If N is smaller, it is a random sample. Else it is all of it and more-specifics
/// (/24, in IPv6 /48) with another origin inside randomly chosen shorter prefixes, as on the Internet.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway-lab rib synth data/rib-v4.txt.gz --routes 1000000 --output million.txt.gz
  brickway-lab rib synth data/rib-v6.txt.gz --routes 1000 --seed 7 | brickway-lab rib stats -

The same file, number and seed give the same table on every machine. Use it as the FILE of a lookup element.")]
pub(crate) struct SynthArguments {
    /// The real table, with origins; '-' is standard input
    file: String,
    /// How many routes the new table has
    #[arg(long, value_name = "N")]
    routes: usize,
    /// Where random numbers begin
    #[arg(long, default_value_t = 1, value_name = "S")]
    seed: u64,
    /// Where to write it, compressed if the name ends in .gz; standard output if not given
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    input: InputArguments,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

pub(super) fn synth(arguments: &SynthArguments) -> Result<ExitCode> {
    let loaded = input::load(&arguments.file, &arguments.input)?;
    let (mut ipv4, mut ipv6): (Vec<Row<u32>>, Vec<Row<u128>>) = (Vec::new(), Vec::new());
    for Route { prefix, target } in loaded.routes {
        let Target::Origin(origin) = target else {
            bail!("'{}' has next hops and no origins; a table grows from PREFIX ORIGIN rows", arguments.file)
        };
        match prefix {
            IpNet::V4(prefix) => ipv4.push(Row { prefix, origin }),
            IpNet::V6(prefix) => ipv6.push(Row { prefix, origin }),
        }
    }
    match (ipv4.is_empty(), ipv6.is_empty()) {
        (true, true) => bail!("'{}' has no routes to make a table of", arguments.file),
        (false, true) => write(&grow(&ipv4, arguments)?, arguments),
        (true, false) => write(&grow(&ipv6, arguments)?, arguments),
        (false, false) => bail!("'{}' has routes of both families; choose one with -4 or -6", arguments.file),
    }
}

fn grow<A: Family>(real: &[Row<A>], arguments: &SynthArguments) -> Result<Vec<Row<A>>> {
    let rows = synthesize::table(real, arguments.routes, arguments.seed);
    if rows.len() < arguments.routes {
        bail!(
            "there is room for {} routes only: every /{} inside a shorter prefix is announced",
            thousands(rows.len() as u64),
            synthesize::nested_length::<A>()
        );
    }
    Ok(rows)
}

fn write<A: Family>(rows: &[Row<A>], arguments: &SynthArguments) -> Result<ExitCode> {
    let lines = rows.iter().map(|row| {
        let route = Route { prefix: row.prefix.into(), target: Target::Origin(row.origin) };
        if arguments.json { route.json().to_string() } else { route.to_string() }
    });
    let Some(path) = &arguments.output else {
        print_all(lines);
        return Ok(ExitCode::SUCCESS);
    };
    let problem = || format!("cannot write '{}'", path.display());
    let file = BufWriter::new(File::create(path).with_context(problem)?);
    if path.extension().is_some_and(|extension| extension == "gz") {
        let mut encoder =
            write_lines(GzEncoder::new(file, Compression::default()), lines).with_context(problem)?;
        encoder.try_finish().with_context(problem)?;
        encoder.get_mut().flush().with_context(problem)?;
    } else {
        write_lines(file, lines).with_context(problem)?.flush().with_context(problem)?;
    }
    graph::note!("{} routes in '{}'", thousands(rows.len() as u64), path.display());
    Ok(ExitCode::SUCCESS)
}

fn write_lines<W: Write>(mut output: W, lines: impl Iterator<Item = String>) -> io::Result<W> {
    for line in lines {
        output.write_all(line.as_bytes())?;
        output.write_all(b"\n")?;
    }
    Ok(output)
}

//! Functions of addresses, and what a stack of them is called: elements at its base, without the machine that carries batches
//! from one to the next.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use blazesym::Pid;
use blazesym::symbolize::source::{Elf, Kernel, Process, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use object::Object;

use super::sampler::Stack;

/// Where packages put symbols, by the build identifiers of their programs.
const APART: &str = "/usr/lib/debug/.build-id";

/// What a function without a name is called.
const UNKNOWN: &str = "[unknown]";

/// What the functions that begin a thread are called; those of the C library often have no name.
const BEGINNINGS: [&str; 11] = [
    UNKNOWN,
    "std::",
    "<std::",
    "core::",
    "<core::",
    "alloc::",
    "<alloc::",
    "_start",
    "__",
    "clone",
    "start_thread",
];

/// The functions at an address, the outermost first: several where some were inlined.
type Functions = HashMap<u64, Vec<String>>;

pub(super) struct Names {
    user: Functions,
    kernel: Functions,
}

impl Names {
    /// Looks up all addresses of the stacks of a process.
    pub(super) fn of<'a>(process: i32, stacks: impl Iterator<Item = &'a Stack> + Clone) -> Result<Self> {
        let symbolizer = Symbolizer::new();
        let number = u32::try_from(process).ok().context("a process has a positive number")?;
        let source = |debug_syms| Source::Process(Process { debug_syms, ..Process::new(Pid::from(number)) });
        let addresses: BTreeSet<u64> = stacks.clone().flat_map(|stack| stack.user.iter().copied()).collect();
        // The table of symbols has whole names, and debugging information those of inlined functions.
        let mut user = functions(&symbolizer, &source(false), addresses.clone(), 0)
            .with_context(|| format!("process {process}: the names of its functions are not to be had"))?;
        if let Some((symbols, begin)) = symbols_apart(process) {
            let nameless = addresses.iter().copied().filter(|address| !user.contains_key(address));
            let source = Source::Elf(Elf { debug_syms: false, ..Elf::new(symbols) });
            // Without them the program has those of debugging information, if any.
            user.extend(functions(&symbolizer, &source, nameless.collect(), begin).unwrap_or_default());
        }
        // A program without it, or with one in a form that is not known here, has no inlined functions.
        for (address, with_inlined) in functions(&symbolizer, &source(true), addresses, 0).unwrap_or_default()
        {
            let inlined = with_inlined.into_iter().skip(1);
            user.entry(address).or_insert_with(|| vec![UNKNOWN.to_owned()]).extend(inlined);
        }
        let addresses: BTreeSet<u64> = stacks.flat_map(|stack| stack.kernel.iter().copied()).collect();
        // A kernel that hides its addresses (kernel.kptr_restrict) has no names.
        let kernel =
            functions(&symbolizer, &Source::Kernel(Kernel::default()), addresses, 0).unwrap_or_default();
        Ok(Self { user, kernel })
    }

    /// The frames of a stack, the outermost first.
    pub(super) fn frames(&self, stack: &Stack) -> Vec<String> {
        let named = |known: &Functions, address| match known.get(address) {
            Some(names) => names.clone(),
            None => vec![UNKNOWN.to_owned()],
        };
        let user = stack.user.iter().rev().map(|address| named(&self.user, address)).collect();
        let kernel = stack.kernel.iter().rev().flat_map(|address| named(&self.kernel, address));
        let mut frames = by_element(user);
        frames.extend(kernel.map(|name| format!("{name}_[k]")));
        frames
    }
}

/// Returns the file with the table of symbols of a process's program where packages have it apart, and where the program begins in
/// memory.
fn symbols_apart(process: i32) -> Option<(PathBuf, u64)> {
    let program = format!("/proc/{process}/exe");
    let bytes = std::fs::read(&program).ok()?;
    let id = object::File::parse(&*bytes).ok()?.build_id().ok()??;
    let id: Vec<String> = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let (first, rest) = id.split_first()?;
    let symbols = Path::new(APART).join(first).join(format!("{}.debug", rest.concat()));
    let path = std::fs::read_link(program).ok()?;
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).ok()?;
    // The first mapping of a position-independent program has its address 0.
    let begin = maps.lines().find(|line| line.ends_with(&*path.to_string_lossy()))?.split('-').next()?;
    symbols.exists().then_some((symbols, u64::from_str_radix(begin, 16).ok()?))
}

/// Returns the functions at addresses of memory. A file's addresses are those from `begin` on.
fn functions(
    symbolizer: &Symbolizer,
    source: &Source<'_>,
    addresses: BTreeSet<u64>,
    begin: u64,
) -> Result<Functions> {
    let addresses: Vec<u64> = addresses.into_iter().filter(|&address| address >= begin).collect();
    let offsets: Vec<u64> = addresses.iter().map(|address| address - begin).collect();
    let input = match source {
        Source::Elf(_) => Input::VirtOffset(&offsets[..]),
        _ => Input::AbsAddr(&offsets[..]),
    };
    let found = symbolizer.symbolize(source, input)?;
    let named = addresses.iter().zip(found).filter_map(|(&address, found)| {
        let Symbolized::Sym(symbol) = found else { return None };
        let inlined = symbol.inlined.iter().map(|function| without_hash(&function.name));
        Some((address, [without_hash(&symbol.name)].into_iter().chain(inlined).collect()))
    });
    Ok(named.collect())
}

/// A name without the hash that the compiler appends: `graph::run::h0123456789abcdef`.
fn without_hash(name: &str) -> String {
    let is_hash = |hash: &str| hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    match name.rsplit_once("::h") {
        Some((name, hash)) if is_hash(hash) => name.to_owned(),
        _ => name.to_owned(),
    }
}

/// The functions at the addresses of a stack, with `element TYPE` and `fused run` in the place of those by which the machine calls
/// elements and runs. Its own functions before them are left out, and what begins a thread.
fn by_element(functions: Vec<Vec<String>>) -> Vec<String> {
    let begins = |names: &Vec<String>| BEGINNINGS.iter().any(|start| names[0].starts_with(start));
    // A thread that does nothing else, such as one that waits in the standard library, keeps its last function.
    let first =
        functions.iter().position(|names| !begins(names)).unwrap_or(functions.len().saturating_sub(1));
    let (mut frames, mut since) = (Vec::new(), 0);
    for function in functions.into_iter().skip(first).flatten() {
        let Some(label) = label(&function) else {
            frames.push(function);
            continue;
        };
        frames.truncate(since);
        // A run's work within that of its crossing is the same step.
        if frames.last() != Some(&label) {
            frames.push(label);
        }
        since = frames.len();
    }
    frames
}

/// Of a method by which the machine calls an element or a run: which it is.
fn label(function: &str) -> Option<String> {
    let (kind, of) = match function.rsplit_once("<impl graph::") {
        // `elements::runs::<impl graph::runs::Work for elements::runs::Arrival>::apply`
        Some((_, of)) => {
            of.split_once(" for ").map(|(of, kind)| (kind.rsplit_once(">::").map_or(kind, |it| it.0), of))?
        }
        // `<elements::ip::Check as graph::element::Element>::push`
        None => {
            let (kind, of) = function.strip_prefix('<')?.rsplit_once(" as graph::")?;
            (kind, of.split_once(">::")?.0)
        }
    };
    match of {
        "runs::Work" | "runs::Crossing" => Some("fused run".to_owned()),
        "element::Element" => Some(format!("element {}", without_path(kind))),
        _ => None,
    }
}

/// A type without the modules that it lies in: `a::b::Lookup<c::Four>` as `Lookup<Four>`.
fn without_path(kind: &str) -> String {
    let mut short = String::new();
    let mut word = 0;
    for letter in kind.chars() {
        if letter == ':' {
            short.truncate(word);
            continue;
        }
        short.push(letter);
        if !(letter.is_alphanumeric() || letter == '_') {
            word = short.len();
        }
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(functions: &[&str]) -> Vec<String> {
        by_element(functions.iter().map(|&function| vec![function.to_owned()]).collect())
    }

    #[test]
    fn elements_take_the_place_of_what_calls_them() {
        let machine = "graph::context::machine::<impl graph::context::Context>::follow";
        let check = "<elements::ip::check::CheckIpHeader as graph::element::Element>::push";
        let pull = "click::queues::<impl graph::element::Element for click::queues::Queue<u8>>::pull";
        let send = "<elements::devices::to_device::ToDevice as graph::element::Element>::task";
        assert_eq!(
            of(&["std::sys::start", machine, check, "packet::checksum::of"]),
            ["element CheckIpHeader", "packet::checksum::of"]
        );
        assert_eq!(
            of(&[machine, send, "graph::context::Context::pull", pull]),
            ["element ToDevice", "element Queue<u8>"]
        );
        let crossing =
            "<elements::runs::crossing::Crossing<elements::runs::Ipv4> as graph::runs::Crossing>::apply";
        let work = "elements::runs::<impl graph::runs::Work for elements::runs::Arrival>::apply";
        assert_eq!(of(&[machine, work, crossing, "fib::lookup"]), ["fused run", "fib::lookup"]);
        assert_eq!(of(&["clone3", "start_thread", "std::thread", machine, "poll"]), [machine, "poll"]);
        assert_eq!(of(&["std::thread", "std::park"]), ["std::park"]);
        assert!(of(&[]).is_empty());
    }

    #[test]
    fn names_are_without_hashes_and_types_without_paths() {
        assert_eq!(without_hash("graph::run::h0123456789abcdef"), "graph::run");
        assert_eq!(without_hash("graph::hash::half"), "graph::hash::half");
        assert_eq!(without_path("a::b::Lookup<c::Four, [d::Six; 2]>"), "Lookup<Four, [Six; 2]>");
    }

    #[test]
    fn a_function_of_this_program_has_its_name() {
        #[inline(never)]
        fn here() -> u64 {
            here as *const () as u64
        }
        let stack = Stack { user: vec![1, here()], ..Stack::default() };
        let names = Names::of(std::process::id() as i32, [&stack].into_iter()).unwrap();
        let frames = names.frames(&stack);
        assert!(frames[0].ends_with("a_function_of_this_program_has_its_name::here"), "{frames:?}");
        assert_eq!(frames[1..], [UNKNOWN]);
    }
}

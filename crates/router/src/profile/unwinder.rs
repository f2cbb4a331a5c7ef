//! The callers in a copy of a thread's stack, by the unwinding tables (`.eh_frame`) of the files that its process has mapped.

use std::io::Read;
use std::ops::Range;

use anyhow::{Context, Result};
use framehop::{
    CacheNative, ExplicitModuleSectionInfo, MayAllocateDuringUnwind, Module, UnwindRegsNative, Unwinder,
    UnwinderNative,
};
use object::{Object, ObjectSection, ObjectSegment};

/// Most callers of a function that are looked for.
const MOST_CALLERS: usize = 200;

pub(super) struct Unwinding {
    unwinder: UnwinderNative<Vec<u8>, MayAllocateDuringUnwind>,
    cache: CacheNative<MayAllocateDuringUnwind>,
}

/// Code of a file in memory.
#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    memory: Range<u64>,
    offset: u64,
    path: String,
}

/// Reads a file with code. The process chose it, and may be another user's: it is regular and not endless.
fn read_program(path: &str) -> std::io::Result<Vec<u8>> {
    const MOST_BYTES: u64 = 1 << 30;
    let mut bytes = Vec::new();
    graph::files::open_regular(path.as_ref())?.take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl Unwinding {
    /// Reads the tables of all code that a process has mapped.
    pub(super) fn of(process: i32) -> Result<Self> {
        let maps = std::fs::read_to_string(format!("/proc/{process}/maps"))
            .with_context(|| format!("process {process}: its memory map cannot be read"))?;
        let mut unwinder = UnwinderNative::new();
        for mapping in maps.lines().filter_map(mapping) {
            // The link works where the file was replaced since, or lies in another mount namespace.
            let Range { start, end } = mapping.memory;
            let bytes = read_program(&format!("/proc/{process}/map_files/{start:x}-{end:x}"))
                .or_else(|_| read_program(&mapping.path));
            // Frames of a file that cannot be read, or is not a program, have no callers.
            if let Some(module) = bytes.ok().and_then(|bytes| module(mapping, &bytes)) {
                unwinder.add_module(module);
            }
        }
        Ok(Self { unwinder, cache: CacheNative::new() })
    }

    /// Returns the address at which a thread is, and those of its callers, the innermost first. Return addresses are those of the
    /// call. `copy` is the stack from the stack pointer on.
    pub(super) fn callers(
        &mut self,
        address: u64,
        registers: UnwindRegsNative,
        stack_pointer: u64,
        copy: &[u8],
    ) -> Vec<u64> {
        let mut read = |at: u64| {
            let at = usize::try_from(at.wrapping_sub(stack_pointer)).map_err(|_| ())?;
            let word = copy.get(at..).and_then(|rest| rest.first_chunk()).ok_or(())?;
            Ok(u64::from_ne_bytes(*word))
        };
        let mut frames = self.unwinder.iter_frames(address, registers, &mut self.cache, &mut read);
        let mut callers = Vec::new();
        while let Ok(Some(frame)) = frames.next() {
            callers.push(frame.address_for_lookup());
            if callers.len() == MOST_CALLERS {
                break;
            }
        }
        callers
    }
}

/// Reads a line of `/proc/PID/maps`, if it is code of a file.
fn mapping(line: &str) -> Option<Mapping> {
    let mut words = line.split_ascii_whitespace();
    let (memory, permissions, offset) = (words.next()?, words.next()?, words.next()?);
    let path = words.nth(2)?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = memory.split_once('-')?;
    let is_code = permissions.contains('x') && path.starts_with('/');
    let path = line.get(line.find(path)?..)?.to_owned();
    is_code.then_some(Mapping { memory: number(start)?..number(end)?, offset: number(offset)?, path })
}

fn module(mapping: Mapping, bytes: &[u8]) -> Option<Module<Vec<u8>>> {
    let file = object::File::parse(bytes).ok()?;
    let Mapping { memory, offset, path } = mapping;
    let bytes_mapped = offset..offset + (memory.end - memory.start);
    let (begin, address) = file.segments().find_map(|segment| {
        let (begin, size) = segment.file_range();
        let is_it = size > 0 && bytes_mapped.contains(&begin);
        is_it.then(|| (begin, segment.address()))
    })?;
    // Where address 0 of the file would lie.
    let base = memory.start.wrapping_add(begin - offset).wrapping_sub(address);
    let section = |name| {
        let section = file.section_by_name(name)?;
        let data = section.uncompressed_data().ok()?.into_owned();
        Some((section.address()..section.address() + section.size(), data))
    };
    let (text_svma, text) = section(".text").unzip();
    let (eh_frame_svma, eh_frame) = section(".eh_frame").unzip();
    let (eh_frame_hdr_svma, eh_frame_hdr) = section(".eh_frame_hdr").unzip();
    let got_svma = section(".got").map(|(range, _)| range);
    let sections = ExplicitModuleSectionInfo {
        text_svma,
        text,
        got_svma,
        eh_frame_svma,
        eh_frame,
        eh_frame_hdr_svma,
        eh_frame_hdr,
        ..ExplicitModuleSectionInfo::default()
    };
    Some(Module::new(path, memory, base, sections))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_files_is_found_in_a_map() {
        let line = "55d1c0a00000-55d1c0b00000 r-xp 00012000 fe:01 1234   /opt/a router/brickway (deleted)";
        let expected = Mapping {
            memory: 0x55d1_c0a0_0000..0x55d1_c0b0_0000,
            offset: 0x12000,
            path: "/opt/a router/brickway (deleted)".to_owned(),
        };
        assert_eq!(mapping(line), Some(expected));
        for other in [
            "55d1c0a00000-55d1c0b00000 r--p 00012000 fe:01 1234   /opt/brickway",
            "7ffd3a5f0000-7ffd3a5f2000 r-xp 00000000 00:00 0      [vdso]",
            "7f0000000000-7f0000001000 r-xp 00000000 00:00 0",
            "",
        ] {
            assert_eq!(mapping(other), None, "{other}");
        }
    }
}

//! Any bytes as a program of the packet filter, run over any bytes: refused, or an answer.
#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::filter_program::{FilterProgram, Instruction};

/// Instructions of eight bytes, as Linux has them.
fn instructions(bytes: &[u8]) -> Vec<Instruction> {
    let words = bytes.as_chunks::<8>().0.iter();
    words
        .map(|&[low, high, jump_true, jump_false, a, b, c, d]| Instruction {
            code: u16::from_le_bytes([low, high]),
            jump_true,
            jump_false,
            k: u32::from_le_bytes([a, b, c, d]),
        })
        .collect()
}

fuzz_target!(|input: (u8, &[u8])| {
    let (share, bytes) = input;
    let (program, packet) = bytes.split_at(bytes.len() * usize::from(share) / 255);
    let mut program = instructions(program);
    for end in [None, Some(0x06), Some(0x16)] {
        program.extend(end.map(|code| Instruction { code, jump_true: 0, jump_false: 0, k: 1 }));
        if let Ok(filter) = FilterProgram::new(&program) {
            let _ = filter.selects(packet, packet.len() as u32);
        }
    }
});

//! Programs of the classic BSD packet filter (McCanne and Jacobson, USENIX 1993), as libpcap compiles tcpdump's filters: a check,
//! and an interpreter.
//!
//! A program comes from outside and runs among packets, so nothing of it is believed. [`FilterProgram::new`] takes only
//! programs whose jumps lead forward and stay inside, so that each run takes at most as many steps as there are instructions,
//! and whose end is a verdict. Loads beyond the packet, and divisions by an index that is zero, end a run with "no", as in
//! libpcap and Linux.

/// An instruction: its code, how many instructions to jump over where a test holds and where not, and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// What it does.
    pub code: u16,
    /// Instructions to jump over where its test holds.
    pub jump_true: u8,
    /// The same where it does not.
    pub jump_false: u8,
    /// A constant, an offset or a distance.
    pub k: u32,
}

/// Most instructions of a program, as in Linux.
pub const MOST_INSTRUCTIONS: usize = 4_096;

/// Words of memory that a program has.
const MEMORY: usize = 16;

// The parts of a code.
const CLASS: u16 = 0x07;
const LD: u16 = 0x00;
const LDX: u16 = 0x01;
const ST: u16 = 0x02;
const STX: u16 = 0x03;
const ALU: u16 = 0x04;
const JMP: u16 = 0x05;
const RET: u16 = 0x06;

/// What is read from, of a load.
const MODE: u16 = 0xe0;
const IMM: u16 = 0x00;
const ABS: u16 = 0x20;
const IND: u16 = 0x40;
const MEM: u16 = 0x60;
const LEN: u16 = 0x80;
const MSH: u16 = 0xa0;

/// How much, of a load.
const SIZE: u16 = 0x18;
const WORD: u16 = 0x00;
const HALF: u16 = 0x08;
const BYTE: u16 = 0x10;

/// The operation of an ALU instruction or a jump; the bit for the index register as its operand.
const OPERATION: u16 = 0xf0;
const BY_INDEX: u16 = 0x08;
const ADD: u16 = 0x00;
const SUB: u16 = 0x10;
const MUL: u16 = 0x20;
const DIV: u16 = 0x30;
const OR: u16 = 0x40;
const AND: u16 = 0x50;
const LSH: u16 = 0x60;
const RSH: u16 = 0x70;
const NEG: u16 = 0x80;
const MOD: u16 = 0x90;
const XOR: u16 = 0xa0;
const JA: u16 = 0x00;
const JEQ: u16 = 0x10;
const JGT: u16 = 0x20;
const JGE: u16 = 0x30;
const JSET: u16 = 0x40;

const RET_K: u16 = RET;
const RET_A: u16 = RET | 0x10;
const TAX: u16 = 0x07;
const TXA: u16 = 0x87;

/// A program that has been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterProgram(Box<[Instruction]>);

impl FilterProgram {
    /// Checks a program.
    ///
    /// # Errors
    /// Says which instruction is wrong, and why.
    pub fn new(program: &[Instruction]) -> Result<Self, String> {
        if program.is_empty() || program.len() > MOST_INSTRUCTIONS {
            return Err(format!(
                "filter: a program of {} instructions; expected 1 to {MOST_INSTRUCTIONS}",
                program.len()
            ));
        }
        for (number, instruction) in program.iter().enumerate() {
            // The instructions behind this one.
            let behind = (program.len() - number - 1) as u32;
            check(instruction, behind)
                .map_err(|problem| format!("filter: instruction {number} ({instruction:?}): {problem}"))?;
        }
        if program.last().is_none_or(|last| last.code & CLASS != RET) {
            return Err(
                "filter: the program has no end; expected a verdict as its last instruction".to_owned()
            );
        }
        Ok(Self(program.into()))
    }

    /// Returns whether the program selects a packet: the bytes that are there, and the length of the packet.
    pub fn selects(&self, data: &[u8], length: u32) -> bool {
        self.run(data, length).is_some_and(|verdict| verdict != 0)
    }

    /// Returns the program's verdict; `None` where it loads what is not there, or divides by zero.
    fn run(&self, data: &[u8], length: u32) -> Option<u32> {
        let (mut a, mut x, mut memory) = (0_u32, 0_u32, [0_u32; MEMORY]);
        let mut next = 0;
        // Jumps lead forward, so this ends. The check has seen that there is an instruction wherever it comes.
        while let Some(&Instruction { code, jump_true, jump_false, k }) = self.0.get(next) {
            next += 1;
            let operand = if code & BY_INDEX != 0 { x } else { k };
            match code & CLASS {
                LD => {
                    a = match code & MODE {
                        IMM => k,
                        LEN => length,
                        MEM => *memory.get(k as usize)?,
                        IND => load(data, code & SIZE, k.checked_add(x)?)?,
                        _ => load(data, code & SIZE, k)?,
                    }
                }
                LDX => {
                    x = match code & MODE {
                        IMM => k,
                        LEN => length,
                        MEM => *memory.get(k as usize)?,
                        // The length of an IPv4 header.
                        _ => (load(data, BYTE, k)? & 0xf) * 4,
                    }
                }
                ST => *memory.get_mut(k as usize)? = a,
                STX => *memory.get_mut(k as usize)? = x,
                ALU => {
                    a = match code & OPERATION {
                        ADD => a.wrapping_add(operand),
                        SUB => a.wrapping_sub(operand),
                        MUL => a.wrapping_mul(operand),
                        DIV => a.checked_div(operand)?,
                        MOD => a.checked_rem(operand)?,
                        OR => a | operand,
                        AND => a & operand,
                        XOR => a ^ operand,
                        LSH => a.checked_shl(operand).unwrap_or(0),
                        RSH => a.checked_shr(operand).unwrap_or(0),
                        _ => a.wrapping_neg(),
                    }
                }
                JMP => {
                    let holds = match code & OPERATION {
                        JA => {
                            next += k as usize;
                            continue;
                        }
                        JEQ => a == operand,
                        JGT => a > operand,
                        JGE => a >= operand,
                        _ => a & operand != 0,
                    };
                    next += usize::from(if holds { jump_true } else { jump_false });
                }
                RET => return Some(if code == RET_A { a } else { k }),
                _ if code == TAX => x = a,
                _ => a = x,
            }
        }
        None
    }
}

/// Reads a number of the packet.
fn load(data: &[u8], size: u16, at: u32) -> Option<u32> {
    let bytes = data.get(at as usize..)?;
    match size {
        WORD => bytes.first_chunk().map(|&word| u32::from_be_bytes(word)),
        HALF => bytes.first_chunk().map(|&half| u32::from(u16::from_be_bytes(half))),
        _ => bytes.first().map(|&byte| u32::from(byte)),
    }
}

/// Checks an instruction with so many behind it.
fn check(instruction: &Instruction, behind: u32) -> Result<(), &'static str> {
    let &Instruction { code, jump_true, jump_false, k } = instruction;
    let operation = code & OPERATION;
    let is_known = match code & CLASS {
        LD => match code & MODE {
            IMM | MEM | LEN => code & SIZE == WORD,
            ABS | IND => code & SIZE != SIZE,
            _ => false,
        },
        LDX => match code & MODE {
            IMM | MEM | LEN => code & SIZE == WORD,
            MSH => code & SIZE == BYTE,
            _ => false,
        },
        ST | STX => code & !CLASS == 0,
        ALU => operation <= XOR && (operation != NEG || code & BY_INDEX == 0),
        JMP => operation <= JSET && (operation != JA || code & BY_INDEX == 0),
        RET => code == RET_K || code == RET_A,
        _ => code == TAX || code == TXA,
    };
    if !is_known || code > 0xff {
        return Err("its code is unknown");
    }
    let uses_memory =
        matches!(code & CLASS, ST | STX) || matches!(code & CLASS, LD | LDX) && code & MODE == MEM;
    if uses_memory && k as usize >= MEMORY {
        return Err("it uses memory that is not there; expected words 0 to 15");
    }
    if code & CLASS == ALU && matches!(operation, DIV | MOD) && code & BY_INDEX == 0 && k == 0 {
        return Err("it divides by zero");
    }
    if code & CLASS == JMP {
        let furthest = if operation == JA { k } else { u32::from(jump_true.max(jump_false)) };
        if furthest >= behind {
            return Err("it jumps out of the program");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn instruction(code: u16, jump_true: u8, jump_false: u8, k: u32) -> Instruction {
        Instruction { code, jump_true, jump_false, k }
    }

    fn verdict(program: &[Instruction], data: &[u8]) -> Option<u32> {
        FilterProgram::new(program).unwrap().run(data, data.len() as u32)
    }

    /// `ip` of `tcpdump -d`, as libpcap compiles it for Ethernet.
    const IP: [Instruction; 4] = [
        Instruction { code: 0x28, jump_true: 0, jump_false: 0, k: 12 },
        Instruction { code: 0x15, jump_true: 0, jump_false: 1, k: 0x800 },
        Instruction { code: 0x06, jump_true: 0, jump_false: 0, k: 262_144 },
        Instruction { code: 0x06, jump_true: 0, jump_false: 0, k: 0 },
    ];

    #[test]
    fn a_program_selects_what_it_is_for() {
        let filter = FilterProgram::new(&IP).unwrap();
        let mut frame = [0_u8; 60];
        assert!(!filter.selects(&frame, 60));
        frame[12..14].copy_from_slice(&[8, 0]);
        assert!(filter.selects(&frame, 60));
        assert!(!filter.selects(&frame[..13], 60), "a load beyond the packet selects nothing");
    }

    #[test]
    fn arithmetic_is_that_of_32_bits_and_shifts_of_more_give_zero() {
        let of = |code: u16, a: u32, k: u32| {
            verdict(&[instruction(0, 0, 0, a), instruction(code, 0, 0, k), instruction(RET_A, 0, 0, 0)], &[])
        };
        assert_eq!(of(ALU | ADD, u32::MAX, 2), Some(1));
        assert_eq!(of(ALU | SUB, 1, 2), Some(u32::MAX));
        assert_eq!(of(ALU | MUL, 1 << 31, 2), Some(0));
        assert_eq!((of(ALU | DIV, 7, 2), of(ALU | MOD, 7, 4)), (Some(3), Some(3)));
        assert_eq!((of(ALU | LSH, 1, 31), of(ALU | LSH, 1, 32)), (Some(1 << 31), Some(0)));
        assert_eq!((of(ALU | RSH, 4, 1), of(ALU | RSH, 4, 40)), (Some(2), Some(0)));
        assert_eq!((of(ALU | NEG, 1, 0), of(ALU | XOR, 6, 3)), (Some(u32::MAX), Some(5)));
        // By an index that is zero.
        assert_eq!(of(ALU | DIV | BY_INDEX, 7, 2), None);
    }

    #[test]
    fn programs_that_could_go_wrong_are_refused() {
        let end = instruction(RET_K, 0, 0, 0);
        for (program, problem) in [
            (vec![], "0 instructions"),
            (vec![end; MOST_INSTRUCTIONS + 1], "4097 instructions"),
            (vec![instruction(0, 0, 0, 0)], "no end"),
            (vec![instruction(JMP | JEQ, 1, 0, 0), end], "out of the program"),
            (vec![instruction(JMP | JEQ, 0, 1, 0), end], "out of the program"),
            (vec![instruction(JMP | JA, 0, 0, 1), end], "out of the program"),
            (vec![instruction(JMP | JA, 0, 0, u32::MAX), end], "out of the program"),
            (vec![instruction(ALU | DIV, 0, 0, 0), end], "divides by zero"),
            (vec![instruction(ALU | MOD, 0, 0, 0), end], "divides by zero"),
            (vec![instruction(ST, 0, 0, 16), end], "memory"),
            (vec![instruction(LD | MEM, 0, 0, 16), end], "memory"),
            (vec![instruction(0xffff, 0, 0, 0), end], "unknown"),
            (vec![instruction(LD | ABS | SIZE, 0, 0, 0), end], "unknown"),
        ] {
            let error = FilterProgram::new(&program).unwrap_err();
            assert!(error.contains(problem), "{error}");
        }
    }

    proptest! {
        #[test]
        fn whatever_passes_the_check_comes_to_an_end(
            program in prop::collection::vec((any::<u8>(), 0_u8..4, 0_u8..4, 0_u32..40), 1..24),
            data in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let mut program: Vec<_> =
                program.into_iter().map(|(code, t, f, k)| instruction(code.into(), t, f, k)).collect();
            program.push(instruction(RET_A, 0, 0, 0));
            if let Ok(filter) = FilterProgram::new(&program) {
                let _ = filter.selects(&data, data.len() as u32);
            }
        }
    }
}

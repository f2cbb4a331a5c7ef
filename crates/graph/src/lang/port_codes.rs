//! The codes by which an element class describes its ports: how many, push or pull, and between which packets pass.
//!
//! They are Click's: `Element::port_count`, `processing` and `flow_code`.

use super::PortKind;

/// Whether the port counts in a port count code are a range or follow the inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Count {
    Range(usize, usize),
    /// As many as there are inputs, and so many more.
    Inputs(usize),
}

/// Reads a port count code such as `1/1-2`, `-/-`, `1-/=`, `3`.
pub(super) fn port_counts(code: &str) -> Option<[Count; 2]> {
    let (inputs, outputs) = code.split_once('/').unwrap_or((code, code));
    let inputs = match count(inputs)? {
        range @ Count::Range(..) => range,
        Count::Inputs(_) => return None,
    };
    Some([inputs, count(outputs)?])
}

fn count(code: &str) -> Option<Count> {
    if let Some(more) = code.strip_prefix('=') {
        return more.bytes().all(|b| b == b'+').then_some(Count::Inputs(more.len()));
    }
    let (low, high) = match code.split_once('-') {
        None => (code, code),
        Some((low, high)) => (if low.is_empty() { "0" } else { low }, high),
    };
    let low = low.parse().ok()?;
    let high = if high.is_empty() { usize::MAX } else { high.parse().ok()? };
    (low <= high).then_some(Count::Range(low, high))
}

/// What one side of a processing code says about port `port`; `None` is agnostic.
pub(super) fn processing(code: &str, outputs: bool, port: usize) -> Option<PortKind> {
    let (first, second) = code.split_once('/').unwrap_or((code, code));
    let side = if outputs { second } else { first }.as_bytes();
    match side.get(port).or(side.last()).map(u8::to_ascii_lowercase) {
        Some(b'h') => Some(PortKind::Push),
        Some(b'l') => Some(PortKind::Pull),
        _ => None,
    }
}

/// The code of one port in a flow code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FlowCode {
    /// Which letters it holds.
    letters: u64,
    /// Whether a `#` is in it: it matches the `#` of a port with the same number.
    hash: bool,
    /// `[^...]`: everything but those.
    negated: bool,
}

impl FlowCode {
    fn letters(self) -> u64 {
        const ALL: u64 = (1 << 52) - 1;
        if self.negated { ALL & !self.letters } else { self.letters }
    }

    /// Whether packets pass between a port with this code and one with the other.
    fn matches(self, port: usize, other: FlowCode, other_port: usize) -> bool {
        if self.letters() & other.letters() != 0 {
            return true;
        }
        // `#` of port n stands for the number n, a negated `#` for all other numbers.
        match (self.numbers(), other.numbers()) {
            (Numbers::None, _) | (_, Numbers::None) => false,
            (Numbers::Own, Numbers::Own) => port == other_port,
            (Numbers::Own, Numbers::Others) | (Numbers::Others, Numbers::Own) => port != other_port,
            _ => true,
        }
    }

    fn numbers(self) -> Numbers {
        match (self.hash, self.negated) {
            (false, false) => Numbers::None,
            (true, false) => Numbers::Own,
            (true, true) => Numbers::Others,
            (false, true) => Numbers::All,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Numbers {
    None,
    Own,
    Others,
    All,
}

/// The codes of one side of a flow code; the last one holds for all further ports.
fn flow_codes(side: &str) -> Vec<FlowCode> {
    let mut codes = Vec::new();
    let mut bytes = side.bytes();
    let add = |code: &mut FlowCode, byte: u8| match byte {
        b'a'..=b'z' => code.letters |= 1 << (byte - b'a'),
        b'A'..=b'Z' => code.letters |= 1 << (26 + byte - b'A'),
        b'#' => code.hash = true,
        _ => {}
    };
    while let Some(byte) = bytes.next() {
        let mut code = FlowCode { letters: 0, hash: false, negated: false };
        if byte == b'[' {
            for (position, byte) in bytes.by_ref().take_while(|b| *b != b']').enumerate() {
                if position == 0 && byte == b'^' {
                    code.negated = true;
                } else {
                    add(&mut code, byte);
                }
            }
        } else {
            add(&mut code, byte);
        }
        codes.push(code);
    }
    codes
}

/// Pairs of an input and an output between which packets pass. Where there are very many, pairs are left out as long
/// as everything that was connected stays so.
pub(super) fn flow_pairs(
    code: &str,
    inputs: &[usize],
    outputs: &[usize],
    mut pair: impl FnMut(usize, usize),
) {
    const MANY: usize = 1 << 14;
    let (first, second) = code.split_once('/').unwrap_or((code, code));
    let (first, second) = (flow_codes(first), flow_codes(second));
    let at = |codes: &[FlowCode], port: usize| codes.get(port).or(codes.last()).copied();
    let passes = |input: usize, output: usize| match (at(&first, input), at(&second, output)) {
        (Some(a), Some(b)) => a.matches(input, b, output),
        _ => true,
    };
    if inputs.len().saturating_mul(outputs.len()) <= MANY {
        for &input in inputs {
            outputs.iter().filter(|o| passes(input, **o)).for_each(|&o| pair(input, o));
        }
        return;
    }
    for &input in inputs {
        if let Some(&output) = outputs.iter().find(|o| passes(input, **o)) {
            pair(input, output);
        }
    }
    for &output in outputs {
        if let Some(&input) = inputs.iter().find(|i| passes(**i, output)) {
            pair(input, output);
        }
    }
}

/// The number of ports when `used` of them are used and, for outputs, there are so many inputs.
pub(super) fn clamp(count: Count, used: usize, inputs: usize) -> usize {
    match count {
        Count::Range(low, high) => used.clamp(low, high),
        Count::Inputs(more) => inputs + more,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_count_codes() {
        let range = Count::Range;
        assert_eq!(port_counts("1/1"), Some([range(1, 1), range(1, 1)]));
        assert_eq!(port_counts("1/1-2"), Some([range(1, 1), range(1, 2)]));
        assert_eq!(port_counts("-/-"), Some([range(0, usize::MAX), range(0, usize::MAX)]));
        assert_eq!(port_counts("2-/-6"), Some([range(2, usize::MAX), range(0, 6)]));
        assert_eq!(port_counts("3"), Some([range(3, 3), range(3, 3)]));
        assert_eq!(port_counts("1-/=+"), Some([range(1, usize::MAX), Count::Inputs(1)]));
        for bad in ["x/1", "=/1", "1/=x", "2-1/0", ""] {
            assert_eq!(port_counts(bad), None, "{bad}");
        }
        assert_eq!(clamp(range(1, 2), 7, 0), 2);
        assert_eq!(clamp(Count::Inputs(1), 7, 3), 4);
    }

    #[test]
    fn processing_codes() {
        assert_eq!(processing("a/ah", false, 5), None);
        assert_eq!(processing("a/ah", true, 0), None);
        assert_eq!(processing("a/ah", true, 3), Some(PortKind::Push));
        assert_eq!(processing("h/l", true, 0), Some(PortKind::Pull));
        assert_eq!(processing("l", false, 0), Some(PortKind::Pull));
        assert_eq!(processing("hl/hlh", true, 9), Some(PortKind::Push));
    }

    fn pairs(code: &str, inputs: usize, outputs: usize) -> Vec<(usize, usize)> {
        let mut all = Vec::new();
        let (inputs, outputs): (Vec<_>, Vec<_>) = ((0..inputs).collect(), (0..outputs).collect());
        flow_pairs(code, &inputs, &outputs, |i, o| all.push((i, o)));
        all
    }

    #[test]
    fn flow_code_letters_and_numbers() {
        assert_eq!(pairs("x/x", 1, 2), [(0, 0), (0, 1)]);
        assert_eq!(pairs("x/y", 1, 2), []);
        assert_eq!(pairs("xy/x", 2, 2), [(0, 0), (0, 1)]);
        assert_eq!(pairs("#/#", 2, 3), [(0, 0), (1, 1)]);
        assert_eq!(pairs("#/[^#]", 2, 2), [(0, 1), (1, 0)]);
        assert_eq!(pairs("xy/xxyx", 2, 4), [(0, 0), (0, 1), (0, 3), (1, 2)]);
        assert_eq!(pairs("xy/[xy]x", 2, 2), [(0, 0), (0, 1), (1, 0)]);
        assert_eq!(pairs("[^bc]/b", 1, 1), []);
        assert_eq!(pairs("[^bc]/a", 1, 1), [(0, 0)]);
    }

    #[test]
    fn very_many_ports_stay_connected() {
        let all = pairs("x/x", 1000, 1000);
        assert!(all.len() < 3000);
        assert!(all.contains(&(999, 0)) && all.contains(&(0, 999)));
    }
}

//! The CRC of SetCRC32 and CheckCRC32, which is Click's: the polynomial of Ethernet, highest bit first, that starts with ones and
//! ends as it is.

/// Bytes of a CRC, lowest first.
pub(super) const CRC_BYTES: usize = 4;

const POLYNOMIAL: u32 = 0x04c1_1db7;

/// What a byte in the highest place adds.
static TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = (byte as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            let carry = remainder >> 31 != 0;
            remainder <<= 1;
            if carry {
                remainder ^= POLYNOMIAL;
            }
            bit += 1;
        }
        table[byte] = remainder;
        byte += 1;
    }
    table
}

/// The CRC over `bytes`, as it stands in a packet.
pub(super) fn crc32(bytes: &[u8]) -> [u8; CRC_BYTES] {
    let crc = bytes.iter().fold(u32::MAX, |crc, &byte| {
        let [.., high] = crc.to_le_bytes();
        crc << 8 ^ TABLE[usize::from(high ^ byte)]
    });
    crc.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value() {
        // CRC-32/MPEG-2 of the catalogue of CRCs has these parameters; its check value is that of "123456789".
        assert_eq!(crc32(b"123456789"), 0x0376_e6e7_u32.to_le_bytes());
        assert_eq!(crc32(b""), [0xff; 4]);
    }
}

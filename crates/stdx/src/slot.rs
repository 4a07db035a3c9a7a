//! The slot of a key, as Redis Cluster counts: CRC16 (XMODEM: polynomial 0x1021, start 0, not
//! reflected) of the key, or of its hash tag, modulo 16,384.

/// Slots of a keyspace.
pub const SLOT_COUNT: usize = 16_384;

/// Bytes that one step of the CRC takes in.
const CRC_STEP: usize = 8;

/// `CRC_TABLES[k][b]` is the CRC of byte `b` followed by `k` zero bytes: with it eight bytes are
/// folded at once ("slicing by eight", Kounavis and Berry 2005).
static CRC_TABLES: [[u16; 256]; CRC_STEP] = crc_tables();

/// The cluster slot of a key: of what stands between the first `{` and the next `}` when that is
/// not empty, of the whole key otherwise.
#[inline]
pub fn key_slot(key: &[u8]) -> u16 {
    crc16(hash_tag(key)) & (SLOT_COUNT as u16 - 1)
}

#[inline]
fn hash_tag(key: &[u8]) -> &[u8] {
    if has_brace(key) { between_braces(key) } else { key }
}

/// Whether `{` stands in a key. Eight bytes at a time: every request with a key asks.
#[inline]
fn has_brace(key: &[u8]) -> bool {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGHS: u64 = ONES << 7;
    let has_brace_in = |word: [u8; 8]| {
        // A byte is zero where the key has a brace (Warren, Hacker's Delight, 6-1).
        let braces_zero = u64::from_ne_bytes(word) ^ (ONES * b'{' as u64);
        braces_zero.wrapping_sub(ONES) & !braces_zero & HIGHS != 0
    };
    let Some(last) = key.last_chunk::<8>() else { return key.contains(&b'{') };
    // What the steps leave over ends with the last word, which may overlap them.
    key.as_chunks().0.iter().any(|&word| has_brace_in(word)) || has_brace_in(*last)
}

#[cold]
fn between_braces(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else { return key };
    let tag = &key[open + 1..];
    match tag.iter().position(|&byte| byte == b'}') {
        Some(close) if close > 0 => &tag[..close],
        _ => key,
    }
}

#[inline]
fn crc16(bytes: &[u8]) -> u16 {
    let (head, steps) = bytes.as_rchunks::<CRC_STEP>();
    let crc = match bytes.first_chunk::<CRC_STEP>() {
        // Zeros in front of the first byte change nothing: with them the head is one step.
        Some(first) if !head.is_empty() => {
            let word = u64::from_be_bytes(*first) >> (8 * (CRC_STEP - head.len()));
            crc_step(0, word.to_be_bytes())
        }
        _ => head.iter().fold(0u16, |crc, &byte| {
            (crc << 8) ^ CRC_TABLES[0][((crc >> 8) as u8 ^ byte) as usize]
        }),
    };
    steps.iter().fold(crc, |crc, &step| crc_step(crc, step))
}

#[inline]
fn crc_step(crc: u16, step: [u8; CRC_STEP]) -> u16 {
    CRC_TABLES[7][(step[0] ^ (crc >> 8) as u8) as usize]
        ^ CRC_TABLES[6][(step[1] ^ crc as u8) as usize]
        ^ CRC_TABLES[5][step[2] as usize]
        ^ CRC_TABLES[4][step[3] as usize]
        ^ CRC_TABLES[3][step[4] as usize]
        ^ CRC_TABLES[2][step[5] as usize]
        ^ CRC_TABLES[1][step[6] as usize]
        ^ CRC_TABLES[0][step[7] as usize]
}

const fn crc_tables() -> [[u16; 256]; CRC_STEP] {
    let mut tables = [[0u16; 256]; CRC_STEP];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { (crc << 1) ^ 0x1021 } else { crc << 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut zeros = 1;
    while zeros < CRC_STEP {
        let mut byte = 0;
        while byte < 256 {
            let crc = tables[zeros - 1][byte];
            tables[zeros][byte] = (crc << 8) ^ tables[0][(crc >> 8) as usize];
            byte += 1;
        }
        zeros += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crc16_bit_by_bit(bytes: &[u8]) -> u16 {
        bytes.iter().fold(0u16, |crc, &byte| {
            (0..8).fold(crc ^ ((byte as u16) << 8), |crc, _| {
                if crc & 0x8000 != 0 { (crc << 1) ^ 0x1021 } else { crc << 1 }
            })
        })
    }

    #[test]
    fn crc_is_the_xmodem_one_at_every_length() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        let bytes: Vec<u8> = (0..200u32).map(|i| (i * 37 % 251) as u8).collect();
        for len in 0..bytes.len() {
            assert_eq!(crc16(&bytes[..len]), crc16_bit_by_bit(&bytes[..len]), "length {len}");
        }
    }

    #[test]
    fn slots_follow_the_hash_tag_rules_of_redis_cluster() {
        assert_eq!(key_slot(b"foo"), 12182);
        assert_eq!(key_slot(b"{user1000}.following"), key_slot(b"user1000"));
        assert_eq!(key_slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") & 16383);
        assert_eq!(key_slot(b"foo{{bar}}zap"), key_slot(b"{bar"));
        assert_eq!(key_slot(b"foo{bar}{zap}"), key_slot(b"bar"));
    }

    #[test]
    fn a_brace_is_found_wherever_it_stands() {
        for len in 0..40 {
            for fill in [b'a', b'z', 0xfb, b'|', 0] {
                let mut key = vec![fill; len];
                assert!(!has_brace(&key), "{key:?}");
                for at in 0..len {
                    key[at] = b'{';
                    assert!(has_brace(&key), "{key:?}");
                    key[at] = fill;
                }
            }
        }
    }
}

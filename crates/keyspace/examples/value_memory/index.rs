//! What both ways to keep values have in common: keys, frequencies, the budget, the write buffer.

/// A key's record, which stays in RAM when its value goes.
pub(crate) const RECORD_BYTES: usize = 32;
/// Values of so many times the budget are written, if their keys fit.
const VALUES_OF_BUDGET: usize = 10;
const FREQUENCY_MAX: u8 = 3;
const WRITE_BUFFER_BYTES: usize = 256 << 10;

/// Keys and figures.
pub(crate) struct Index {
    /// The bound on resident memory, the index's own and the program's apart.
    pub(crate) budget: usize,
    frequency: Vec<u8>,
    records: Vec<Option<Box<[u8; RECORD_BYTES]>>>,
    write_buffer: Vec<u8>,
    base: usize,
    /// Values in RAM, and their bytes.
    pub(crate) values: usize,
    pub(crate) value_bytes: usize,
    pub(crate) record_bytes: usize,
    pub(crate) demoted: u64,
    /// Values that moved within RAM.
    pub(crate) moved: u64,
    /// The longest slice of demotion.
    pub(crate) slice_max: std::time::Duration,
}

/// Keys that fill three fifths of the budget at most.
pub(crate) fn key_count(value_bytes: usize, budget: usize) -> usize {
    (VALUES_OF_BUDGET * budget / (value_bytes + RECORD_BYTES)).min(budget * 3 / 5 / RECORD_BYTES)
}

impl Index {
    pub(crate) fn new(keys: usize, budget: usize) -> Index {
        Index {
            budget,
            // Written, so that it is resident before the first key is.
            frequency: vec![FREQUENCY_MAX; keys],
            records: (0..keys).map(|_| None).collect(),
            write_buffer: Vec::with_capacity(WRITE_BUFFER_BYTES),
            base: 0,
            values: 0,
            value_bytes: 0,
            record_bytes: 0,
            demoted: 0,
            moved: 0,
            slice_max: std::time::Duration::ZERO,
        }
    }

    /// Takes what is resident now for the program's own.
    pub(crate) fn begin(mut self) -> Index {
        self.frequency.fill(0);
        self.base = resident();
        self
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// Makes the record of a new key; the bytes that it took.
    pub(crate) fn add(&mut self, key: usize) -> usize {
        if self.records[key].is_some() {
            return 0;
        }
        self.records[key] = Some(Box::new([1; RECORD_BYTES]));
        self.record_bytes += RECORD_BYTES;
        RECORD_BYTES
    }

    pub(crate) fn touch(&mut self, key: usize) {
        self.frequency[key] = (self.frequency[key] + 1).min(FREQUENCY_MAX);
    }

    /// Lowers the frequency of a key as the hand passes. True: it was 0, the value may go.
    pub(crate) fn age(&mut self, key: usize) -> bool {
        let frequency = &mut self.frequency[key];
        let idle = *frequency == 0;
        *frequency = frequency.saturating_sub(1);
        idle
    }

    pub(crate) fn count_in(&mut self, bytes: usize) {
        self.values += 1;
        self.value_bytes += bytes;
    }

    pub(crate) fn count_out(&mut self, bytes: usize) {
        self.values -= 1;
        self.value_bytes -= bytes;
    }

    /// Copies a value to the write buffer, as the flash log does.
    pub(crate) fn demote(&mut self, value: &[u8]) {
        if self.write_buffer.len() + value.len() > WRITE_BUFFER_BYTES {
            self.write_buffer.clear();
        }
        self.write_buffer.extend_from_slice(value);
        self.demoted += 1;
        self.count_out(value.len());
    }

    /// Resident bytes that the budget is about.
    pub(crate) fn resident(&self) -> usize {
        resident().saturating_sub(self.base)
    }
}

/// Resident memory of the process (proc(5), statm).
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * rustix::param::page_size()
}

//! The published data sets, and how many keys each has at a given RAM.
//!
//! The largest published server had 1 TB of RAM and 6 billion keys; what makes its figures is not that number
//! but the profile: which share of the RAM the index takes and which share of the values is in
//! RAM. So a data set says what of its profile must be kept, and the keys follow from the RAM by
//! Kelvin's memory model:
//!
//! ```text
//! USABLE_SHARE * RAM - FIXED_BYTES = keys * (KEY_BYTES + key length + share in RAM * value bytes)
//! ```
//!
//! That publication gives two shares, the index's (over 60 % of RAM) and that of values in RAM (6.56 %).
//! No number of keys gives Kelvin both: its index takes about 36 bytes a key, about 100 there, so
//! with 6.56 % of the values in RAM it takes about 40 % of the RAM, and with 60 % of index there
//! would be room for 2 % of the values. The share of values is the one that is kept, because the
//! hit ratio of every test hangs on it. That gives 12 million keys for 1 GiB. The fill measures
//! both: 36.8 % and 7.9 % with 256 MiB.

/// Share of `maxmemory` that keys, values and buffers fill. The rest is the allocator's: holes in
/// pages that values left. Measured: 0.70 at the end of a fill of 256 MiB in 8 s, 0.85 of 1 GiB,
/// and up to 0.88 later, when memory has been used anew for a while.
const USABLE_SHARE: f64 = 0.78;
/// What a server takes for itself and for the buffers of its flash, measured: 12 MB.
const FIXED_BYTES: f64 = 12e6;
/// RAM of a key whose value is on flash, without the bytes of the key, measured: 19 to 21.
const KEY_BYTES: f64 = 20.0;
/// The prefix that memtier gives its keys: `memtier-`.
const KEY_PREFIX_BYTES: f64 = 8.0;
/// Fewer keys than this are no data set: patterns need room.
const KEYS_MIN: u64 = 10_000;

/// What a server holds before a test.
#[derive(Debug, PartialEq)]
pub struct DataSet {
    /// Unique; what a server is known to hold.
    pub name: &'static str,
    /// Keys it has where it is published: the numbers of keys in its command lines are relative to
    /// this.
    pub published_keys: u64,
    /// Bytes of a value.
    pub value_bytes: u64,
    /// What decides how many keys it has.
    pub extent: Extent,
    /// Where its values may be.
    pub tiers: Tiers,
    /// The published command line that fills it.
    pub fill: &'static str,
}

/// What decides the number of keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Extent {
    /// So many that this share of the values finds room in RAM.
    ValuesInRam(f64),
    /// So many times what RAM holds all of, keys and values.
    TimesRam(f64),
    /// One for so many bytes of RAM.
    RamBytesAKey(f64),
}

/// Where values may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tiers {
    /// In RAM and on flash.
    RamAndFlash,
    /// In RAM alone: the server is started without flash.
    RamOnly,
}

impl DataSet {
    /// How many keys it has with `ram_bytes` of `maxmemory`.
    pub fn keys(&self, ram_bytes: u64) -> u64 {
        let usable = (USABLE_SHARE * ram_bytes as f64 - FIXED_BYTES).max(0.0);
        let value_bytes = self.value_bytes as f64;
        // The length of a key depends on how many there are; the second pass knows.
        let mut keys = 1e6_f64;
        for _ in 0..2 {
            let key_bytes = KEY_BYTES + KEY_PREFIX_BYTES + keys.max(1.0).log10().floor() + 1.0;
            keys = match self.extent {
                Extent::ValuesInRam(share) => usable / (key_bytes + share * value_bytes),
                Extent::TimesRam(times) => times * usable / (key_bytes + value_bytes),
                Extent::RamBytesAKey(bytes) => ram_bytes as f64 / bytes,
            };
        }
        (keys as u64).max(KEYS_MIN)
    }

    /// Bytes of its keys and values.
    pub fn bytes(&self, ram_bytes: u64) -> u64 {
        self.keys(ram_bytes) * (self.value_bytes + KEY_BYTES as u64)
    }
}

/// [`FATTWIN`](crate::published::FATTWIN): 6 billion records of 512 B, 6.56 % of the values in RAM.
pub static LARGE: DataSet = DataSet {
    name: "512 B, 6.56 % in RAM",
    published_keys: 6_000_000_000,
    value_bytes: 512,
    extent: Extent::ValuesInRam(0.0656),
    tiers: Tiers::RamAndFlash,
    fill: "--pipeline=8 -c 1 -t 64 --key-maximum=6000000000 -n allkeys --data-size=512 \
           --ratio=1:0 --key-pattern=P:P",
};

/// [`P3700`](crate::published::P3700): 100 B objects, 10 % of them in RAM. How many there were is not published.
pub static SMALL: DataSet = DataSet {
    name: "100 B, 10 % in RAM",
    published_keys: 1_000_000_000,
    value_bytes: 100,
    extent: Extent::ValuesInRam(0.1),
    tiers: Tiers::RamAndFlash,
    fill: "--pipeline=8 -c 1 -t 64 --key-maximum=1000000000 -n allkeys --data-size=100 \
           --ratio=1:0 --key-pattern=P:P",
};

const GROWTH_FILL: &str = "--pipeline=4 -c 5 -t 6 --key-maximum=1000000000 -n allkeys \
                            --data-size=100 --ratio=1:0 --key-pattern=P:P";

/// [`OPTANE`](crate::published::OPTANE), its first row: all in RAM, no other tier.
pub static GROWTH_RAM: DataSet = DataSet {
    name: "100 B, RAM only",
    published_keys: 1_000_000_000,
    value_bytes: 100,
    extent: Extent::TimesRam(1.0),
    tiers: Tiers::RamOnly,
    fill: GROWTH_FILL,
};

/// The same, second row: the same data set, with a second tier.
pub static GROWTH_ONCE: DataSet =
    DataSet { name: "100 B, all in RAM", tiers: Tiers::RamAndFlash, ..GROWTH_RAM };

/// The same, third row: 2.1 times the data in the same RAM.
pub static GROWTH_TWICE: DataSet =
    DataSet { name: "100 B, 2.1 times the RAM", extent: Extent::TimesRam(2.1), ..GROWTH_ONCE };

/// [`HOW_FAST`](crate::published::HOW_FAST): 75 million records of 500 B. Of a limit of 100 GB 30 % may be RAM, half of that for
/// replicas: 200 bytes of RAM a key.
pub static CENTRE: DataSet = DataSet {
    name: "500 B, 200 B of RAM a key",
    published_keys: 75_000_000,
    value_bytes: 500,
    extent: Extent::RamBytesAKey(200.0),
    tiers: Tiers::RamAndFlash,
    fill: "--key-maximum=75000000 -n allkeys -d 500 --key-pattern=P:P --ratio=1:0 \
           --hide-histogram",
};

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn keys_follow_from_the_ram() {
        let cases = [
            (&LARGE, 256, 2_800_000..2_950_000),
            (&LARGE, 1024, 11_700_000..12_300_000),
            (&LARGE, 64, 550_000..650_000),
            (&SMALL, 256, 4_200_000..4_600_000),
            (&GROWTH_RAM, 256, 1_400_000..1_500_000),
            (&CENTRE, 256, 1_340_000..1_345_000),
            (&LARGE, 8, 10_000..10_001),
        ];
        for (data, mib, expected) in cases {
            let keys = data.keys(mib * MIB);
            assert!(expected.contains(&keys), "{} in {mib} MiB: {keys}", data.name);
        }
        assert_eq!(GROWTH_ONCE.keys(MIB << 10), GROWTH_RAM.keys(MIB << 10));
        let times = GROWTH_TWICE.keys(MIB << 10) as f64 / GROWTH_ONCE.keys(MIB << 10) as f64;
        assert!((times - 2.1).abs() < 0.02, "{times}");
    }

    #[test]
    fn the_large_data_set_has_its_profile() {
        for mib in [128, 256, 1024, 8192] {
            let (ram, keys) = ((mib * MIB) as f64, LARGE.keys(mib * MIB) as f64);
            let digits = keys.log10().floor() + 1.0;
            let index = keys * (KEY_BYTES + KEY_PREFIX_BYTES + digits);
            let values = keys * 0.0656 * 512.0;
            assert!(index + values + FIXED_BYTES < USABLE_SHARE * ram * 1.001);
            assert!(index + values + FIXED_BYTES > USABLE_SHARE * ram * 0.999);
            assert!((0.35..0.45).contains(&(index / ram)), "{mib} MiB: {}", index / ram);
        }
    }

    #[test]
    fn every_data_set_fits_a_flash_of_ten_times_the_ram() {
        for data in [&LARGE, &SMALL, &GROWTH_TWICE, &CENTRE] {
            assert!(data.bytes(256 * MIB) < 2560 * MIB * 3 / 4, "{}", data.name);
        }
    }
}

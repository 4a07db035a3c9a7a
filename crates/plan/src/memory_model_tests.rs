use super::*;
use keyspace::{Db, Expiry, FlashRef, Key, Keyspace, Tally};
use proptest::prelude::*;

/// Allocated bytes by the keyspace's own account: of `keys` keys, each `place`d.
fn measured(shape: &Shape, keys: u64, place: Place, name: impl Fn(u64) -> String) -> f64 {
    let keyspace = Keyspace::default();
    let mut tally = Tally::default();
    let (value_bytes, _) = shape.values[0];
    let value = vec![b'x'; value_bytes as usize];
    let (stored, compressed) = shape.stored(value_bytes);
    let expiry = if shape.expires { Expiry::At(1 << 41) } else { Expiry::Clear };
    for number in 0..keys {
        let name = name(number);
        let key = Key::new(name.as_bytes());
        let at = FlashRef { units: number, stored_len: stored as u32, compressed };
        let mut slot = keyspace.lock(key.slot);
        let mut db = Db::new(&mut slot, 0, 1, &mut tally);
        db.put(&key, 0, &value, expiry);
        if place != Place::Hot {
            db.demote(&key, at);
        }
        if place == Place::Clean {
            db.promote(&key, at, value.clone().into());
        }
    }
    tally.ram_bytes() as f64
}

fn error_of(predicted: f64, measured: f64) -> f64 {
    (predicted / measured - 1.0).abs()
}

#[test]
fn records_are_those_of_the_keyspace() {
    const KEYS: u64 = 2_000;
    for key_bytes in [1, 5, 16, 40, 252, 253, 300] {
        for value_bytes in [0, 1, 31, 32, 100, 128, 129, 512, 513, 3_000, 20_000] {
            for (expires, compressed_to) in [(false, 1.0), (true, 0.4)] {
                for place in [Place::Hot, Place::Clean, Place::Cold] {
                    let plain = Shape::plain(key_bytes, value_bytes);
                    let shape = Shape { expires, compressed_to, ..plain };
                    // Short names repeat: so many keys are there.
                    let width = key_bytes as usize;
                    let names = 10u64.saturating_pow(width.min(4) as u32).min(KEYS);
                    let name = |number: u64| format!("{number:0width$}");
                    let records = measured(&shape, names, place, name)
                        - measured(&Shape::plain(key_bytes, 0), names, Place::Hot, name);
                    let expected = shape.ram(place).allocated
                        - Shape::plain(key_bytes, 0).ram(Place::Hot).allocated;
                    let text = format!("{key_bytes} {value_bytes} {expires} {place:?}");
                    assert_eq!(records, expected * names as f64, "{text}");
                }
            }
        }
    }
}

/// A name of 16 letters. Numbers in a row would spread over the slots more evenly than names do.
fn scattered(number: u64) -> String {
    format!("{:016x}", number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29))
}

#[test]
fn tables_are_those_of_the_keyspace() {
    let record = Shape::plain(16, 0).ram(Place::Hot).allocated;
    for keys in [10_000, 30_000, 100_000, 300_000, 1_000_000] {
        let all = measured(&Shape::plain(16, 0), keys, Place::Hot, scattered);
        let measured = all - record * keys as f64;
        let predicted = tables(keys as f64).allocated;
        println!("{keys}: {:.3} and {:.3} a key", predicted / keys as f64, measured / keys as f64);
        assert!(error_of(predicted, measured) < 0.04, "{keys}: {predicted} {measured}");
    }
}

#[test]
fn large_tables_are_those_of_the_keyspace() {
    let record = Shape::plain(12, 0).ram(Place::Hot).allocated;
    for keys in [1_500u64, 6_000, 60_000, 100_000, 200_000] {
        let name = |number: u64| format!("{{a}}{number:09}");
        let all = measured(&Shape::plain(12, 0), keys, Place::Hot, name);
        let measured = all - record * keys as f64;
        let predicted = segments(keys as f64, 0).allocated;
        println!("{keys}: {:.3} and {:.3} a key", predicted / keys as f64, measured / keys as f64);
        assert!(error_of(predicted, measured) < 0.05, "{keys}: {predicted} {measured}");
    }
}

#[test]
fn slabs_cost_what_their_class_makes_them_cost() {
    // One page for 8 values of 512 bytes, five pages for 32 of 640.
    assert_eq!(metadata_bytes(512), 128.0 / 8.0 + 1.0);
    assert_eq!(metadata_bytes(640), 128.0 / 32.0 + 1.25);
    assert_eq!(metadata_bytes(0), 0.0);
}

#[test]
fn a_value_on_flash_takes_its_header_and_its_rounding() {
    let cases = [(16, 512, 1.0, 560.0), (16, 31, 1.0, 0.0), (16, 4_096, 0.5, 2_096.0)];
    for (key, value, compressed_to, expected) in cases {
        let shape = Shape { compressed_to, ..Shape::plain(key, value) };
        assert_eq!(shape.flash_bytes(), expected, "{key} {value}");
    }
    // What saves less than an eighth is stored as it is, and so is what is short.
    for (value, compressed_to) in [(4_096, 0.9), (1_000, 0.5)] {
        let shape = Shape { compressed_to, ..Shape::plain(16, value) };
        assert_eq!(shape.flash_bytes(), Shape::plain(16, value).flash_bytes());
    }
}

proptest! {
    #[test]
    fn more_keys_or_longer_ones_never_take_less(
        keys in 0.0..1e10f64, more in 1.0..4.0f64, key in 1u64..400, value in 0u64..100_000, longer in 0u64..1000
    ) {
        prop_assert!(tables(keys * more).allocated >= tables(keys).allocated * 0.999);
        for place in [Place::Hot, Place::Clean, Place::Cold] {
            let (short, long) = (Shape::plain(key, value), Shape::plain(key + longer, value));
            prop_assert!(long.ram(place).allocated >= short.ram(place).allocated);
        }
        let (short, long) = (Shape::plain(key, value), Shape::plain(key, value + longer));
        prop_assert!(long.flash_bytes() >= short.flash_bytes());
    }

    #[test]
    fn more_memory_never_holds_fewer_values(
        keys in 1e3..1e9f64, memory in 1e7..1e12f64, more in 1.0..10.0f64, value in 32u64..5_000
    ) {
        let shape = Shape::plain(16, value);
        let server = Server { workers: 2.0, flash_bytes: 1e12 };
        let index = tables(keys);
        let cold = index + shape.ram(Place::Cold) * keys;
        let warm = index + shape.ram(Place::Clean) * keys;
        let less = server.share_in_ram(memory, cold, warm);
        let larger = server.share_in_ram(memory * more, cold, warm);
        prop_assert!(larger >= less, "{:?} {:?}", larger, less);
    }
}

//! Whether two replies are the same.

use resp::Frame;

use super::commands::Rule;

/// Numbers below it are no times.
const TIME_MIN: i64 = 20_000;
/// Milliseconds that two servers may run the same command apart.
const TIME_TOLERANCE_MS: i64 = 20_000;

/// Compares by a rule.
pub fn same(rule: Rule, redis: &Frame, kelvin: &Frame) -> bool {
    redis == kelvin
        || match rule {
            Rule::Exact => false,
            Rule::Time => same_time(redis, kelvin),
            Rule::AnyOrder => sorted(redis).is_some() && sorted(redis) == sorted(kelvin),
            Rule::Pairs => pairs(redis).is_some() && pairs(redis) == pairs(kelvin),
            Rule::Kind => same_kind(redis, kelvin),
            Rule::Scores => *redis == not_a_double() && matches!(kelvin, Frame::Array(_)),
            Rule::Pending => same_pending(redis, kelvin),
            Rule::Checked => match (redis, kelvin) {
                (Frame::Integer(0 | -1), error) => is_about_arguments(error),
                (error, Frame::Integer(_)) => *error == syntax_error(),
                (one, two) => is_about_arguments(one) && is_about_arguments(two),
            },
        }
}

/// Compares the reply of EXEC, whose elements go by the rules of the commands that were queued.
pub fn same_all(rules: &[Rule], redis: &Frame, kelvin: &Frame) -> bool {
    match (redis, kelvin) {
        (Frame::Array(redis), Frame::Array(kelvin)) if redis.len() == rules.len() => {
            redis.len() == kelvin.len()
                && rules
                    .iter()
                    .zip(redis)
                    .zip(kelvin)
                    .all(|((rule, one), two)| same(*rule, one, two))
        }
        _ => redis == kelvin,
    }
}

fn syntax_error() -> Frame {
    Frame::Error(b"ERR syntax error".to_vec())
}

fn not_a_double() -> Frame {
    Frame::Error(b"ERR One or more scores can't be converted into double".to_vec())
}

fn is_about_arguments(frame: &Frame) -> bool {
    *frame == syntax_error()
        || *frame == Frame::Error(b"ERR value is not an integer or out of range".to_vec())
}

fn same_time(redis: &Frame, kelvin: &Frame) -> bool {
    match (redis, kelvin) {
        (Frame::Integer(one), Frame::Integer(two)) => {
            *one > TIME_MIN && *two > TIME_MIN && (one - two).abs() <= TIME_TOLERANCE_MS
        }
        _ => false,
    }
}

/// Compares what is told of streams: times may differ, and how many nodes Redis has.
fn same_pending(redis: &Frame, kelvin: &Frame) -> bool {
    let is_time = |one: &Frame, two: &Frame| match (one, two) {
        (Frame::Integer(one), Frame::Integer(two)) => (one - two).abs() <= TIME_TOLERANCE_MS,
        _ => false,
    };
    let (one, two) = match (redis, kelvin) {
        (Frame::Array(one), Frame::Array(two)) => (one.clone(), two.clone()),
        (Frame::Map(one), Frame::Map(two)) => {
            let flat = |pairs: &[(Frame, Frame)]| -> Vec<Frame> {
                pairs.iter().flat_map(|(key, value)| [key.clone(), value.clone()]).collect()
            };
            (flat(one), flat(two))
        }
        _ => return redis == kelvin,
    };
    let named = |at: usize, names: &[&str]| {
        let before = at.checked_sub(1).map(|at| &one[at]);
        matches!(before, Some(Frame::Bulk(name)) if names.iter().any(|one| one.as_bytes() == *name))
    };
    // An entry: its ID, its consumer unless that is known, its time, and how often it was delivered.
    let is_integer = |at: usize| matches!(one[at], Frame::Integer(_));
    let is_entry =
        matches!(one.len(), 3 | 4) && is_integer(one.len() - 1) && is_integer(one.len() - 2);
    one.len() == two.len()
        && one.iter().zip(&two).enumerate().all(|(at, (one_item, two_item))| {
            same_pending(one_item, two_item)
                || (is_entry && at + 2 == one.len() && is_time(one_item, two_item))
                || (named(at, &["idle", "seen-time"]) && is_time(one_item, two_item))
                || named(at, &["radix-tree-nodes", "radix-tree-keys"])
        })
}

/// Whether it is a set, and its elements in order.
fn sorted(frame: &Frame) -> Option<(bool, Vec<Vec<u8>>)> {
    let (is_set, items) = match frame {
        Frame::Array(items) => (false, items),
        Frame::Set(items) => (true, items),
        _ => return None,
    };
    let mut encoded: Vec<Vec<u8>> = items.iter().map(|item| encode(&[item])).collect();
    encoded.sort_unstable();
    Some((is_set, encoded))
}

fn pairs(frame: &Frame) -> Option<Vec<Vec<u8>>> {
    let mut encoded: Vec<Vec<u8>> = match frame {
        Frame::Array(items) => items.chunks(2).map(|pair| encode(&Vec::from_iter(pair))).collect(),
        Frame::Map(items) => items.iter().map(|(one, two)| encode(&[one, two])).collect(),
        _ => return None,
    };
    encoded.sort_unstable();
    Some(encoded)
}

fn encode(items: &[&Frame]) -> Vec<u8> {
    let mut bytes = Vec::new();
    items.iter().for_each(|item| item.encode(&mut bytes));
    bytes
}

fn same_kind(redis: &Frame, kelvin: &Frame) -> bool {
    std::mem::discriminant(redis) == std::mem::discriminant(kelvin)
        && !matches!(redis, Frame::Error(_))
}

#[test]
fn each_rule_allows_what_it_says() {
    let number = Frame::Integer;
    let list = |items: &[i64]| Frame::Array(items.iter().map(|item| number(*item)).collect());
    let set = |items: &[i64]| Frame::Set(items.iter().map(|item| number(*item)).collect());
    let error = |text: &str| Frame::Error(text.as_bytes().to_vec());
    let cases = [
        (Rule::Exact, number(1), number(1), true),
        (Rule::Exact, number(1), number(2), false),
        (Rule::Time, number(99_999), number(100_000), true),
        (Rule::Time, number(1), number(2), false),
        (Rule::Time, number(100_000), number(200_000), false),
        (Rule::Time, number(100_000), Frame::Null, false),
        (Rule::AnyOrder, list(&[1, 2]), list(&[2, 1]), true),
        (Rule::AnyOrder, list(&[1, 2]), list(&[2, 2]), false),
        (Rule::AnyOrder, set(&[1, 2]), set(&[2, 1]), true),
        (Rule::AnyOrder, set(&[1, 2]), set(&[2, 2]), false),
        (Rule::AnyOrder, set(&[1, 2]), list(&[2, 1]), false),
        (Rule::AnyOrder, error("ERR a"), error("ERR b"), false),
        (Rule::Kind, number(1), number(2), true),
        (Rule::Kind, number(1), Frame::NullBulk, false),
        (Rule::Kind, error("ERR a"), error("ERR b"), false),
        (Rule::Scores, not_a_double(), list(&[1]), true),
        (Rule::Scores, list(&[1]), not_a_double(), false),
        (Rule::Scores, not_a_double(), number(1), false),
        (Rule::Checked, number(0), error("ERR syntax error"), true),
        (Rule::Checked, number(1), error("ERR syntax error"), false),
        (Rule::Checked, error("ERR syntax error"), number(0), true),
        (Rule::Checked, error("ERR other"), number(0), false),
        (Rule::Checked, number(0), error("ERR other"), false),
    ];
    for (rule, redis, kelvin, expected) in cases {
        assert_eq!(same(rule, &redis, &kelvin), expected, "{rule:?} {redis:?} {kelvin:?}");
    }
    assert!(same_all(&[Rule::Kind, Rule::Exact], &list(&[1, 5]), &list(&[2, 5])));
    assert!(!same_all(&[Rule::Kind, Rule::Exact], &list(&[1, 5]), &list(&[2, 6])));
    assert!(!same_all(&[Rule::Kind], &list(&[1, 5]), &list(&[2, 5])));
}

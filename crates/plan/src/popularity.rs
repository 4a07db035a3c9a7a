//! How accesses spread over keys: a law, cut into groups of keys that are used alike.
//!
//! Invariants: groups come from the most to the least used; their shares of keys and their shares
//! of accesses both sum to 1.

use std::str::FromStr;

use crate::units::Share;

/// Groups that a law is cut into by powers, and by even steps.
const GROUPS: usize = 48;
const EVEN_GROUPS: u32 = 40;
/// Terms of a generalised harmonic number that are summed one by one.
const TERMS_EXACT: f64 = 1_000.0;

/// A law of popularity.
#[derive(Debug, Clone, PartialEq)]
pub enum Law {
    /// All keys alike.
    Uniform,
    /// So large a share of the keys takes so large a share of the accesses, and so on, from the
    /// most used; keys of one group are alike.
    WorkingSet(Vec<(f64, f64)>),
    /// The n-th key is used in proportion to 1 / n^exponent.
    Zipf(f64),
    /// A normal distribution over the key range; its deviation as a share of the range.
    Gaussian(f64),
}

impl FromStr for Law {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "not uniform, zipf:0.99, gaussian:10% or a working set such as 20%:80%";
        parse(text).ok_or(expected.to_owned())
    }
}

fn parse(text: &str) -> Option<Law> {
    if text == "uniform" {
        return Some(Law::Uniform);
    }
    let (name, value) = text.split_once(':')?;
    match name {
        "zipf" => {
            let exponent: f64 = value.parse().ok()?;
            (exponent > 0.0 && exponent <= 10.0).then_some(Law::Zipf(exponent))
        }
        "gaussian" => {
            let sigma: Share = value.parse().ok()?;
            (sigma.0 > 0.0).then_some(Law::Gaussian(sigma.0))
        }
        _ => working_set(text).map(Law::WorkingSet),
    }
}

/// `KEYS:ACCESSES`, several with `/` between them; the rest of the keys takes the rest.
fn working_set(text: &str) -> Option<Vec<(f64, f64)>> {
    let mut groups = Vec::new();
    for part in text.split('/') {
        let (keys, accesses) = part.split_once(':')?;
        let (keys, accesses): (Share, Share) = (keys.parse().ok()?, accesses.parse().ok()?);
        groups.push((keys.0, accesses.0));
    }
    let sum = |of: fn(&(f64, f64)) -> f64| groups.iter().map(of).sum::<f64>();
    let (keys, accesses) = (1.0 - sum(|group| group.0), 1.0 - sum(|group| group.1));
    if keys < -1e-9 || accesses < -1e-9 || groups.iter().any(|group| group.0 == 0.0) {
        return None;
    }
    if keys > 1e-9 {
        groups.push((keys, accesses.max(0.0)));
    } else if accesses > 1e-9 {
        return None;
    }
    groups.sort_by(|one, two| (two.1 / two.0).total_cmp(&(one.1 / one.0)));
    Some(groups)
}

/// Keys that are used alike.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Group {
    /// Share of all keys.
    pub keys: f64,
    /// Share of all accesses.
    pub accesses: f64,
}

impl Law {
    /// The groups of so many keys.
    pub fn groups(&self, keys: f64) -> Vec<Group> {
        match self {
            Law::Uniform => vec![Group { keys: 1.0, accesses: 1.0 }],
            Law::WorkingSet(groups) => {
                groups.iter().map(|&(keys, accesses)| Group { keys, accesses }).collect()
            }
            Law::Zipf(exponent) => {
                cut(keys, |share| harmonic(share * keys, *exponent) / harmonic(keys, *exponent))
            }
            Law::Gaussian(sigma) => {
                let within = |share: f64| error_function(share / (sigma * 8f64.sqrt()));
                cut(keys, |share| within(share) / within(1.0))
            }
        }
    }
}

/// Groups by the share of accesses that the most used keys have; finer towards these.
fn cut(keys: f64, accesses_of: impl Fn(f64) -> f64) -> Vec<Group> {
    // By powers from one key on, for laws that fall from their first key.
    let growth = keys.max(1.0).ln() / (GROUPS - 1) as f64;
    let edges: Vec<f64> =
        (0..GROUPS).map(|at| ((at as f64 * growth).exp() / keys.max(1.0)).min(1.0)).collect();
    // By even steps too, for laws that fall later.
    let even = (1..EVEN_GROUPS).map(|at| f64::from(at) / f64::from(EVEN_GROUPS));
    let mut edges: Vec<f64> = edges.into_iter().chain(even).chain([1.0]).collect();
    edges.sort_by(f64::total_cmp);
    let mut groups = Vec::new();
    let (mut last, mut last_accesses) = (0.0, 0.0);
    for edge in edges {
        if edge - last > edge * 1e-10 {
            let accesses = accesses_of(edge).clamp(last_accesses, 1.0);
            groups.push(Group { keys: edge - last, accesses: accesses - last_accesses });
            (last, last_accesses) = (edge, accesses);
        }
    }
    groups
}

/// Share of accesses to the most used `share` of the keys: the best that any cache could have.
pub fn at_best(groups: &[Group], share: f64) -> f64 {
    let (mut left, mut hits) = (share, 0.0);
    for group in groups {
        let part = (left / group.keys).clamp(0.0, 1.0);
        hits += part * group.accesses;
        left -= part * group.keys;
    }
    hits.min(1.0)
}

/// The sum of 1 / n^exponent for n from 1 to `count`, also between whole numbers.
fn harmonic(count: f64, exponent: f64) -> f64 {
    let head = count.min(TERMS_EXACT).floor();
    let sum: f64 = (1..=head as u32).map(|n| f64::from(n).powf(-exponent)).sum();
    // Euler and Maclaurin: the integral from the last whole term, and half of both ends.
    let integral = match (1.0 - exponent).abs() < 1e-9 {
        true => (count / head.max(1.0)).ln(),
        false => {
            (count.powf(1.0 - exponent) - head.max(1.0).powf(1.0 - exponent)) / (1.0 - exponent)
        }
    };
    match count > head {
        _ if count < 1.0 => count,
        true if head < TERMS_EXACT => sum + (count - head) * (head + 1.0).powf(-exponent),
        true => sum + integral + (count.powf(-exponent) - head.powf(-exponent)) / 2.0,
        false => sum,
    }
}

/// The Gaussian error function, by a series whose terms are all positive.
fn error_function(x: f64) -> f64 {
    if x > 6.0 {
        return 1.0;
    }
    let (mut term, mut sum, mut n) = (x, x, 0.0);
    while term > sum * 1e-17 {
        n += 1.0;
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
    }
    2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp() * sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn laws_parse_or_say_what_is_expected() {
        let cases = [
            ("uniform", Law::Uniform),
            ("zipf:0.99", Law::Zipf(0.99)),
            ("gaussian:10%", Law::Gaussian(0.1)),
            ("20%:80%", Law::WorkingSet(vec![(0.2, 0.8), (0.8, 0.19999999999999996)])),
            ("1:1", Law::WorkingSet(vec![(1.0, 1.0)])),
        ];
        for (text, law) in cases {
            assert_eq!(text.parse(), Ok(law), "{text}");
        }
        for text in ["", "zipf", "zipf:0", "zipf:x", "gaussian:0", "20:80", "80%:120%", "0%:5%"] {
            assert!(text.parse::<Law>().is_err(), "{text}");
        }
        assert!("60%:10%/60%:10%".parse::<Law>().is_err());
    }

    #[test]
    fn known_values() {
        assert!((error_function(1.0) - 0.842_700_792_949_715).abs() < 1e-14);
        assert!((error_function(3.0) - 0.999_977_909_503_001).abs() < 1e-14);
        let exact: f64 = (1..=100_000).map(|n| f64::from(n).powf(-0.99)).sum();
        assert!((harmonic(100_000.0, 0.99) / exact - 1.0).abs() < 1e-7);
        let exact: f64 = (1..=50_000).map(|n| 1.0 / f64::from(n)).sum();
        assert!((harmonic(50_000.0, 1.0) / exact - 1.0).abs() < 1e-7);
        // 68 % lie within one deviation to each side.
        let groups = Law::Gaussian(0.1).groups(1e6);
        assert!((at_best(&groups, 0.2) - 0.6827).abs() < 0.002);
        let groups = Law::WorkingSet(vec![(0.2, 0.8), (0.8, 0.2)]).groups(1e6);
        assert!((at_best(&groups, 0.1) - 0.4).abs() < 1e-12);
        assert!((at_best(&groups, 0.6) - 0.9).abs() < 1e-12);
    }

    fn any_law() -> impl Strategy<Value = Law> {
        prop_oneof![
            Just(Law::Uniform),
            (0.1..3.0f64).prop_map(Law::Zipf),
            (0.001..1.0f64).prop_map(Law::Gaussian),
            (0.01..0.99f64, 0.01..0.99f64).prop_map(|(keys, accesses)| {
                working_set(&format!("{keys}:{accesses}")).map_or(Law::Uniform, Law::WorkingSet)
            }),
        ]
    }

    proptest! {
        #[test]
        fn shares_sum_to_one_and_fall(law in any_law(), keys in 1.0..1e12f64) {
            let groups = law.groups(keys);
            let total: f64 = groups.iter().map(|group| group.keys).sum();
            let accesses: f64 = groups.iter().map(|group| group.accesses).sum();
            prop_assert!((total - 1.0).abs() < 1e-9, "{}", total);
            prop_assert!((accesses - 1.0).abs() < 1e-6, "{}", accesses);
            for pair in groups.windows(2) {
                let rates = [pair[0], pair[1]].map(|group| group.accesses / group.keys);
                prop_assert!(rates[1] <= rates[0] * 1.01 + 1e-6, "{:?}", pair);
            }
        }

        #[test]
        fn more_in_ram_never_hits_less(law in any_law(), share in 0.0..1.0f64, more in 0.0..1.0f64) {
            let groups = law.groups(1e6);
            prop_assert!(at_best(&groups, (share + more).min(1.0)) >= at_best(&groups, share));
        }
    }
}

//! Elements picked at random, by their positions.

use std::collections::BTreeSet;

use stdx::Random;

/// Bytes that the choice of an element takes beside the reply with it.
pub(super) const CHOICE_BYTES: u64 = 32;

/// Where fewer than one of so many elements is chosen, positions are drawn; else all are gone through.
const DRAWN_OF: u64 = 16;

/// `chosen` of so many positions, in order: each set of them is as likely.
pub(super) fn sample(random: &mut Random, of: u64, chosen: u64) -> Vec<u64> {
    if chosen < of / DRAWN_OF { draw(random, of, chosen) } else { select(random, of, chosen) }
}

/// Source: J. Bentley and R. Floyd, "A sample of brilliance", CACM 30(9), 1987.
fn draw(random: &mut Random, of: u64, chosen: u64) -> Vec<u64> {
    let mut positions = BTreeSet::new();
    for last in of - chosen..of {
        let position = random.below(last + 1);
        if !positions.insert(position) {
            positions.insert(last);
        }
    }
    positions.into_iter().collect()
}

/// Selection sampling: Knuth, volume 2, algorithm S.
fn select(random: &mut Random, of: u64, mut wanted: u64) -> Vec<u64> {
    let mut positions = Vec::with_capacity(wanted as usize);
    for position in 0..of {
        if random.below(of - position) < wanted {
            positions.push(position);
            wanted -= 1;
        }
    }
    positions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_position_is_chosen_as_often() {
        for (of, chosen) in [(5, 0), (5, 2), (5, 5), (100, 3), (100, 50), (1, 1)] {
            let mut random = Random::new(7);
            let mut counts = vec![0u64; of as usize];
            let rounds = 2_000;
            for _ in 0..rounds {
                let positions = sample(&mut random, of, chosen);
                assert_eq!(positions.len() as u64, chosen);
                assert!(positions.is_sorted_by(|one, two| one < two));
                positions.iter().for_each(|&position| counts[position as usize] += 1);
            }
            let expected = rounds * chosen / of;
            for count in counts {
                assert!(count.abs_diff(expected) <= expected / 3 + 30, "{count} of {expected}");
            }
        }
    }
}

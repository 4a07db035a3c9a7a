//! Elements that move between lists: whoever reads all lists at once sees each element once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use stdx::Random;

use crate::support::{show, text};
use crate::{Run, call, padded, texts, transaction, unpadded, words};

const LISTS: u64 = 6;
/// Enough that a list is a tree while it has its share.
const ELEMENTS: usize = 300;
const ELEMENT_BYTES: usize = 180;
const MOVERS: u64 = 3;
const SIDES: [&str; 2] = ["LEFT", "RIGHT"];

pub fn check(run: &Run) -> String {
    let mut client = run.server.connect();
    for number in 0..ELEMENTS {
        let list = number as u64 % LISTS;
        client.line(&format!("RPUSH list-{list} {}", padded(&number.to_string(), ELEMENT_BYTES)));
    }
    let (moves, audits) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for seed in 0..MOVERS {
            let moves = &moves;
            scope.spawn(move || run.guard(|| move_elements(run, seed, moves)));
        }
        scope.spawn(|| run.guard(|| audit(run, &audits)));
    });
    format!("{moves:?} elements moved between lists, {audits:?} reads of all of them")
}

fn move_elements(run: &Run, seed: u64, moves: &AtomicUsize) {
    let mut client = run.server.connect();
    let mut random = Random::new(seed);
    while run.goes_on() {
        let (from, to) = (random.below(LISTS), random.below(LISTS));
        let [take, put] = [(); 2].map(|()| SIDES[random.below(2) as usize]);
        let request = match random.below(4) {
            0 => format!("RPOPLPUSH list-{from} list-{to}"),
            1 => format!("BLMOVE list-{from} list-{to} {take} {put} 0.01"),
            _ => format!("LMOVE list-{from} list-{to} {take} {put}"),
        };
        let moved = call(&mut client, &words(&request));
        if show(&moved) != "_" {
            let element = text(&moved);
            assert_eq!(element.len(), ELEMENT_BYTES, "{request}: {element}");
            moves.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn audit(run: &Run, audits: &AtomicUsize) {
    let mut client = run.server.connect();
    let reads: Vec<_> = (0..LISTS).map(|list| words(&format!("LRANGE list-{list} 0 -1"))).collect();
    loop {
        let goes_on = run.goes_on();
        let lists = transaction(&mut client, &reads).into_iter().flat_map(texts);
        let mut found: Vec<usize> =
            lists.map(|element| unpadded(&element).parse().expect("a number")).collect();
        found.sort_unstable();
        assert!(found.iter().copied().eq(0..ELEMENTS), "not each element once: {found:?}");
        audits.fetch_add(1, Ordering::Relaxed);
        if !goes_on {
            break;
        }
    }
}

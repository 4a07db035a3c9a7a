//! The power goes at every operation of many histories: a prefix of the records is left, with all that was durable.

use std::time::Duration;

use super::super::SyncPolicy;
use super::super::sim::SimFaults;
use super::scene::Scene;

/// How many histories are played; `KELVIN_HISTORIES` says otherwise, from seed `KELVIN_HISTORY_FIRST` on.
const HISTORIES: u64 = 1_000;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number: {text}")))
}

/// What happens, drawn.
fn act(scene: &mut Scene) {
    match scene.random.below(40) {
        0..14 => {
            for _ in 0..scene.random.between(1, 4) {
                let bytes = match scene.random.below(10) {
                    0 => scene.random.between(1_000, 4_000),
                    1 => scene.random.between(190, 1_000),
                    _ => scene.random.between(8, 190),
                };
                // As those who append do.
                if scene.journal().has_room() {
                    scene.append(bytes as usize);
                }
            }
        }
        14..26 => {
            scene.step();
        }
        26..31 => scene.pass(Duration::from_millis(4)),
        31 => scene.pass(Duration::from_millis(260)),
        32 => scene.pass(Duration::from_millis(1_001)),
        33 => scene.journal().sync_soon(),
        34 => {
            let policies = [SyncPolicy::Always, SyncPolicy::EverySecond, SyncPolicy::Never];
            let sync = policies[scene.random.below(3) as usize];
            scene.journal().set_sync(sync);
        }
        35..37 => {
            scene.checkpoint();
        }
        37 => scene.kill(),
        38 => {
            scene.close();
        }
        _ => {
            scene.pass(Duration::from_millis(1_001));
            scene.step();
            scene.step();
        }
    }
}

/// A history of so many acts, as far as the power stays.
fn play(scene: &mut Scene, acts: u32) {
    for _ in 0..acts {
        if scene.folder.is_off() {
            return;
        }
        if scene.journal.is_some() {
            act(scene);
        } else if let Err(error) = scene.open() {
            assert!(scene.folder.failures() > 0 || scene.folder.is_off(), "{error}");
            let faults = SimFaults { failing: 0, ..SimFaults::default() };
            if !scene.folder.is_off() {
                scene.folder.set_faults(faults);
            }
        }
    }
}

/// The power goes and comes back, twice, for what was recovered must stay as well.
fn survive(scene: &mut Scene) {
    for acts in [20, 5] {
        scene.lose_power();
        scene.open().expect("it opens");
        play(scene, acts);
    }
    scene.lose_power();
    scene.open().expect("it opens");
}

#[test]
fn a_loss_of_power_at_every_operation_leaves_a_prefix_with_all_that_was_durable() {
    let histories = number("KELVIN_HISTORIES").unwrap_or(HISTORIES);
    let first = number("KELVIN_HISTORY_FIRST").unwrap_or(0);
    let mut losses = 0;
    for seed in first..first + histories {
        let mut scene = Scene::keeping(seed);
        play(&mut scene, 80);
        for at in 0..scene.folder.operations() {
            let mut scene = Scene::keeping(seed);
            scene.folder.set_faults(SimFaults { power_off_at: Some(at), ..SimFaults::default() });
            play(&mut scene, 80);
            assert!(scene.folder.is_off());
            survive(&mut scene);
            losses += 1;
        }
    }
    println!("{histories} histories, {losses} losses of power");
    assert!(losses > 50 * histories, "{losses}");
}

#[test]
fn so_does_a_loss_behind_an_operation_that_failed_wherever_it_was() {
    for seed in 1_000..1_040 {
        let mut scene = Scene::keeping(seed);
        play(&mut scene, 60);
        for at in 0..scene.folder.operations() {
            let mut scene = Scene::keeping(seed);
            scene.folder.set_faults(SimFaults { fail_at: Some(at), ..SimFaults::default() });
            play(&mut scene, 80);
            survive(&mut scene);
        }
    }
}

#[test]
fn so_does_a_loss_behind_any_failures() {
    for seed in 2_000..3_000 {
        let mut scene = Scene::keeping(seed);
        let power_off_at = Some(scene.random.below(400));
        let failing = [20, 100, 400][scene.random.below(3) as usize];
        scene.folder.set_faults(SimFaults { power_off_at, failing, ..SimFaults::default() });
        play(&mut scene, 150);
        survive(&mut scene);
    }
}

/// A start opens the flash by a checkpoint, and writes over what the one before refers to.
#[test]
fn the_checkpoint_that_a_start_has_found_is_found_behind_a_loss_of_power() {
    let mut newer = 0;
    for (seed, at) in (0..20).flat_map(|seed| (0..30).map(move |at| (seed, at))) {
        let mut scene = Scene::new(seed);
        scene.open().expect("it opens");
        scene.append(100);
        assert!(scene.checkpoint());
        scene.append(100);
        let fail_at = Some(scene.folder.operations() + at);
        scene.folder.set_faults(SimFaults { fail_at, ..SimFaults::default() });
        let is_known = scene.checkpoint();
        scene.kill();
        scene.folder.set_faults(SimFaults::default());
        drop(scene.recover().expect("it is read"));
        newer += usize::from(!is_known && scene.opened_by == 2);
        scene.lose_power();
        scene.open().expect("it opens");
    }
    assert!(newer > 0, "it was found though it was not known to be in place");
}

#[test]
fn nothing_is_lost_by_a_journal_that_was_closed() {
    for seed in 4_000..4_100 {
        let mut scene = Scene::new(seed);
        play(&mut scene, 60);
        if scene.journal.is_none() {
            scene.open().expect("it opens");
        }
        assert!(scene.close());
        let records = scene.records.len();
        scene.lose_power();
        scene.open().expect("it opens");
        assert_eq!(scene.records.len(), records);
    }
}

//! What writes, values and keys go through while memory is short.

use std::collections::HashSet;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use flash::CheckpointEnd;
use flash::{WRITE_BUFFERS, WRITE_BUFFERS_MIN};
use keyspace::{Db, Expiry, Key, Note, Noting, SLOT_COUNT, Stored, Tally};
use stdx::Random;

use crate::limits::{DRIVE_WAIT_MAX, SLICE_SLOTS_MAX};
use crate::test_machine::{MIB, Machine, ROUNDS, reserved};
use crate::{
    Background, Clock, EvictionPolicy, Freeing, Held, Listener, Pressure, Tier, TierError,
    TierWorker, Want,
};

#[test]
fn a_lowered_limit_is_reached_slice_by_slice_and_costs_no_more_keys_than_it_must() {
    let machine = Machine::new(96 * MIB, 0, EvictionPolicy::AllKeysLru);
    let mut number = 0;
    let mut write = || {
        machine.write(&format!("key-{number:08}"), &[b'v'; 100], Expiry::Clear).expect("memory");
        number += 1;
    };
    while machine.evicted() == 0 {
        write();
    }
    (0..20_000).for_each(|_| write());
    let before = machine.tier().counters.ram_bytes();
    machine.evicted_most.set(0);
    machine.tier().budget.set_max_bytes(72 * MIB);
    // Half a minute, in which hardly anything is written.
    (0..100).for_each(|_| write());
    (0..6_000).for_each(|_| machine.round());
    let after = machine.tier().counters.ram_bytes();
    assert!(machine.evicted_most.get() < 10_000, "{} at once", machine.evicted_most.get());
    assert!(after * 4 < before * 3 + before / 16, "{before} {after}");
    assert!(after * 4 > before * 3 - before / 5, "{before} {after}");
    machine.check_counts();
}

#[test]
fn where_no_key_may_go_a_refusal_looks_at_none() {
    for policy in [
        EvictionPolicy::VolatileLru,
        EvictionPolicy::VolatileLfu,
        EvictionPolicy::VolatileRandom,
        EvictionPolicy::VolatileTtl,
    ] {
        let machine = Machine::new(8 * MIB, 0, policy);
        let value = [b'v'; 100];
        let mut written = 0;
        while machine.write(&format!("key-{written}"), &value, Expiry::Clear).is_ok() {
            written += 1;
        }
        let evicted = machine.worker.evict(i64::MAX);
        assert_eq!((evicted.slots, evicted.keys, evicted.is_spent), (0, 0, true));
        assert_eq!(machine.keys(), written);
        // One that may go is found, wherever it is.
        machine.put("volatile", &value, Expiry::At(u64::MAX));
        let mut slots = 0;
        while machine.exists("volatile") {
            slots += machine.worker.evict(1).slots;
            assert!(slots <= 3 * SLOT_COUNT, "{policy:?}");
        }
        assert_eq!(machine.evicted(), 1);
    }
}

#[test]
fn a_full_flash_makes_room_ahead_of_need_and_moves_little() {
    for policy in [EvictionPolicy::AllKeysLru, EvictionPolicy::AllKeysLfu] {
        let machine = Machine::new(8 * MIB, 16 * MIB, policy);
        let (value, writes) = ([b'v'; 512], 150_000);
        let mut kept_most = 0;
        for number in 0..writes {
            machine.write(&format!("key-{number:08}"), &value, Expiry::Clear).expect("memory");
            kept_most = machine.keys().max(kept_most);
        }
        machine.check_counts();
        assert_eq!(machine.keys() + machine.evicted(), writes);
        let needed = writes - kept_most;
        assert!(machine.evicted() <= needed * 21 / 20, "{} of {needed}", machine.evicted());
        assert!(machine.evicted_most.get() < 4_000, "{} at once", machine.evicted_most.get());
        let moved = machine.tier().engine().expect("flash").stats().gc_relocated;
        assert!(moved < writes / 20, "{moved} moved");
        assert!(machine.waited.get() < writes / 100, "{} rounds waited", machine.waited.get());
    }
}

/// Takes a checkpoint that refers to nothing: what is freed from then on is held until the next one.
fn take_checkpoint(machine: &Machine) {
    let engine = machine.tier().engine().expect("flash");
    let checkpoints = engine.checkpoints().expect("a log keeps what it refers to");
    checkpoints.prepare(1).expect("nothing fails");
    let number = checkpoints.begin();
    let turn = || {
        machine.round();
        true
    };
    checkpoints.close(number, flash::Position(100), &turn).expect("nothing fails");
    checkpoints.end(number, CheckpointEnd::InPlace);
}

#[test]
fn what_a_checkpoint_holds_is_waited_for_while_the_next_one_comes_and_not_for_ever() {
    let machine = Machine::new(8 * MIB, 16 * MIB, EvictionPolicy::NoEviction);
    let write = |number: u64| {
        // So that it becomes no shorter on flash.
        let mut value = [0; 512];
        Random::new(number).fill(&mut value);
        machine.write(&format!("key-{}", number % 24_000), &value, Expiry::Clear)
    };
    (0..24_000).for_each(|number| write(number).expect("memory"));
    take_checkpoint(&machine);
    // None comes: flash is full, and that is told.
    let written = (0..100_000).find(|&number| write(number).is_err());
    assert!(written.is_some(), "what is written over is held");
    let held = || machine.tier().engine().expect("flash").free_space().held_bytes;
    assert!(held() > 0);
    machine.tier().set_checkpoint_comes(true);
    assert!(
        machine.tier().take_wish_for_checkpoint() && !machine.tier().is_checkpoint_waited_for()
    );
    (0..ROUNDS).for_each(|_| machine.round());
    let (result, time) = machine.in_real_time(machine.worker.wait_for_data(0, reserved(0)));
    assert!(result.is_err() && time >= DRIVE_WAIT_MAX && time < 2 * DRIVE_WAIT_MAX, "{time:?}");
    assert!(machine.tier().is_checkpoint_waited_for() && machine.tier().take_wish_for_checkpoint());
    take_checkpoint(&machine);
    (0..2_000).for_each(|number| write(number).expect("there is room"));
    machine.check_counts();
}

#[test]
fn where_ram_and_flash_are_full_reads_have_memory_and_writes_are_refused() {
    let machine = Machine::of_workers(2, 64 * MIB, 32 * MIB, EvictionPolicy::NoEviction);
    let write = |number: u64| {
        let mut value = [0; 4096];
        Random::new(number).fill(&mut value);
        machine.write(&format!("key-{number}"), &value, Expiry::Clear)
    };
    let count = (0..).find(|&number| write(number).is_err()).expect("no end");
    assert!(count * 4096 > 64 * MIB, "{count} values: as many as RAM alone has room for");
    for round in 0..200 {
        let read = machine.worker.claim(2 * MIB);
        assert!(read.is_some(), "round {round}");
        // What it had is free again, and nobody else's.
        assert_eq!(write(count + round), Err(TierError::OutOfMemory), "round {round}");
    }
    // One that waits for more than there is keeps no other waiting, nor does a write.
    let mut cx = Context::from_waker(Waker::noop());
    let mut waits: [_; 2] = [
        Box::pin(machine.worker.wait_for_memory(32 * MIB, reserved(0)))
            as Pin<Box<dyn Future<Output = _>>>,
        Box::pin(machine.worker.wait_for_data(0, reserved(0))),
    ];
    waits.iter_mut().for_each(|wait| assert!(wait.as_mut().poll(&mut cx).is_pending()));
    assert!(machine.worker.claim(2 * MIB).is_some());
    // One that is let have the margin does not wait for pages: nothing has gone that could leave any.
    drop(waits);
    machine.measure();
    let resident = machine.resident.load(Ordering::Relaxed);
    let (result, waited) = machine.wait_in_real_time(65 * MIB - resident - MIB / 8);
    assert_eq!(result, Ok(()));
    assert!(waited < Duration::from_millis(500), "{waited:?}");
    // Room that comes on flash is for both.
    (0..count / 2).for_each(|number| machine.remove(&format!("key-{number}")));
    (0..100).for_each(|_| machine.round());
    (0..count / 4).for_each(|number| write(number).expect("there is room"));
    machine.check_counts();
}

#[test]
fn keys_that_fill_ram_leave_room_to_reads_and_tell_what_is_left_to_clients() {
    let machine = Machine::new(16 * MIB, 64 * MIB, EvictionPolicy::NoEviction);
    let write = |number: u64| machine.write(&format!("key-{number}"), b"", Expiry::Clear);
    let count = (0..).find(|&number| write(number).is_err()).expect("no end");
    for round in 0..100 {
        assert!(machine.worker.claim(MIB / 2).is_some(), "round {round}");
        assert_eq!(write(count), Err(TierError::OutOfMemory), "round {round}");
    }
    let budget = &machine.tier().budget;
    assert!((MIB..2 * MIB).contains(&budget.room_beside_keys()), "{}", budget.room_beside_keys());
    machine.overhead.set(Some(16 * MIB - machine.used()));
    (0..100).for_each(|_| machine.measure());
    assert_eq!(budget.room_beside_keys(), MIB, "no less than what reads are left");
    (0..count / 2).for_each(|number| machine.remove(&format!("key-{number}")));
    machine.put("value", &[b'v'; 100_000], Expiry::Clear);
    let keys_bytes = machine.used() - 100_000;
    let is_about = |expected: u64| budget.room_beside_keys().abs_diff(expected) < MIB / 16;
    machine.overhead.set(Some(2 * MIB));
    (0..100).for_each(|_| machine.measure());
    assert!(is_about(14 * MIB - keys_bytes), "{}", budget.room_beside_keys());
    // What clients have just been let have is not resident yet, and for a moment after that it still is.
    budget.add_buffers(4 * MIB as i64);
    (0..100).for_each(|_| machine.measure());
    assert!(is_about(14 * MIB - keys_bytes), "{}", budget.room_beside_keys());
    machine.overhead.set(Some(6 * MIB));
    budget.add_buffers(-4 * MIB as i64);
    (0..10).for_each(|_| machine.measure());
    assert!(is_about(14 * MIB - keys_bytes), "{}", budget.room_beside_keys());
    machine.tier().settings.set_policy(EvictionPolicy::AllKeysLru);
    machine.measure();
    assert_eq!(budget.room_beside_keys(), i64::MAX as u64, "any may go");
    machine.tier().settings.set_policy(EvictionPolicy::NoEviction);
    machine.measure();
    assert!(budget.room_beside_keys() < 16 * MIB);
    budget.set_max_bytes(0);
    machine.measure();
    assert_eq!(budget.room_beside_keys(), i64::MAX as u64, "there is no bound");
}

#[test]
fn what_is_used_stays_and_under_noeviction_everything() {
    for (policy, _) in EvictionPolicy::NAMES {
        for flash_bytes in [0, 8 * MIB] {
            check_policy(policy, flash_bytes);
        }
    }
}

/// Writes several times what fits. Every fourth key has an expiry, and some keys are used again and
/// again.
fn check_policy(policy: EvictionPolicy, flash_bytes: u64) {
    // The buffers of the log take some, too.
    let machine = Machine::new(4 * MIB + flash_bytes, flash_bytes, policy);
    let name = |number: u64| format!("key-{number:08}");
    let expiry = |number: u64| match number % 4 {
        0 => Expiry::At(u64::MAX - number),
        _ => Expiry::Clear,
    };
    let used: Vec<String> = (0..200).map(|number| format!("used-{number}")).collect();
    for name in &used {
        machine.write(name, &[b'v'; 300], Expiry::At(u64::MAX)).expect("room at first");
    }
    let (mut written, mut refused) = (0, 0);
    // Where little may go, writes wait for long.
    while written < 60_000 && refused == 0 && machine.waited.get() < 2_000 {
        match machine.write(&name(written), &[b'v'; 300], expiry(written)) {
            Ok(()) => written += 1,
            Err(TierError::OutOfMemory) => refused += 1,
        }
        if written.is_multiple_of(500) && policy.is_by_use() {
            used.iter().for_each(|name| machine.touch(name));
        }
    }
    machine.check_counts();
    let what = format!("{policy:?} with {flash_bytes} bytes of flash");
    assert_eq!(machine.keys() + machine.evicted(), written + used.len() as u64, "{what}");
    if policy.is_volatile() || policy == EvictionPolicy::NoEviction {
        let stays = (0..written).filter(|number| number % 4 > 0);
        assert!(stays.map(name).all(|name| machine.exists(&name)), "{what}");
    } else {
        assert_eq!((refused, written), (0, 60_000), "{what}");
        let stays = !policy.is_by_use() || used.iter().all(|name| machine.exists(name));
        assert!(stays, "{what}: what is used");
        assert!(machine.waited.get() < 600, "{what}: {}", machine.waited.get());
    }
    assert_eq!(machine.evicted() == 0, policy == EvictionPolicy::NoEviction, "{what}");
}

#[test]
fn what_a_large_request_has_claimed_is_not_given_to_another() {
    let machine = Machine::new(8 * MIB, 16 * MIB, EvictionPolicy::NoEviction);
    machine.resident.store(MIB, Ordering::Relaxed);
    machine.tier().measure();
    let first = machine.worker.claim(5 * MIB).expect("there is memory");
    assert!(machine.worker.claim(4 * MIB).is_none(), "none of it is resident yet");
    assert!(machine.worker.claim(0).is_some(), "a small one does not mind");
    let mut wait = Box::pin(machine.worker.wait_for_memory(4 * MIB, reserved(4 * MIB)));
    let mut poll = || wait.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll().is_pending());
    machine.round();
    assert!(poll().is_pending(), "it is held up, not refused");
    drop(first);
    machine.round();
    assert!(matches!(poll(), Poll::Ready(Ok(_))));
}

/// Both workers see room for one, and one takes it.
#[test]
fn what_two_workers_claim_at_once_is_claimed_once() {
    const ROUNDS: usize = 2_000;
    let machine = Machine::of_workers(2, 8 * MIB, 16 * MIB, EvictionPolicy::NoEviction);
    machine.tier().measure();
    let budget = &machine.tier().budget;
    assert!(budget.add_claimed_to(0, 5 * MIB));
    assert!(!budget.add_claimed_to(0, 5 * MIB), "it was claimed meanwhile");
    budget.add_claimed(-5 * MIB as i64);
    let (most, tier) = (AtomicI64::new(0), &machine.worker.tier);
    // They spin, for else one would be done before the other is woken.
    let arrived = AtomicUsize::new(0);
    let meet = |count: usize| {
        arrived.fetch_add(1, Ordering::AcqRel);
        while arrived.load(Ordering::Acquire) < 2 * count {
            std::hint::spin_loop();
        }
    };
    let ask = || {
        for round in 0..ROUNDS {
            meet(2 * round + 1);
            let claim = crate::wait::Claim::if_it_fits(tier, 5 * MIB);
            most.fetch_max(tier.budget.claimed_bytes(), Ordering::Relaxed);
            meet(2 * round + 2);
            drop(claim);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(ask);
        scope.spawn(ask);
    });
    assert_eq!(most.into_inner(), 5 * MIB as i64);
}

#[test]
fn a_large_write_behind_small_ones_that_go_beyond_the_limit_is_looked_at_itself() {
    let machine = Machine::new(16 * MIB, 64 * MIB, EvictionPolicy::NoEviction);
    machine.overhead.set(Some(8 * MIB));
    machine.measure();
    let claim = machine.worker.claim(MIB).expect("there is memory");
    machine.tier().budget.add_reserved(20 * MIB as i64);
    assert!(machine.tier().budget.over_limit() > 0, "though none of that is resident");
    let mut cx = Context::from_waker(Waker::noop());
    let mut small = pin!(machine.worker.wait_for_memory(0, Held::default()));
    let mut large = pin!(machine.worker.wait_for_memory(12 * MIB, reserved(12 * MIB)));
    assert!(small.as_mut().poll(&mut cx).is_pending() && large.as_mut().poll(&mut cx).is_pending());
    let passes = |_: &u64| {
        let is_ready = small.as_mut().poll(&mut cx).is_ready();
        machine.round();
        is_ready
    };
    assert!((0..=ROUNDS).find(passes).is_some());
    assert!(large.as_mut().poll(&mut cx).is_pending(), "it does not fit");
    machine.overhead.set(Some(MIB));
    machine.measure();
    drop(claim);
    machine.round();
    assert!(matches!(large.as_mut().poll(&mut cx), Poll::Ready(Ok(_))));
}

#[test]
fn small_writes_pass_a_large_one_that_is_held_up() {
    let machine = Machine::new(16 * MIB, 64 * MIB, EvictionPolicy::NoEviction);
    machine.tier().measure();
    let claim = machine.worker.claim(12 * MIB).expect("there is memory");
    machine.tier().budget.add_reserved(15 * MIB as i64);
    assert!(machine.tier().budget.over_limit() > 0, "though none of that is resident");
    let mut large = pin!(machine.worker.wait_for_memory(15 * MIB, reserved(15 * MIB)));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(large.as_mut().poll(&mut cx).is_pending());
    for _ in 0..100 {
        let mut small = pin!(machine.worker.wait_for_memory(0, Held::default()));
        let passes = |_: &u64| {
            let is_ready = small.as_mut().poll(&mut cx).is_ready();
            machine.round();
            is_ready
        };
        assert!((0..=ROUNDS).find(passes).is_some());
    }
    assert!(large.as_mut().poll(&mut cx).is_pending());
    drop(claim);
    machine.round();
    assert!(matches!(large.as_mut().poll(&mut cx), Poll::Ready(Ok(_))));
}

#[test]
fn of_two_large_writes_that_fit_one_at_a_time_one_goes_on() {
    let machine = Machine::new(16 * MIB, 64 * MIB, EvictionPolicy::NoEviction);
    let claim = machine.worker.claim(12 * MIB).expect("there is memory");
    let mut waits = [9 * MIB, 8 * MIB]
        .map(|bytes| Some(Box::pin(machine.worker.wait_for_memory(bytes, Held::default()))));
    let mut cx = Context::from_waker(Waker::noop());
    let mut claims = Vec::new();
    let mut poll_all = || {
        for wait in &mut waits {
            if let Some(Poll::Ready(result)) = wait.as_mut().map(|wait| wait.as_mut().poll(&mut cx))
            {
                claims.push(result.expect("there is memory"));
                *wait = None;
            }
        }
        claims.len()
    };
    for _ in 0..2 * ROUNDS {
        assert_eq!(poll_all(), 0);
        machine.round();
    }
    drop(claim);
    for _ in 0..2 * ROUNDS {
        machine.round();
        assert!(poll_all() <= 1, "together they take more than there is");
    }
    assert_eq!(poll_all(), 1);
}

/// What is resident is as it would be if keys alone took it.
#[test]
fn where_nothing_can_be_freed_one_large_read_goes_on_at_a_time_and_no_large_write() {
    let machine = Machine::new(16 * MIB, 64 * MIB, EvictionPolicy::NoEviction);
    machine.overhead.set(Some(15 * MIB));
    machine.measure();
    let bytes = MIB + MIB / 8;
    let mut cx = Context::from_waker(Waker::noop());
    let settle = |is_done: &mut dyn FnMut() -> bool| {
        (0..2 * ROUNDS).any(|_| {
            machine.round();
            is_done()
        })
    };
    let mut first = Box::pin(machine.worker.wait_for_memory(bytes, Held::default()));
    let mut claim = None;
    assert!(settle(&mut || match first.as_mut().poll(&mut cx) {
        Poll::Ready(result) => {
            claim = Some(result.expect("the margin bears it"));
            true
        }
        Poll::Pending => false,
    }));
    let mut second = Box::pin(machine.worker.wait_for_memory(bytes, Held::default()));
    assert!(!settle(&mut || second.as_mut().poll(&mut cx).is_ready()), "the first goes alone");
    drop(claim.take());
    assert!(settle(&mut || matches!(second.as_mut().poll(&mut cx), Poll::Ready(Ok(_)))));
    let mut write = Box::pin(machine.worker.wait_for_data(bytes, Held::default()));
    assert!(settle(&mut || matches!(write.as_mut().poll(&mut cx), Poll::Ready(Err(_)))));
}

#[test]
fn a_large_write_gets_its_memory_while_small_ones_pass_it() {
    let machine = Machine::new(16 * MIB, 64 * MIB, EvictionPolicy::NoEviction);
    let value = [b'v'; 4_000];
    let mut number = 0;
    let mut put = || {
        machine.put(&format!("{number}"), &value, Expiry::Clear);
        number += 1;
    };
    (0..2_000).for_each(|_| put());
    let overhead = 15 * MIB - machine.used();
    machine.overhead.set(Some(overhead));
    machine.measure();
    machine.tier().budget.add_reserved(6 * MIB as i64);
    let mut large = pin!(machine.worker.wait_for_memory(6 * MIB, reserved(6 * MIB)));
    let mut cx = Context::from_waker(Waker::noop());
    let mut smalls: Vec<_> =
        (0..50).map(|_| Box::pin(machine.worker.wait_for_memory(0, Held::default()))).collect();
    let (mut passed, start) = (0, machine.clock.now());
    while large.as_mut().poll(&mut cx).is_pending() {
        assert!(machine.clock.now() - start < Duration::from_secs(2), "it is overtaken for ever");
        for small in &mut smalls {
            if small.as_mut().poll(&mut cx).is_ready() {
                *small = Box::pin(machine.worker.wait_for_memory(0, Held::default()));
                passed += 1;
                put();
            }
        }
        machine.round();
        machine.resident.store(machine.used() + overhead, Ordering::Relaxed);
    }
    assert!(passed > 100, "{passed}");
}

#[test]
fn a_large_write_gets_its_memory_while_clients_of_another_worker_write() {
    let machine = Machine::of_workers(2, 16 * MIB, 256 * MIB, EvictionPolicy::NoEviction);
    let value = [b'v'; 4_000];
    let mut names = (0..).map(|number| format!("{number}"));
    let mut put_by = |worker: &TierWorker| {
        let name = names.next().expect("no end");
        let key = Key::new(name.as_bytes());
        let mut tally = Tally::default();
        let mut slot = machine.tier().keyspace.lock(key.slot);
        Db::new(&mut slot, 0, 1, &mut tally).put(&key, 0, &value, Expiry::Clear);
        drop(slot);
        worker.after_batch(&mut tally);
    };
    (0..2_000).for_each(|_| put_by(&machine.worker));
    let overhead = 14 * MIB - machine.used();
    let measure = || {
        machine.overhead.set(Some(overhead));
        machine.resident.store(machine.used() + overhead, Ordering::Relaxed);
    };
    machine.tier().budget.add_reserved(6 * MIB as i64);
    let mut large = pin!(machine.worker.wait_for_memory(6 * MIB, reserved(6 * MIB)));
    let mut cx = Context::from_waker(Waker::noop());
    let start = machine.clock.now();
    while large.as_mut().poll(&mut cx).is_pending() {
        let waited = machine.clock.now() - start;
        assert!(waited < Duration::from_secs(1), "others take all that is freed for it");
        // 25 MB a second.
        (0..32).for_each(|_| put_by(&machine.others[0]));
        measure();
        machine.round();
    }
}

/// Notes the order in which it is woken.
struct Bell(usize, Arc<Mutex<Vec<usize>>>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.1.lock().expect("no thread panicked").push(self.0);
    }
}

#[test]
fn writes_wait_in_the_order_in_which_they_came_and_a_client_that_goes_leaves_the_queue() {
    let machine = Machine::new(8 * MIB, 16 * MIB, EvictionPolicy::AllKeysLru);
    let rung = Arc::new(Mutex::new(Vec::new()));
    let wakers: Vec<Waker> =
        (0..40).map(|number| Waker::from(Arc::new(Bell(number, rung.clone())))).collect();
    let mut waits: Vec<_> = wakers
        .iter()
        .map(|_| Some(Box::pin(machine.worker.wait_for_memory(0, Held::default()))))
        .collect();
    // All of it is resident, and nothing has been allocated: what is resident falls again.
    machine.resident.store(8 * MIB, Ordering::Relaxed);
    machine.tier().measure();
    for (wait, waker) in waits.iter_mut().zip(&wakers) {
        let wait = wait.as_mut().expect("it waits");
        assert!(wait.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    }
    assert!(machine.worker.must_wait());
    waits[7] = None;
    waits[39] = None;
    machine.round();
    machine.resident.store(0, Ordering::Relaxed);
    machine.tier().measure();
    for _ in 0..10 {
        machine.worker.upkeep();
    }
    let expected: Vec<usize> = (0..39).filter(|&number| number != 7).collect();
    assert_eq!(*rung.lock().expect("no thread panicked"), expected);
    for wait in waits.iter_mut().flatten() {
        let result = wait.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(result, Poll::Ready(Ok(_))));
    }
    assert!(!machine.worker.must_wait(), "nobody waits any more");
}

#[test]
fn a_write_waits_for_what_is_being_freed() {
    for flash_bytes in [0, 64 * MIB] {
        let machine = Machine::new(16 * MIB, flash_bytes, EvictionPolicy::NoEviction);
        let name = |number: u64| format!("{number}");
        let mut number = 0;
        while machine.write(&name(number), b"", Expiry::Clear).is_ok() {
            number += 1;
        }
        machine.measure();
        // What FLUSHALL has detached goes little by little, and not at once.
        let freeing = Freeing::new(&machine.worker.tier);
        let mut cx = Context::from_waker(Waker::noop());
        let mut wait = pin!(machine.worker.wait_for_data(0, Held::default()));
        for _ in 0..3 * ROUNDS {
            machine.round();
            assert!(wait.as_mut().poll(&mut cx).is_pending());
        }
        let result = (0..number).step_by(256).find_map(|first| {
            (first..first + 256).for_each(|number| machine.remove(&name(number)));
            machine.round();
            match wait.as_mut().poll(&mut cx) {
                Poll::Ready(result) => Some(result.map(drop)),
                Poll::Pending => None,
            }
        });
        assert_eq!(result, Some(Ok(())));
        drop(freeing);
        assert!(machine.write("new", b"", Expiry::Clear).is_ok());
    }
}

#[test]
fn a_large_value_counts_while_it_is_on_its_way_to_flash() {
    let machine = Machine::new(64 * MIB, 64 * MIB, EvictionPolicy::NoEviction);
    machine.put("key", &vec![b'v'; MIB as usize], Expiry::Clear);
    machine.measure();
    let engine_bytes = || machine.tier().budget.memory_use().engine_bytes;
    let before = engine_bytes();
    let demoted = machine.worker.demote_key(0, &Key::new(b"key"), machine.clock.unix_ms());
    assert_eq!(demoted, Ok(true));
    assert!(engine_bytes() >= before + MIB as i64, "{} and {before}", engine_bytes());
    // Without a measurement.
    while machine.worker.in_flight() > 0 {
        machine.worker.submit();
        machine.worker.reap();
    }
    assert_eq!(engine_bytes(), before, "it is on flash");
}

#[test]
fn write_buffers_follow_maxmemory_and_readers_have_none() {
    let machine = Machine::of_workers(4, 1024 * MIB, 64 * MIB, EvictionPolicy::NoEviction);
    let tier = &machine.worker.tier;
    let unmade_bytes = || tier.engine().expect("there is flash").stats().unmade_bytes;
    let most_bytes = unmade_bytes();
    let reader = crate::TierWorker::reader(tier.clone()).expect("a reader");
    assert_eq!(unmade_bytes(), most_bytes, "it has none");
    tier.budget.set_max_bytes(64 * MIB);
    machine.round();
    let least_bytes = most_bytes / WRITE_BUFFERS as u64 * WRITE_BUFFERS_MIN as u64;
    assert_eq!(unmade_bytes(), least_bytes);
    tier.budget.set_max_bytes(1024 * MIB);
    machine.round();
    assert_eq!(unmade_bytes(), most_bytes);
    drop(reader);
}

/// Names of keys in the slots of the second of two workers.
fn names_of_second() -> impl Iterator<Item = String> {
    let names = (0..).map(|number| format!("{number}"));
    names.filter(|name| Key::new(name.as_bytes()).slot % 2 == 1)
}

#[test]
fn a_write_has_the_worker_demote_whose_slots_hold_the_values_and_no_more_than_it_needs() {
    check_that_the_other_demotes(3 * MIB, 17 * MIB);
    check_that_the_other_demotes(0, 20 * MIB);
}

/// A write of so many bytes fits beside the overhead when a quarter of the values is demoted.
fn check_that_the_other_demotes(wanted: u64, overhead: u64) {
    /// A second or two of upkeep.
    const ROUNDS_MAX: u64 = 300;
    const MAX: u64 = 24 * MIB;
    let machine = Machine::of_workers(2, MAX, 64 * MIB, EvictionPolicy::NoEviction);
    names_of_second().take(10_000).for_each(|name| machine.put(&name, &[b'v'; 500], Expiry::Clear));
    // Those on probation leave with the worker that wrote them.
    machine.worker.probation.take();
    let filled = machine.used();
    // A large write leaves a margin of 1/32 free.
    let needed = filled - 4 * MIB + if wanted > 0 { MAX / 32 } else { 0 };
    machine.overhead.set(Some(overhead));
    machine.measure();
    machine.tier().budget.add_reserved(wanted as i64);
    assert!(machine.tier().budget.over_watermark() <= 0 && machine.worker.must_wait_for(wanted));
    let asking = || machine.tier().asking_workers.load(Ordering::Relaxed);
    let wait_until = |is_over: &dyn Fn(bool) -> bool| {
        let mut wait = pin!(machine.worker.wait_for_memory(wanted, reserved(wanted)));
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..ROUNDS_MAX {
            let is_ready = wait.as_mut().poll(&mut cx).is_ready();
            if is_over(is_ready) {
                return;
            }
            machine.round();
            // As the server does when it is told that there is more to do.
            (0..32).find(|_| !machine.others[0].upkeep());
            // What is gone is no longer resident, though nobody has measured it yet.
            machine.resident.store(machine.used() + overhead, Ordering::Relaxed);
        }
        panic!("it waits for values that nobody demotes");
    };
    // A client that goes asks for nothing any more.
    wait_until(&|_| asking() == 1);
    machine.round();
    assert_eq!(asking(), 0);
    wait_until(&|is_ready| is_ready);
    assert_eq!(asking(), 0);
    let demoted = filled - machine.used();
    assert!((needed..needed + MIB / 4).contains(&demoted), "{demoted} for {needed}");
}

#[test]
fn where_the_other_worker_cannot_write_its_values_a_write_is_refused_soon() {
    let machine = Machine::of_workers(2, 16 * MIB, 8 * MIB, EvictionPolicy::NoEviction);
    check_that_refusals_come_soon(&machine, names_of_second(), 500);
}

/// Writes keys until one is refused, and three times more: those wait for one pass of the hand over every
/// slot at most. Returns how many names were used.
fn check_that_refusals_come_soon(
    machine: &Machine,
    mut names: impl Iterator<Item = String>,
    value_bytes: usize,
) -> u64 {
    let mut count = 0;
    let mut refused_after = || loop {
        let waited = machine.waited.get();
        let name = names.next().expect("no end");
        count += 1;
        if machine.write(&name, &vec![b'v'; value_bytes], Expiry::Clear).is_err() {
            return machine.waited.get() - waited;
        }
    };
    refused_after();
    for _ in 0..3 {
        machine.measure();
        let rounds = refused_after();
        assert!(rounds <= (SLOT_COUNT / SLICE_SLOTS_MAX) as u64 + 4, "{rounds}");
    }
    count
}

#[test]
fn values_that_are_too_small_to_demote_do_not_hold_up_a_refusal() {
    let machine = Machine::new(16 * MIB, 64 * MIB, EvictionPolicy::NoEviction);
    // No values are waited for that other workers could demote.
    let names = (1u64..).map(|number| format!("{number}"));
    let number = check_that_refusals_come_soon(&machine, names, 30);
    // Values that can be demoted take their place: the hand has to look anew.
    (1..=number).for_each(|number| machine.remove(&format!("{number}")));
    (0..10).for_each(|_| machine.measure());
    for number in 0.. {
        if machine.tier().pressure() != Pressure::None {
            break;
        }
        machine.put(&format!("{number}"), &[b'v'; 500], Expiry::Clear);
    }
    machine.tier().budget.add_reserved(4 * MIB as i64);
    assert_eq!(machine.wait_for(4 * MIB), Ok(()));
}

#[test]
fn values_that_expire_soon_are_demoted_when_nothing_else_is_left() {
    for wanted in [0, 4 * MIB] {
        let machine = Machine::new(16 * MIB, 64 * MIB, EvictionPolicy::NoEviction);
        let soon = machine.clock.unix_ms() + 4_900;
        let put = |number, expiry| machine.put(&format!("{number}"), &[b'v'; 4_000], expiry);
        (0..2_000).for_each(|number| put(number, Expiry::At(soon)));
        (2_000..2_500).for_each(|number| put(number, Expiry::Clear));
        // More is needed than the others take.
        let overhead = 20 * MIB - wanted - machine.used();
        machine.overhead.set(Some(overhead));
        machine.measure();
        machine.tier().budget.add_reserved(wanted as i64);
        let (result, waited) = machine.wait_in_real_time(wanted);
        assert_eq!(result, Ok(()));
        assert!(waited < Duration::from_secs(3), "{waited:?}: it waited until they had expired");
    }
}

#[test]
fn values_that_came_while_memory_was_free_are_demoted_in_the_order_in_which_they_came() {
    const VALUES: usize = 20_000;
    let machine = Machine::new(64 * MIB, 64 * MIB, EvictionPolicy::NoEviction);
    let names = names_of_their_own_tags(VALUES);
    names.iter().for_each(|name| machine.put(name, &[b'v'; 500], Expiry::Clear));
    let mut freed = 0;
    // The queue keeps its share, 2 MiB of 10.
    for _ in 0..100 {
        freed += machine.worker.demote(MIB as i64, SLICE_SLOTS_MAX).freed_bytes;
        machine.round();
        if freed >= 5 * MIB as i64 {
            break;
        }
    }
    let cold: Vec<usize> = (0..VALUES).filter(|&number| machine.is_cold(&names[number])).collect();
    assert!(cold.len() > VALUES / 3, "{} of {VALUES}", cold.len());
    assert_eq!(cold, (0..cold.len()).collect::<Vec<_>>());
}

/// Names of which no two have one slot and one tag, the upper 16 bits of the hash: the queue finds keys by these alone, and may
/// take one for the other, whose value is left to the hand then. Hashes are others in each process.
fn names_of_their_own_tags(count: usize) -> Vec<String> {
    let mut seen = HashSet::new();
    let is_alone = |name: &String| {
        let key = Key::new(name.as_bytes());
        seen.insert((key.slot, key.hash >> 48))
    };
    (0..).map(|number: usize| format!("{number}")).filter(is_alone).take(count).collect()
}

#[test]
fn no_key_goes_for_a_large_request_that_would_not_fit_without_any() {
    let machine = Machine::new(16 * MIB, 64 * MIB, EvictionPolicy::AllKeysLru);
    (0..1_000).for_each(|number| machine.put(&format!("{number}"), b"value", Expiry::Clear));
    // Buffers, and what the engine takes.
    machine.overhead.set(Some(10 * MIB));
    machine.measure();
    machine.tier().budget.add_reserved(8 * MIB as i64);
    let start = machine.clock.now();
    let refused = machine.wait_for(8 * MIB);
    assert_eq!((refused, machine.evicted()), (Err(TierError::OutOfMemory), 0));
    let waited = machine.clock.now() - start;
    assert!(waited < Duration::from_secs(4), "{waited:?}");
}

#[test]
fn a_write_waits_for_a_drive_that_stands_still_for_a_while() {
    for (stands, answer) in [(15, Ok(())), (3600, Err(TierError::OutOfMemory))] {
        let machine = Machine::new(16 * MIB, 256 * MIB, EvictionPolicy::NoEviction);
        (0..20_000)
            .for_each(|number| machine.put(&format!("{number}"), &[b'v'; 500], Expiry::Clear));
        machine.overhead.set(Some(16 * MIB - machine.used()));
        machine.measure();
        machine.drives_stand_until.set(machine.clock.now() + Duration::from_secs(stands));
        machine.tier().budget.add_reserved(4 * MIB as i64);
        let (result, waited) = machine.wait_in_real_time(4 * MIB);
        assert_eq!(result, answer, "{waited:?}");
        assert!(waited > Duration::from_secs(14) && waited < Duration::from_secs(40), "{waited:?}");
    }
}

#[test]
fn a_large_write_is_refused_soon_when_what_is_in_its_way_stays() {
    let machine = Machine::new(16 * MIB, 64 * MIB, EvictionPolicy::NoEviction);
    (0..20_000).for_each(|number| machine.put(&format!("{number}"), b"v", Expiry::Clear));
    // What is allocated would fit, and its pages are sparse.
    machine.overhead.set(Some(14 * MIB - machine.used()));
    machine.measure();
    machine.tier().budget.add_reserved(4 * MIB as i64);
    let (result, waited) = machine.wait_in_real_time(4 * MIB);
    assert_eq!(result, Err(TierError::OutOfMemory));
    assert!(waited < Duration::from_secs(1), "{waited:?}");
}

/// Keys fill most of RAM, and blocks that were read ahead the rest.
fn read_ahead_beside_keys() -> Machine {
    let machine = Machine::new(16 * MIB, 64 * MIB, EvictionPolicy::NoEviction);
    (0..120_000).for_each(|number| machine.put(&format!("{number:064}"), b"", Expiry::Clear));
    let names = (0..4000).map(|number| format!("value-{number}"));
    let names = names.collect::<Vec<_>>();
    let (mut random, mut value) = (Random::new(1), [0; 1000]);
    for name in &names {
        random.fill(&mut value);
        machine.put(name, &value, Expiry::Clear);
        let key = Key::new(name.as_bytes());
        let _ = machine.worker.demote_key(0, &key, machine.clock.unix_ms());
        machine.round();
    }
    for walked in names.chunks(8) {
        // Blocks of which all was served would go at once.
        let walked = &walked[1..];
        let mut fetch =
            pin!(machine.worker.fetch(walked.iter().map(|name| want(&machine, name)).collect()));
        let mut cx = Context::from_waker(Waker::noop());
        while fetch.as_mut().poll(&mut cx).is_pending() {
            machine.round();
        }
    }
    machine
}

/// What to fetch of a key whose value is on flash.
fn want(machine: &Machine, name: &str) -> Want {
    let key = Key::new(name.as_bytes());
    let mut slot = machine.tier().keyspace.lock(key.slot);
    let mut tally = Tally::default();
    let mut db = Db::new(&mut slot, 0, 1, &mut tally);
    match db.peek(&key).map(|view| view.stored) {
        Some(Stored::Cold(at, value_len)) => machine.worker.want(&key, at, value_len),
        stored => panic!("{name}: {stored:?}"),
    }
}

#[test]
fn a_write_waits_for_blocks_that_were_read_ahead_to_go_and_for_no_more() {
    for left_over in [0, 4 * MIB] {
        let machine = read_ahead_beside_keys();
        let read_ahead_bytes =
            || machine.tier().engine().expect("there is flash").stats().block_cache_bytes;
        let before = read_ahead_bytes();
        assert!(before > MIB / 2, "{before}");
        // Without half of them there is memory, beside what is left to reads, or there is none.
        let others_bytes = 15 * MIB - before / 2 - machine.used() + left_over;
        let set_resident = || machine.overhead.set(Some(others_bytes + read_ahead_bytes()));
        set_resident();
        machine.measure();
        let start = machine.clock.now();
        let mut wait = pin!(machine.worker.wait_for_data(0, reserved(0)));
        let mut cx = Context::from_waker(Waker::noop());
        let result = loop {
            if let Poll::Ready(result) = wait.as_mut().poll(&mut cx) {
                break result.map(drop);
            }
            set_resident();
            machine.round();
        };
        let expected = if left_over == 0 { Ok(()) } else { Err(TierError::OutOfMemory) };
        assert_eq!(result, expected, "{left_over}");
        assert!(read_ahead_bytes() < before / 2, "{} of {before}", read_ahead_bytes());
        let waited = machine.clock.now() - start;
        assert!(waited < Duration::from_secs(1), "{waited:?}");
    }
}

/// They would wait for each other.
#[test]
fn what_waits_in_the_background_for_memory_holds_up_no_refusal() {
    let machine = Machine::new(16 * MIB, 64 * MIB, EvictionPolicy::NoEviction);
    (0..20_000).for_each(|number| machine.put(&format!("{number}"), b"v", Expiry::Clear));
    machine.overhead.set(Some(14 * MIB - machine.used()));
    machine.measure();
    let pause = async || std::future::pending().await;
    let mut sought = pin!(Background::in_turns(&machine.worker.tier, 4 * MIB, &pause));
    assert!(sought.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    machine.tier().budget.add_reserved(3 * MIB as i64);
    let (result, waited) = machine.wait_in_real_time(3 * MIB);
    assert_eq!(result, Err(TierError::OutOfMemory));
    assert!(waited < Duration::from_secs(1), "{waited:?}");
}

/// Clients that wait for their turn let go of nothing before those go on that wait for memory.
#[test]
fn what_clients_hold_that_wait_for_their_turn_holds_up_no_refusal() {
    for waits in [false, true] {
        let machine = Machine::new(16 * MIB, 64 * MIB, EvictionPolicy::NoEviction);
        (0..20_000).for_each(|number| machine.put(&format!("{number}"), b"v", Expiry::Clear));
        machine.overhead.set(Some(14 * MIB - machine.used()));
        machine.measure();
        machine.tier().budget.add_buffers(4 * MIB as i64);
        machine.tier().budget.add_reserved(3 * MIB as i64);
        let held = Held { buffer_bytes: 4 * MIB, reserved_bytes: 0 };
        let _noted = waits.then(|| machine.tier().note_waiting(held));
        let (result, waited) = machine.wait_in_real_time(3 * MIB);
        assert_eq!(result, Err(TierError::OutOfMemory));
        assert_eq!(waited < Duration::from_secs(1), waits, "{waited:?}");
    }
}

/// Hears of keys that are evicted, with their slots held.
struct Heard {
    tier: Weak<Tier>,
    keys: AtomicU64,
    /// Notes that came before their keys were counted.
    early: Arc<AtomicU64>,
}

impl Listener for Heard {
    fn noting(&self) -> Noting {
        Noting { gone: true, ..Noting::default() }
    }

    fn hear(&self, notes: &mut Vec<Note>) {
        let count = notes.drain(..).count() as u64;
        let heard = self.keys.fetch_add(count, Ordering::Relaxed) + count;
        let tier = self.tier.upgrade().expect("it evicts");
        if tier.counters.evicted.load(Ordering::Relaxed) < heard {
            self.early.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// So who holds every slot knows of each.
#[test]
fn what_is_evicted_is_counted_with_its_slot_held() {
    // From flash it is gc that evicts.
    for (policy, flash_bytes, writes) in [
        (EvictionPolicy::AllKeysLru, 0, 20_000),
        (EvictionPolicy::AllKeysRandom, 0, 20_000),
        (EvictionPolicy::AllKeysLru, 8 * MIB, 60_000),
    ] {
        let machine = Machine::new(4 * MIB + flash_bytes, flash_bytes, policy);
        let tier = &machine.worker.tier;
        let early = Arc::new(AtomicU64::new(0));
        let keys = AtomicU64::new(0);
        tier.set_listener(Box::new(Heard {
            tier: Arc::downgrade(tier),
            keys,
            early: early.clone(),
        }));
        for number in 0..writes {
            let _ = machine.write(&format!("key:{number}"), &[b'v'; 500], Expiry::Clear);
        }
        assert!(machine.evicted() > 0, "{policy:?} {flash_bytes}");
        assert_eq!(early.load(Ordering::Relaxed), 0, "{policy:?} {flash_bytes}");
    }
}

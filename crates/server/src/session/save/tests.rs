use flash::{Backend, LogConfig, Recovery, SimDisk, SimFaults, open_sim};
use keyspace::{Db, Expiry, Stored, Tally};
use tier::{Budget, Environment};

use super::*;
use crate::config::Config;
use crate::session::journal::journal_options;
use crate::state::client_memory::tests::server;
use crate::state::registry::tests::KEY_COMMANDS;

/// A snapshot of a server is under way.
fn begin<'s>(server: &'s Server, name: &str) -> (Saving<'s>, Arc<Snapshot>) {
    let reader = TierWorker::new(server.tier.clone(), 0).expect("there is no flash");
    let dir = std::env::temp_dir();
    let (file, pipe) = SnapshotFile::create(server, &dir, name).expect("a file");
    let (purpose, beside) = (Purpose::Save, OnceCell::new());
    let (copier, is_short, turns) = (RefCell::default(), Cell::new(false), Turns::new());
    let saving = Saving {
        server,
        purpose,
        engine: None,
        dir,
        reader,
        copier,
        file,
        beside,
        is_short,
        turns,
        window: Window::new(server, true),
    };
    let writer = FileWriter::new(pipe, VERSION_7_0, false);
    let moment = saving.begin(writer).unwrap_or_else(|failure| panic!("{failure:?}"));
    (saving, moment.snapshot)
}

/// It is over.
fn end(saving: Saving<'_>, snapshot: &Snapshot) {
    drop(saving.end(snapshot));
    assert!(saving.file.remove().is_none());
}

/// Of a server that keeps so many bytes of names.
fn server_with(names_bytes: u64) -> Server {
    let server = server();
    let bytes = (names_bytes << NAMES_SHIFT).max(1).to_string();
    let options = [b"--maxmemory".to_vec(), bytes.into_bytes()];
    server.config.load_arguments(&options).expect("options that there are");
    server
}

#[test]
fn where_no_more_names_are_kept_the_slot_that_is_waited_for_comes_first() {
    let server = server_with(0);
    let (saving, snapshot) = begin(&server, "-first");
    let key = Key::new(b"key");
    assert!(key.slot > 0);
    snapshot.want(&key);
    saving.walk_wanted(&snapshot).expect("it is empty");
    assert!(snapshot.has_saved(&key) && snapshot.is_taken(key.slot) && !snapshot.is_taken(0));
    saving.walk(&snapshot).expect("all are empty");
    assert!((0..SLOT_COUNT as u16).all(|slot| snapshot.is_taken(slot)));
    end(saving, &snapshot);
}

#[test]
fn a_name_that_is_saved_before_its_slot_counts_until_that_is_taken() {
    let server = server_with(1);
    let (saving, snapshot) = begin(&server, "-early");
    let (key, other) = (Key::new(b"key"), Key::new(b"other"));
    let must_wait = || snapshot.must_wait_for(&server.tier.keyspace.lock(other.slot), &other);
    let budgeted = || server.tier.budget.background_bytes();
    assert!(!must_wait() && budgeted() == 0);
    snapshot.want(&key);
    saving.save_wanted(&snapshot).expect("it holds nothing");
    assert!(snapshot.has_saved(&key) && must_wait() && budgeted() > 0);
    saving.walk_slot(&snapshot, key.slot).expect("it is empty");
    assert!(!must_wait() && budgeted() == 0);
    snapshot.want(&other);
    saving.save_wanted(&snapshot).expect("it holds nothing");
    assert!(budgeted() > 0);
    end(saving, &snapshot);
    drop(snapshot);
    assert_eq!(budgeted(), 0);
}

#[test]
fn one_that_is_called_off_while_it_waits_for_memory_says_so() {
    let server = server();
    let (saving, snapshot) = begin(&server, "-called-off");
    server.tier.budget.set_max_bytes(1 << 20);
    snapshot.fail(Failure::Overtaken);
    assert_eq!(saving.reserve(&snapshot, 1 << 20).err(), Some(Failure::Overtaken));
    end(saving, &snapshot);
}

/// It is not its file that failed.
#[test]
fn a_checkpoint_that_cannot_refer_to_values_on_flash_says_so() {
    let dir = std::env::temp_dir().join(format!("kelvin-save-{}", std::process::id()));
    std::fs::create_dir(&dir).expect("a directory");
    let config = Config::default();
    let dir_text = dir.to_str().expect("a path in UTF-8");
    let words = ["--appendonly", "yes", "--tier-persistence", "yes", "--dir", dir_text];
    let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    config.load_arguments(&words).expect("options that there are");
    let disk = SimDisk::new(1, 1, 512);
    let engine = open_sim(
        &disk,
        &LogConfig {
            paths: Vec::new(),
            flash_bytes: 4 << 20,
            workers: 1,
            segment_bytes: Some(64 << 10),
            backend: Backend::Auto,
        },
    );
    let (engine, budget) = (engine.expect("opens"), Budget::new(0).expect("/proc"));
    let environment = Environment::of_machine(None);
    let tier = Tier::new(Arc::default(), Some(engine), environment, budget, 1);
    let server = Server::new(config, &KEY_COMMANDS, Arc::new(tier));
    let journal = Recovery::open(journal_options(&server)).and_then(Recovery::start_anew);
    server.journaling.set_journal(journal.expect("it opens"));
    disk.set_faults(SimFaults { failed_syncs: true, ..SimFaults::default() });
    let taken = take(&server, Purpose::Checkpoint).map(drop);
    std::fs::remove_dir_all(&dir).expect("it is there");
    let Err(Failure::Failed(reason)) = taken else { panic!("{taken:?}") };
    assert!(reason.contains("cannot refer to values on flash"), "{reason}");
}

/// What a start has to run is measured without compression.
#[test]
fn what_compression_saves_in_strings_is_counted() {
    for (compresses, saved_min) in [("yes", 900), ("no", 0)] {
        let server = server();
        let options = [b"--rdbcompression".to_vec(), compresses.into()];
        server.config.load_arguments(&options).expect("options that there are");
        let (key, mut tally) = (Key::new(b"key"), Tally::default());
        let mut slot = server.tier.keyspace.lock(key.slot);
        Db::new(&mut slot, 0, 0, &mut tally).put(&key, 0, &[b'x'; 1_000], Expiry::Clear);
        drop(slot);
        let (saving, snapshot) = begin(&server, &format!("-compressed-{compresses}"));
        saving.walk(&snapshot).expect("all is in RAM");
        let saved = snapshot.compressed_away.load(Ordering::Relaxed);
        assert!((saved_min..=1_000.min(2 * saved_min)).contains(&saved), "{saved}");
        end(saving, &snapshot);
    }
}

/// A server with values on a simulated drive, in databases 0 and 1.
fn server_with_flash(disk: &SimDisk) -> Server {
    let config = LogConfig {
        paths: Vec::new(),
        flash_bytes: 4 << 20,
        workers: 1,
        segment_bytes: Some(64 << 10),
        backend: Backend::Auto,
    };
    let engine = open_sim(disk, &config).expect("opens");
    let budget = Budget::new(0).expect("/proc");
    let environment = Environment::of_machine(None);
    let tier = Tier::new(Arc::default(), Some(engine), environment, budget, 1);
    Server::new(Config::default(), &KEY_COMMANDS, Arc::new(tier))
}

fn remove(server: &Server, table: u8, name: &str) {
    let (key, mut tally) = (Key::new(name.as_bytes()), Tally::default());
    let mut slot = server.tier.keyspace.lock(key.slot);
    assert!(Db::new(&mut slot, table, 0, &mut tally).remove(&key));
    drop(slot);
    server.tier.add_tally(&mut tally);
}

fn put(server: &Server, table: u8, name: &str, value: &[u8]) {
    let (key, mut tally) = (Key::new(name.as_bytes()), Tally::default());
    let mut slot = server.tier.keyspace.lock(key.slot);
    Db::new(&mut slot, table, 0, &mut tally).put(&key, 0, value, Expiry::Clear);
    drop(slot);
    server.tier.add_tally(&mut tally);
}

/// What a write does before its change: it saves what the name holds, which it has fetched.
fn save_early(snapshot: &Snapshot, saving: &Saving<'_>, name: &str) -> bool {
    let (key, mut fetched) = (Key::new(name.as_bytes()), FetchedSet::default());
    let tier = &*saving.server.tier;
    for _ in 0..2 {
        let at_hand = AtHand { tier, set: &fetched };
        let reading = Reading { is_walk: false, ..saving.reading(&at_hand) };
        let state = tier.keyspace.lock(key.slot);
        match snapshot.save(&state, &key, &reading) {
            Saved::Yes => return true,
            Saved::Later => return false,
            Saved::Lacks(values) => {
                let sought = Sought::new(tier, name.as_bytes().into(), &values);
                fetched = saving.reader.fetch_now(sorted(sought.wants.into_vec()));
            }
        }
    }
    panic!("{name} is not there though it was fetched");
}

#[test]
fn each_key_is_saved_once_whatever_happens_while_it_waits() {
    let disk = SimDisk::new(1, 1, 512);
    let server = server_with_flash(&disk);
    let names: Vec<String> = (0..700).map(|number| format!("key:{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        put(&server, 0, name, format!("{number:0>100}").as_bytes());
        if number % 2 == 0 {
            put(&server, 1, name, &[b'y'; 100]);
        }
    }
    let worker = TierWorker::new(server.tier.clone(), 0).expect("a worker");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let demoted = runtime.block_on(worker.demote_slots(0..SLOT_COUNT as u16));
    assert_eq!((demoted.values, demoted.stopped), (1_050, None));
    let (saving, snapshot) = begin(&server, "-window");
    for slot in 0..SLOT_COUNT as u16 {
        saving.walk_slot(&snapshot, slot).expect("all can be read");
    }
    assert_eq!(snapshot.keys.load(Ordering::Relaxed), 0, "all wait");
    assert!(snapshot.waiting_bytes() > 700 * 48);
    assert_eq!(server.tier.budget.background_bytes(), 1_050 * 96, "of the window");
    let slot_of = |number: usize| Key::new(names[number].as_bytes()).slot;
    assert!(snapshot.has_waiting(slot_of(0)) && !snapshot.is_taken(slot_of(0)));
    // Some are saved by writes, and then changed, in one database or the other; new ones come.
    for (number, name) in names.iter().enumerate().take(100) {
        assert!(save_early(&snapshot, &saving, name));
        assert!(snapshot.has_saved(&Key::new(name.as_bytes())));
        put(&server, (number % 2) as u8, name, b"newer");
        put(&server, 0, &format!("new:{number}"), b"newer");
        assert!(save_early(&snapshot, &saving, name), "it was saved before");
    }
    let saved_early = snapshot.keys.load(Ordering::Relaxed);
    assert_eq!(saved_early, 150);
    // One is asked for, and others come to RAM.
    snapshot.want(&Key::new(names[200].as_bytes()));
    saving.save_wanted(&snapshot).expect("it can be read");
    assert!(snapshot.has_saved(&Key::new(names[200].as_bytes())));
    saving.save_window(&snapshot).expect("all can be read");
    assert_eq!(snapshot.keys.load(Ordering::Relaxed), 1_050);
    assert!((0..700).all(|number| snapshot.is_taken(slot_of(number))));
    assert_eq!(snapshot.waiting_bytes(), 0);
    end(saving, &snapshot);
    drop(snapshot);
    assert_eq!(server.tier.budget.background_bytes(), 0);
}

/// What a read does: the value is in RAM as well from then on.
fn promote(saving: &Saving<'_>, name: &str) -> bool {
    let (key, mut tally) = (Key::new(name.as_bytes()), Tally::default());
    let tier = &*saving.server.tier;
    let mut slot = tier.keyspace.lock(key.slot);
    let mut db = Db::new(&mut slot, 0, 0, &mut tally);
    let Some(Stored::Cold(at, len)) = db.peek(&key).map(|view| view.stored) else { return false };
    let want = tier.want(&key, at, len);
    let fetched = saving.reader.fetch_now(vec![want]);
    let promoted = db.promote(&key, at, fetched.value(want.record).expect("it is there").into());
    drop(slot);
    tier.add_tally(&mut tally);
    promoted
}

/// When a slot has keys in another database than 0, while the walk is there.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Others {
    Never,
    Always,
    /// For some turns in the midst.
    Meanwhile,
}

/// The walk over one slot, a turn at a time, with what others do between two of them.
#[test]
fn each_key_is_saved_once_whatever_happens_between_two_turns_in_its_slot() {
    const KEYS: usize = 6_000;
    const COLD_EACH: usize = 12;
    const OTHER_EACH: usize = 100;
    let name = |number: usize| format!("{{slot}}:{number}");
    let slot = Key::new(name(0).as_bytes()).slot;
    for others in [Others::Never, Others::Always, Others::Meanwhile] {
        let disk = SimDisk::new(1, 1, 512);
        let server = server_with_flash(&disk);
        let is_cold = |number: &usize| number.is_multiple_of(COLD_EACH);
        let cold = || (0..KEYS).filter(is_cold);
        cold().for_each(|number| put(&server, 0, &name(number), &[b'x'; 64]));
        let worker = TierWorker::new(server.tier.clone(), 0).expect("a worker");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let demoted = runtime.block_on(worker.demote_slots(slot..slot + 1));
        assert_eq!((demoted.values, demoted.stopped), (cold().count() as u64, None));
        let hot = (0..KEYS).filter(|number| !is_cold(number));
        hot.for_each(|number| put(&server, 0, &name(number), b"hot"));
        let mut at_first = KEYS;
        if others == Others::Always {
            (0..KEYS).step_by(OTHER_EACH).for_each(|at| put(&server, 1, &name(at), b"other"));
            at_first += KEYS / OTHER_EACH;
        }
        let (saving, snapshot) = begin(&server, &format!("-turns-{others:?}"));
        let window_bytes = server.tier.budget.background_bytes();
        let (mut random, mut newer, mut turns) = (stdx::Random::new(7), KEYS, 0);
        for table in 0..DB_COUNT as u8 {
            let mut next = Some(ScanPosition::default());
            while let Some(from) = next {
                let nothing = FetchedSet::default();
                let at_hand = AtHand { tier: &server.tier, set: &nothing };
                let (mut met, reading) = (Met::default(), saving.reading(&at_hand));
                let state = server.tier.keyspace.lock(slot);
                let tell = |key: &Key<'_>, saved| met.add(&server.tier, key, saved);
                next = match snapshot.save_some((slot, &state), (table, from), &reading, tell) {
                    WalkedTo::Position(position) => Some(position),
                    WalkedTo::EndOfTable => None,
                    WalkedTo::EndOfSlot => panic!("some are on flash"),
                };
                drop(state);
                turns += 1;
                // Of what was met on flash half is read at once; of the rest, which waits, reads bring half to RAM.
                let waits = met.cold.split_off(met.cold.len() / 2);
                saving.save_cold(&snapshot, slot, met.cold).expect("it can be read");
                for sought in waits.iter().step_by(2) {
                    promote(&saving, std::str::from_utf8(&sought.key).expect("a name"));
                }
                for _ in 0..100 {
                    let number = random.below(newer as u64 + 10) as usize;
                    assert!(save_early(&snapshot, &saving, &name(number)));
                    put(&server, 0, &name(number), b"changed");
                }
                // Segments split.
                for number in newer..newer + 500 {
                    assert!(save_early(&snapshot, &saving, &name(number)), "it holds nothing");
                    put(&server, 0, &name(number), b"newer");
                }
                newer += 500;
                if others == Others::Meanwhile && table == 0 && (2..=4).contains(&turns) {
                    let name = name(1);
                    assert!(save_early(&snapshot, &saving, &name));
                    match turns {
                        2 => put(&server, 1, &name, b"other"),
                        3 => {}
                        _ => remove(&server, 1, &name),
                    }
                }
            }
        }
        assert!(turns > 5, "{turns}");
        let names = server.tier.budget.background_bytes() - window_bytes;
        // Those that were saved early alone take less than those of half of the keys.
        let has_many_names = names > (KEYS / 2 * 72) as i64;
        assert_eq!(has_many_names, others != Others::Never, "{names}");
        saving.add_to_window(&snapshot, slot);
        saving.save_window(&snapshot).expect("all can be read");
        assert!(snapshot.is_taken(slot) && snapshot.failure().is_none());
        assert_eq!(snapshot.keys.load(Ordering::Relaxed), at_first as u64, "{others:?}");
        end(saving, &snapshot);
        drop(snapshot);
        assert_eq!(server.tier.budget.background_bytes(), 0);
    }
}

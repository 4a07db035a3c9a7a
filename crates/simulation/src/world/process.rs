//! A process of the server as it starts: with nothing, or with what another has left.

use std::sync::{Arc, OnceLock};

use flash::{Engine, LogConfig, SimDisk, open_sim, reopen_sim};
use keyspace::Keyspace;
use server::simulation::SimServer;
use stdx::Random;
use tier::{Budget, Environment, Tier};

use crate::engine::PointedEngine;
use crate::journal::JournalThread;
use crate::machine::{SimClock, SimMemory};
use crate::profile::{Profile, SEGMENT_BYTES};

/// What a process has, and its drives.
pub(super) struct Machine {
    pub(super) disk: SimDisk,
    pub(super) tier: Arc<Tier>,
    pub(super) server: SimServer,
}

/// What another process has left, if there was one.
pub(super) struct Left<'a> {
    /// Its folder has nothing in it at first.
    pub(super) journal: Option<&'a JournalThread>,
    /// The drives, if what is on them may be referred to.
    pub(super) disk: Option<SimDisk>,
}

impl Machine {
    /// Errors: what is left cannot be used.
    pub(super) fn new(
        profile: &Profile,
        random: &mut Random,
        clock: &Arc<SimClock>,
        max_memory: u64,
        left: Left<'_>,
    ) -> Result<Machine, String> {
        let (disk, engine) = open_flash(profile, random.next_u64(), &left)?;
        let tier_link = Arc::new(OnceLock::new());
        let memory = SimMemory::new(tier_link.clone());
        let budget = Budget::with_source(max_memory, Box::new(memory));
        let seed = random.next_u64();
        let large_value_bytes = profile.large_value_bytes();
        let environment = Environment { clock: clock.clone(), seed, heap: None, large_value_bytes };
        let keyspace = Arc::new(Keyspace::default());
        let tier = Tier::new(keyspace, engine, environment, budget, profile.workers);
        let tier = Arc::new(tier);
        tier_link.set(Arc::downgrade(&tier)).expect("set once");
        let files = left.journal.map(|journal| journal.folder.files());
        let options = options(profile, max_memory);
        let server = SimServer::new(&options, tier.clone(), profile.slices(), files);
        Ok(Machine { disk, tier, server })
    }
}

/// The drives, and what is on them if a checkpoint refers to it. Errors: that cannot be used.
fn open_flash(
    profile: &Profile,
    seed: u64,
    left: &Left<'_>,
) -> Result<(SimDisk, Option<Arc<dyn Engine>>), String> {
    let state = match (left.journal, &left.disk) {
        (Some(journal), Some(_)) => journal.flash_state()?,
        _ => None,
    };
    let kept = left.disk.clone().filter(|_| state.is_some());
    let disk = kept.unwrap_or_else(|| SimDisk::new(seed, 1, 512));
    if let Some((chunks, heap_bytes)) = profile.device.read_pool {
        disk.set_read_pool(chunks, heap_bytes);
    }
    let open = |segments| engine(&disk, profile.workers, segments, state.as_deref());
    let engine = profile.flash_segments.map(open).transpose()?;
    if profile.keeps_flash() {
        disk.expect_power_loss();
    }
    Ok((disk, engine))
}

/// The flash log on simulated drives, as a checkpoint has left it if it has a state. Errors: it cannot be opened.
fn engine(
    disk: &SimDisk,
    workers: usize,
    segments: u64,
    state: Option<&[u8]>,
) -> Result<Arc<dyn Engine>, String> {
    let config = LogConfig {
        paths: Vec::new(),
        flash_bytes: segments * SEGMENT_BYTES,
        workers,
        segment_bytes: Some(SEGMENT_BYTES),
        backend: flash::Backend::Auto,
    };
    let opened = match state {
        None => open_sim(disk, &config),
        Some(state) => reopen_sim(disk, &config, state),
    };
    let engine = opened.map_err(|error| format!("the flash was not opened: {error}"))?;
    Ok(Arc::new(PointedEngine(engine)))
}

/// The server's command line.
fn options(profile: &Profile, max_memory: u64) -> Vec<Vec<u8>> {
    let mut options = vec![
        ("--workers", profile.workers.to_string()),
        ("--maxmemory", max_memory.to_string()),
        ("--maxmemory-policy", profile.policy.to_owned()),
        ("--tier-promotion", profile.promotion.to_owned()),
        ("--tier-promote-neighbours", profile.promote_neighbours.to_owned()),
        ("--tier-compression", profile.compression.to_owned()),
        ("--tier-compression-min-bytes", "64".to_owned()),
    ];
    if let Some(journal) = &profile.journal {
        options.extend(journal.options());
    }
    if let Some(segments) = profile.flash_segments {
        options.push(("--flash-path", "sim0".to_owned()));
        options.push(("--flash-size", (segments * SEGMENT_BYTES).to_string()));
    }
    options.into_iter().flat_map(|(name, value)| [name.into(), value.into_bytes()]).collect()
}

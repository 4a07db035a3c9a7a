//! Makes the server act on options: at the start, and when CONFIG SET changes them.

use tier::{EvictionPolicy, PromoteNeighbours, Promotion};

use crate::config::{
    ApplyError, MaxmemoryPolicy, OptionRow, TierCompression, TierPromoteNeighbours, TierPromotion,
};
use crate::state::server::{NEED_RESTART, Server};

/// The least `maxmemory` that leaves much for data, beside what the server takes without any.
const MAX_MEMORY_MIN: u64 = 32 << 20;

/// Acts on every option when the server starts.
pub(crate) fn apply_all(server: &Server) {
    let options = server.config.without_effect();
    if !options.is_empty() {
        let options = options.join(", ");
        tracing::warn!(options, "options without effect; docs/compatibility.md says why");
    }
    warn_of_max_memory(server);
    apply_running(server);
}

/// Acts on every option that can change while running.
fn apply_running(server: &Server) {
    apply_tier(server);
    server.listening.set_notified(server.config.notify_keyspace_events.load());
    server.samples.update_slow_ticks(&server.config, &server.clock);
}

/// Acts on options that CONFIG SET has stored.
///
/// Errors: an option cannot take effect; the caller puts the old values back and applies again.
pub(crate) fn apply(server: &Server, rows: &[&'static OptionRow]) -> Result<(), ApplyError> {
    for row in rows {
        match row.name {
            "maxmemory" => apply_max_memory(server),
            "loglevel" => crate::state::log::set_level(server.config.loglevel.load()),
            name if NEED_RESTART.contains(&name) && !server.is_as_started(name) => {
                return Err(refused(name, "can be changed by a restart only"));
            }
            _ => {}
        }
    }
    apply_running(server);
    Ok(())
}

fn apply_tier(server: &Server) {
    let settings = &server.tier.settings;
    settings.set_promotion(match server.config.tier_promotion.load() {
        TierPromotion::Access => Promotion::Access,
        TierPromotion::SecondTouch => Promotion::SecondTouch,
    });
    settings.set_promote_neighbours(match server.config.tier_promote_neighbours.load() {
        TierPromoteNeighbours::Auto => PromoteNeighbours::Auto,
        TierPromoteNeighbours::Always => PromoteNeighbours::Always,
        TierPromoteNeighbours::Never => PromoteNeighbours::Never,
    });
    if let Some(engine) = server.tier.engine() {
        engine.set_read_ahead(server.config.tier_read_ahead.load());
    }
    settings.set_policy(policy(server.config.maxmemory_policy.load()));
    settings.set_defrags(server.config.activedefrag.load());
    settings.set_samples(server.config.maxmemory_samples.load() as u32);
    settings.set_value_bytes_min(server.config.tier_value_bytes_min.load() as u32);
    settings.set_compress_bytes_min(match server.config.tier_compression.load() {
        TierCompression::None => u32::MAX,
        TierCompression::Lz4 => {
            server.config.tier_compression_min_bytes.load().min(u64::from(u32::MAX)) as u32
        }
    });
}

fn policy(option: MaxmemoryPolicy) -> EvictionPolicy {
    match option {
        MaxmemoryPolicy::Noeviction => EvictionPolicy::NoEviction,
        MaxmemoryPolicy::AllkeysLru => EvictionPolicy::AllKeysLru,
        MaxmemoryPolicy::AllkeysLfu => EvictionPolicy::AllKeysLfu,
        MaxmemoryPolicy::AllkeysRandom => EvictionPolicy::AllKeysRandom,
        MaxmemoryPolicy::VolatileLru => EvictionPolicy::VolatileLru,
        MaxmemoryPolicy::VolatileLfu => EvictionPolicy::VolatileLfu,
        MaxmemoryPolicy::VolatileRandom => EvictionPolicy::VolatileRandom,
        MaxmemoryPolicy::VolatileTtl => EvictionPolicy::VolatileTtl,
    }
}

/// A bound that cannot be held is taken as Redis takes it: everything that can go goes, and what
/// needs memory is refused. So it is at a start: CONFIG SET may have set it, and CONFIG REWRITE.
fn apply_max_memory(server: &Server) {
    warn_of_max_memory(server);
    server.tier.budget.set_max_bytes(server.config.maxmemory.load());
}

fn warn_of_max_memory(server: &Server) {
    let max = server.config.maxmemory.load();
    let base = server.tier.budget.base_bytes();
    let least = base + MAX_MEMORY_MIN;
    if max != 0 && max < least {
        let text =
            "maxmemory is too small: the server itself takes `base`; give it `least` or more";
        tracing::warn!(max, base, least, "{text}");
    }
}

fn refused(name: &'static str, reason: &str) -> ApplyError {
    ApplyError { name, reason: reason.to_owned() }
}

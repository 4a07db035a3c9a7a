//! INFO memory, and the figures that MEMORY STATS shows too.
//!
//! `used_memory` is what the allocator has handed out; `maxmemory` bounds `used_memory_rss`. How
//! much of it the values take that are in RAM is in INFO tiering.

use std::sync::atomic::Ordering;

use tier::{AllocatorStats, MemoryUse};

use crate::state::client_memory::connections_bytes;
use crate::state::server::Server;

use super::text::{Text, ratio};

/// Bytes that Redis takes for scripts, of which there are none.
const NO_SCRIPTS: [&str; 5] = [
    "used_memory_scripts_eval",
    "number_of_cached_scripts",
    "number_of_functions",
    "number_of_libraries",
    "used_memory_vm_functions",
];

/// Memory by every account there is. Units: bytes.
pub(crate) struct Memory {
    pub(crate) allocator: AllocatorStats,
    pub(crate) usage: MemoryUse,
    /// Handed out by the allocator.
    pub(crate) used: u64,
    pub(crate) used_peak: u64,
    /// `maxmemory`, 0 for none.
    pub(crate) max: u64,
    /// In use when the server started.
    pub(crate) startup: u64,
    /// In use for anything but the data set.
    pub(crate) overhead: u64,
    pub(crate) clients: u64,
    /// Of the journal: records until they are durable, and room for others.
    pub(crate) journal: u64,
}

impl Memory {
    /// Measures. Cost: about 20 us.
    pub(crate) fn measure(server: &Server) -> Memory {
        let allocator = AllocatorStats::read();
        let usage = server.tier.budget.memory_use();
        let buffers: u64 = server.clients.all().iter().map(|client| client.memory_bytes()).sum();
        let clients = buffers + connections_bytes(server);
        let startup = server.totals.startup_bytes;
        let journal = server.journaling.memory_bytes();
        let overhead = startup + clients + journal + usage.engine_bytes.max(0) as u64;
        Memory {
            used: allocator.allocated,
            used_peak: server.totals.note_used(allocator.allocated),
            max: server.tier.budget.max_bytes(),
            startup,
            overhead: overhead.min(allocator.allocated),
            clients,
            journal,
            allocator,
            usage,
        }
    }

    /// In use for keys and values.
    pub(crate) fn dataset(&self) -> u64 {
        self.used - self.overhead
    }

    /// Percent of what came after the start that the data set takes.
    pub(crate) fn dataset_percent(&self) -> f64 {
        (ratio(self.dataset(), self.used.saturating_sub(self.startup)) * 100.0).min(100.0)
    }
}

/// INFO memory.
pub(super) fn memory(server: &Server, text: &mut Text) {
    let memory = Memory::measure(server);
    let peak_percent = ratio(memory.used, memory.used_peak) * 100.0;
    text.bytes("used_memory", memory.used);
    text.bytes("used_memory_rss", memory.usage.resident_bytes);
    text.bytes("used_memory_peak", memory.used_peak);
    text.field("used_memory_peak_perc", format_args!("{peak_percent:.2}%"));
    text.field("used_memory_overhead", memory.overhead);
    text.field("used_memory_startup", memory.startup);
    text.field("used_memory_dataset", memory.dataset());
    text.field("used_memory_dataset_perc", format_args!("{:.2}%", memory.dataset_percent()));
    text.field("allocator_allocated", memory.allocator.allocated);
    text.field("allocator_active", memory.allocator.active);
    text.field("allocator_resident", memory.allocator.resident);
    text.bytes("total_system_memory", server.client_memory.machine_bytes());
    text.field("used_memory_lua", 0);
    text.field("used_memory_vm_eval", 0);
    text.field("used_memory_lua_human", "0B");
    text.fields(&NO_SCRIPTS, 0);
    text.bytes("used_memory_vm_total", 0);
    text.field("used_memory_functions", 0);
    text.bytes("used_memory_scripts", 0);
    text.bytes("maxmemory", server.config.maxmemory.load());
    text.field("maxmemory_policy", server.tier.settings.policy().name());
    ratios(&memory, text);
    text.fields(&["mem_not_counted_for_evict", "mem_replication_backlog"], 0);
    text.fields(&["mem_total_replication_buffers", "mem_clients_slaves"], 0);
    text.field("mem_clients_normal", memory.clients);
    text.field("mem_cluster_links", 0);
    text.field("mem_aof_buffer", memory.journal);
    text.field("mem_allocator", "jemalloc-5.3.0");
    let is_defragging = server.tier.settings.defrags() && server.tier.budget.is_loose();
    text.field("active_defrag_running", u8::from(is_defragging));
    text.fields(&["lazyfree_pending_objects", "lazyfreed_objects"], 0);
}

fn ratios(memory: &Memory, text: &mut Text) {
    let rss = memory.usage.resident_bytes;
    let AllocatorStats { allocated, active, resident, .. } = memory.allocator;
    let pairs = [
        ("allocator_frag_ratio", "allocator_frag_bytes", active, allocated),
        ("allocator_rss_ratio", "allocator_rss_bytes", resident, active),
        ("rss_overhead_ratio", "rss_overhead_bytes", rss, resident),
        ("mem_fragmentation_ratio", "mem_fragmentation_bytes", rss, memory.used),
    ];
    for (ratio_name, bytes_name, outer, inner) in pairs {
        text.field(ratio_name, format_args!("{:.2}", ratio(outer, inner)));
        text.field(bytes_name, outer as i64 - inner as i64);
    }
}

impl crate::state::stats::Totals {
    /// Notes what is in use, and answers the most there has been.
    pub(crate) fn note_used(&self, bytes: u64) -> u64 {
        self.used_peak_bytes.fetch_max(bytes, Ordering::Relaxed).max(bytes)
    }
}

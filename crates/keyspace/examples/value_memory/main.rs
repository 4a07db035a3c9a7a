//! Where values lie in RAM, weighed: a block of the allocator each, or a log of chunks.
//!
//! A model of the tier that leaves out all that both have in common but for its memory: one record of
//! the allocator a key, two bits of frequency, one bound on resident memory, and a write buffer that
//! demoted values are copied to. What differs is where values lie and what demotion frees: see
//! `blocks.rs` and `chunks.rs`.
//!
//! ```text
//! cargo run --release -p keyspace --example value_memory -- blocks|regions|chunks VALUE_BYTES BUDGET_MIB
//! ```
//!
//! For each load it prints the CPU time of an operation, resident memory as a part of the budget, the
//! part of the values that is in RAM, what they are of the memory that is not keys, and the longest
//! slice of demotion.

mod blocks;
mod chunks;
mod index;
mod load;

#[allow(dead_code, reason = "the program uses the rest")]
#[path = "../../../kelvin/src/allocator.rs"]
mod allocator;
#[allow(dead_code, reason = "the program uses the rest")]
#[path = "../../../kelvin/src/heap.rs"]
mod heap;

use index::Index;

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

/// Values in RAM within a bound on resident memory.
pub(crate) trait Values {
    /// Sets the value of a key, and demotes others when memory is short.
    fn set(&mut self, key: usize, value: &[u8]);
    /// Whether the value is in RAM; counts as a use.
    fn get(&mut self, key: usize) -> bool;
    /// What is known of keys and figures.
    fn index(&self) -> &Index;
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let numbers = args.get(1..3).map(|two| two.iter().map(|text| text.parse::<usize>()));
    let numbers: Option<Vec<usize>> = numbers.and_then(|two| two.collect::<Result<_, _>>().ok());
    let (Some(kind), Some(&[bytes, mib])) = (args.first(), numbers.as_deref()) else {
        eprintln!("usage: value_memory blocks|regions|chunks VALUE_BYTES BUDGET_MIB");
        std::process::exit(2);
    };
    let budget = mib << 20;
    let keys = index::key_count(bytes, budget);
    let index = Index::new(keys, budget);
    let values: Box<dyn Values> = match kind.as_str() {
        "blocks" => Box::new(blocks::Blocks::new(index, 1)),
        "regions" => Box::new(blocks::Blocks::new(index, blocks::REGIONS)),
        "chunks" => Box::new(chunks::Chunks::new(index)),
        other => {
            eprintln!("no such kind: {other}");
            std::process::exit(2);
        }
    };
    load::run(kind, values, keys, bytes);
}

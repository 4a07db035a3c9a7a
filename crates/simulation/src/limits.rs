//! The bounds of the simulation.

/// Moves of the checker's search before it gives up on a history.
pub(crate) const CHECKED_NODES_MAX: usize = 300_000;
/// Keys of one command whose answer does not tell which that the checker takes for evicted together.
pub(crate) const EVICTED_TOGETHER_MAX: usize = 6;
/// Steps of the scheduler in one run, after which something is taken to go round in circles.
pub(crate) const STEPS_MAX: u64 = 3_000_000;
/// Steps for which a fiber that was stopped stays so.
pub(crate) const PARKED_STEPS_MAX: u64 = 200;
/// Values that a worker reads with slots held before it is taken to go round in circles.
pub(crate) const BLOCKING_READS_MAX: usize = 1_000;
/// Simulated time within which somebody is answered while anybody waits.
pub(crate) const ANSWERED_WITHIN_US: u64 = 60_000_000;
/// How often something is brought to those who wait without end, within which one of them is answered.
pub(crate) const BROUGHT_MAX: u64 = 100;
/// Points at which it could be stopped that a fiber passes at a time, after which it is taken to go
/// round in circles: more than all slots four times.
pub(crate) const POINTS_MAX: u64 = 400_000;
/// Bytes of a fiber's stack.
pub(crate) const STACK_BYTES: usize = 2 << 20;
/// Steps within which what is under way in a server that crashes comes to an end.
pub(crate) const WIND_DOWN_STEPS_MAX: u64 = 100_000;

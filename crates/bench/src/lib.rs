//! A load generator for anything that speaks the Redis protocol.
//!
//! It is the client half of every measurement of Kelvin, so it must cost little itself: the server
//! under test has one core and the load another. Invariants:
//!
//! 1. Steady state allocates nothing a request: requests are copied from templates, replies are
//!    parsed in place, and what is in flight lives in a ring of fixed size.
//! 2. Values follow from the key alone, so a reply can be checked without remembering what was
//!    written.
//! 3. The same seed gives the same keys and values.
//!
//! [`options`] is what a person asks for, [`plan`] is that, resolved and checked; [`worker`] is a
//! thread that runs a plan over [`connection`]s, and [`report`] is what comes out.

pub mod arguments;
pub mod cli;
pub mod connection;
pub mod cpu;
pub mod epoll;
pub mod error;
pub mod json;
pub mod keys;
pub mod options;
pub mod plan;
pub mod reply;
pub mod report;
pub mod request;
pub mod stats;
pub mod table;
pub mod values;
pub mod worker;
pub mod zipf;

pub use error::LoadError;
pub use options::Options;
pub use report::Report;

/// Runs the load that `options` describe, to its end.
///
/// Errors: when the options contradict each other or a connection cannot be made. What goes wrong
/// later (error replies, wrong values, lost connections) is counted in the report.
pub fn run(options: &Options) -> Result<Report, LoadError> {
    let plan = plan::Plan::new(options)?;
    let mut runs = Vec::new();
    for _ in 0..options.run_count {
        runs.push(worker::run_all(&plan)?);
    }
    Ok(Report::new(options, &plan, runs))
}

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
//! In reading order: [`options`] is what a person asks for, with [`arguments`] as the forms of
//! values; [`plan`] is that, resolved and checked, and [`command`] a kind of request. [`run`](mod@run)
//! is one run of the load on its threads, [`worker`] the loop of one, [`client`] decides what is sent
//! next and [`link`](mod@link) is a connection to the [`target`]. [`stats`] are counted, [`report`] is what comes out,
//! [`report_text`], [`json`] and [`hdr`] are its forms, [`outputs`] where they go; [`cli`] is `kelvin bench run`.

#![deny(unsafe_code)]

pub mod arguments;
pub mod buffer;
pub mod cli;
pub mod client;
pub mod cluster;
pub mod command;
pub mod control;
#[allow(unsafe_code, reason = "no crate here wraps getrusage")]
pub mod cpu;
pub mod epoll;
pub mod error;
pub mod hdr;
pub mod json;
pub mod keys;
pub mod link;
pub mod live;
pub mod options;
pub mod outputs;
pub mod plan;
pub mod reply;
pub mod report;
pub mod report_text;
pub mod run;
pub mod session;
pub mod stats;
pub mod stream;
pub mod target;
pub mod tls;
pub mod values;
pub mod worker;
pub mod zipf;

pub use control::Control;
pub use error::LoadError;
pub use options::Options;
pub use report::Report;

use cluster::{Discovery, discover};
use plan::Plan;

/// Runs the load that `options` describe, to its end.
///
/// Errors: when the options contradict each other or a connection cannot be made. What goes wrong
/// later (error replies, wrong values, lost connections) is counted in the report.
pub fn run(options: &Options) -> Result<Report, LoadError> {
    run_watched(options, &Control::default())
}

/// As [`run`](fn@run), but watched, and interrupted if `control` says so.
///
/// Errors: as [`run`](fn@run).
pub fn run_watched(options: &Options, control: &Control) -> Result<Report, LoadError> {
    let mut plan = Plan::new(options)?;
    if options.cluster_mode {
        match discover(&plan.target)? {
            Discovery::Cluster(map) => plan.cluster = Some(map),
            Discovery::Single(reason) => {
                if let Some(remark) = control.remark {
                    remark(&format!("no cluster, the server is driven as one node ({reason})"));
                }
            }
        }
    }
    let mut runs = Vec::new();
    for _ in 0..options.run_count {
        let run = run::run_all(&plan, control)?;
        let whole = run.cut_short.is_none();
        runs.push(run);
        if !whole {
            break;
        }
    }
    Ok(Report::new(options, &plan, runs))
}

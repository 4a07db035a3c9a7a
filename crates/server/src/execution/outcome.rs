//! What became of a request.

use tier::Want;

/// What became of a request.
pub(crate) enum Outcome {
    /// It was answered.
    Done,
    /// It was answered without having run: queued, or refused.
    NotRun,
    /// It needs all these values, some of which it may have; then it is to be run again.
    Fetch(Vec<Want>),
    /// It must wait for memory, then it is to be run again.
    Room,
    /// It must wait for the end of a pause.
    Paused,
    /// It must wait for the session's errand, then it is to be run again.
    Errand,
}

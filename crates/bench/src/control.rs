//! What the caller of a load may do while it runs: watch it, and interrupt it.

use crate::live::LiveLine;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How a load is watched and interrupted; by default not at all.
#[derive(Default)]
pub struct Control {
    /// Set to end the load early; what was measured is kept.
    pub interrupted: Arc<AtomicBool>,
    /// Shows how it goes.
    pub live: Option<LiveLine>,
    /// Takes remarks that a person should see before the result.
    pub remark: Option<fn(&str)>,
}

impl Control {
    /// Whether the load is to end early.
    #[inline]
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

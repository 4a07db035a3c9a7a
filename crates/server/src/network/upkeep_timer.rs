//! The timer of a worker's upkeep: a descriptor that its event loop watches, set once and for ever.
//!
//! The runtime's own timers would set an alarm for every wait and read the clock after each. A
//! worker whose clients come one at a time waits as often as it serves, and would pay for both with
//! every request; so workers have no other timer than this one.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A timer that ticks at a fixed interval.
pub(crate) struct UpkeepTimer(AsyncFd<OwnedFd>);

impl UpkeepTimer {
    /// A timer in the current runtime. Errors: no more file descriptors.
    pub(crate) fn new(every: Duration) -> io::Result<UpkeepTimer> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let every =
            Timespec { tv_sec: every.as_secs() as i64, tv_nsec: i64::from(every.subsec_nanos()) };
        let times = Itimerspec { it_interval: every, it_value: every };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &times)?;
        crate::network::wake::watch(timer, Interest::READABLE).map(UpkeepTimer)
    }

    /// Waits for the next tick; those that were missed are one. Errors: the runtime is ending.
    pub(crate) async fn tick(&self) -> io::Result<()> {
        let mut ready = self.0.readable().await?;
        ready.clear_ready();
        // A tick between these two steps is taken here and reported once more: there will be nothing
        // to read then, and a tick too many harms nobody.
        let mut count = [0; 8];
        let _ = rustix::io::read(ready.get_inner(), &mut count);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_again_and_again() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        runtime.expect("a runtime").block_on(async {
            let timer = UpkeepTimer::new(Duration::from_millis(1)).expect("a timer");
            for _ in 0..3 {
                timer.tick().await.expect("a tick");
            }
        });
    }
}

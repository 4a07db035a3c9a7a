//! The timer of clients that wait no longer than until some time: a descriptor that is set for the next one
//! of them, and for nothing while there is none.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::state::worker::Worker;

const NEVER: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// The clock of deadlines may be set, so it is looked at from time to time.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A timer that goes off once.
pub(crate) struct DeadlineTimer(AsyncFd<OwnedFd>);

impl DeadlineTimer {
    /// A timer in the current runtime. Errors: no more file descriptors.
    pub(crate) fn new() -> io::Result<DeadlineTimer> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        crate::network::wake::watch(timer, Interest::READABLE).map(DeadlineTimer)
    }

    /// Wakes the clients of a worker whose time has come, for as long as it runs. Errors: the runtime is
    /// ending.
    pub(crate) async fn run(&self, worker: &Worker) -> io::Result<()> {
        loop {
            let now_ms = worker.server.tier.clock().unix_ms();
            worker.deadlines.wake_due(now_ms);
            self.set(worker.deadlines.first_ms().map(|at_ms| {
                // A millisecond that has begun is not over.
                Duration::from_millis(at_ms - now_ms).min(LOOK_EVERY)
            }))?;
            tokio::select! {
                () = worker.deadlines.changed.notified() => {}
                fired = self.0.readable() => fired?.clear_ready(),
            }
        }
    }

    fn set(&self, after: Option<Duration>) -> io::Result<()> {
        let after = after.map_or(NEVER, |after| Timespec {
            tv_sec: after.as_secs() as i64,
            tv_nsec: i64::from(after.subsec_nanos()),
        });
        let times = Itimerspec { it_interval: NEVER, it_value: after };
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::empty(), &times)?;
        Ok(())
    }
}

//! CPU time of this process, by the kernel's account.

/// Seconds of CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CpuSeconds {
    /// In the program.
    pub user: f64,
    /// In the kernel for it.
    pub system: f64,
}

impl CpuSeconds {
    /// What all threads of the process have used so far.
    pub fn now() -> Self {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the pointer is valid for one structure, which the kernel fills; zeroes are a valid
        // one as well, should it refuse.
        let usage = unsafe {
            libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
            usage.assume_init()
        };
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        Self { user: seconds(usage.ru_utime), system: seconds(usage.ru_stime) }
    }

    /// What was used since `before`.
    pub fn since(self, before: Self) -> Self {
        Self { user: self.user - before.user, system: self.system - before.system }
    }

    /// With what `other` used.
    pub fn plus(self, other: Self) -> Self {
        Self { user: self.user + other.user, system: self.system + other.system }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_costs_time() {
        let before = CpuSeconds::now();
        let mut sum = 0_u64;
        loop {
            sum = std::hint::black_box(sum + 1);
            let used = CpuSeconds::now().since(before);
            if used.user + used.system > 0.0 {
                break;
            }
        }
        assert!(sum > 0);
    }
}

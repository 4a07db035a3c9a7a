"""How long the machine itself stood still: the control beside every stall that a load saw.

A hypervisor that gives a core to somebody else stalls the server on it, and nobody there can tell that
from a stall of the server's own. So a watcher a core sleeps for two milliseconds at a time, at a real-time
priority that puts it before the server and the load, and notes when it was woken late. What delays it
is the machine: the hypervisor, or the kernel with interrupts or preemption off.

A core that is given away for ten milliseconds again and again stalls its clients for longer than any of
these pauses: so the most that was lost of any `WINDOW_SECONDS` is noted, too.
"""

import collections
import ctypes
import os
import signal
import subprocess
import sys
import time

SLEEP_SECONDS = 0.002
PRIORITY = 50
# A watcher that is woken this late notes a pause.
PAUSE_SECONDS_MIN = 0.003
# Time of which the most that a core lost is noted, and what counts as lost.
WINDOW_SECONDS = 0.2
LOST_SECONDS_MIN = 0.0005
PR_SET_PDEATHSIG = 1


class Pauses:
    """The watchers of some cores, while it is open."""

    def __init__(self, cores):
        command = [sys.executable, __file__]
        self.watchers = [subprocess.Popen([*command, core], stdout=subprocess.PIPE, text=True)
                         for core in cores]
        for watcher in self.watchers:
            # It is at work when it has said so.
            watcher.stdout.readline()

    def close(self):
        """Ends the watchers; of each core the longest pause, and the most lost of a window, in
        milliseconds."""
        seen = []
        for watcher in self.watchers:
            watcher.send_signal(signal.SIGTERM)
            words = watcher.communicate()[0].split()
            seen.append([float(word) for word in words] or [None, None])
        return seen


def watch(core):
    """Watches a core until SIGTERM, then prints the longest pause, and the most lost of a window, in
    milliseconds."""
    # A script that is killed takes its watchers with it.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    os.sched_setaffinity(0, {core})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    print("watching", flush=True)
    longest, before = 0.0, time.monotonic()
    lost_max, lost, recent = 0.0, 0.0, collections.deque()
    while not stopped:
        time.sleep(SLEEP_SECONDS)
        now = time.monotonic()
        late, before = now - before - SLEEP_SECONDS, now
        if late > PAUSE_SECONDS_MIN:
            longest = max(longest, late)
        while recent and recent[0][0] < now - WINDOW_SECONDS:
            lost -= recent.popleft()[1]
        if late > LOST_SECONDS_MIN:
            # A pause that is longer than the window fills it.
            late = min(late, WINDOW_SECONDS)
            recent.append((now, late))
            lost += late
            lost_max = max(lost_max, min(lost, WINDOW_SECONDS))
    print(f"{longest * 1000:.1f} {lost_max * 1000:.1f}")


if __name__ == "__main__":
    watch(int(sys.argv[1]))

"""A snapshot of a data set ten times RAM, while half of the load writes.

Clients on schedule read and write, by turns without and during BGSAVE; the medians of their p99 are compared. One more
client moves units between two counters in transactions: wherever the moment of the snapshot lies, their sum is the same
in what redis-server loads from the file. What it loads is compared with Kelvin key by key, by samples that no load writes.
"""

import random
import shutil
import statistics
import threading
import time

from harness import MIB, Bench, settle

VALUE_BYTES = 2048
DATA_OVER_RAM = 10
# Keys that no load writes: sampled to compare what was saved.
STILL = 100_000
SAMPLES = 20_000
# Requests a second, of which half write.
RATE = 20_000
P99_BAR, RESIDENT_BAR = 2, 1.05
ROUNDS = 5
COUNTERS = 64
UNITS = 1_000_000


def main():
    with Bench("snapshot", "BGSAVE of ten times RAM under writes") as bench:
        maxmemory = bench.scaled(512, 64)
        keys = maxmemory * MIB * DATA_OVER_RAM // VALUE_BYTES
        folder = bench.flash / bench.name / "dump"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        kelvin = bench.kelvin(maxmemory, more=["--dir", folder])
        bench.load(kelvin, f"--key-minimum 1 --key-maximum {keys} -d {VALUE_BYTES} -n allkeys -c 16 --pipeline 32 "
                           "--ratio 1:0 --key-pattern P:P")
        fill_counters(kelvin)
        settle(kelvin)
        span = f"--key-minimum {STILL + 1} --key-maximum {keys} -d {VALUE_BYTES}"
        load = f"{span} --ratio 1:1 --key-pattern Z:Z --key-zipf-exp 0.99 -c 16 --rate {RATE}"
        runs = [(beside(bench, kelvin, load, None), beside(bench, kelvin, load, snapshot)) for _ in range(ROUNDS)]
        alone, saved = zip(*runs)
        judge(bench, maxmemory, alone, saved)
        compare(bench, kelvin, folder)
        bench.finish()


def counter(number):
    """Names that fall into slots of their own."""
    return f"counter:{number}"


def fill_counters(kelvin):
    client = kelvin.client()
    for number in range(COUNTERS):
        client.call("SET", counter(number), UNITS)
    client.close()


def move_units(kelvin, ended):
    """Moves units between counters, in transactions, until `ended`."""
    client, draw = kelvin.client(), random.Random(1)
    while not ended.is_set():
        from_counter, to_counter = draw.sample(range(COUNTERS), 2)
        client.call("MULTI")
        client.call("DECRBY", counter(from_counter), 7)
        client.call("INCRBY", counter(to_counter), 7)
        client.call("EXEC")
        time.sleep(0.0005)
    client.close()


def snapshot(kelvin):
    """Takes one, and returns how long that took, in seconds."""
    client = kelvin.client()
    start = time.monotonic()
    client.call("BGSAVE")
    while client.info("persistence")["rdb_bgsave_in_progress"]:
        time.sleep(0.05)
    status = client.info("persistence")["rdb_last_bgsave_status"]
    client.close()
    if status != "ok":
        raise SystemExit("BGSAVE failed")
    return time.monotonic() - start


def beside(bench, kelvin, load, work):
    """The load, with one `work` after another as long as it runs, if there is some."""
    seconds = bench.scaled(15, 5)
    ended = threading.Event()
    mover = threading.Thread(target=move_units, args=(kelvin, ended), daemon=True)
    mover.start()
    took = []
    with kelvin.measure() as measured:
        running = bench.start_load(kelvin, f"{load} --test-time {seconds}", nice=-15)
        deadline = time.monotonic() + seconds
        while work and time.monotonic() < deadline:
            took.append(work(kelvin))
        result = bench.end_load(running)
    ended.set()
    mover.join()
    line = result["all"]["latency_ms"]
    print(f"   {'beside BGSAVE' if work else 'alone':<14} {result['all']['per_second']:,.0f}/s  p50 {line['p50']:.3f} ms  "
          f"p99 {line['p99']:.3f}  p99.9 {line['p99.9']:.3f}  resident at most {measured.rss_max_bytes / MIB:.0f} MiB  "
          f"snapshots of {', '.join(f'{each:.1f}' for each in took) or 'none'} s", flush=True)
    bench.record("runs", {"load": result, "server": measured.as_dict(), "snapshot_seconds": took})
    return {"p99": line["p99"], "resident": measured.rss_max_bytes}


def judge(bench, maxmemory, alone, saved):
    alone, p99 = (statistics.median(run["p99"] for run in runs) for runs in (alone, saved))
    bench.check("p99 of others during BGSAVE, over that without", p99 / alone, "<=", P99_BAR, "x")
    resident = max(run["resident"] for run in saved)
    bench.check("resident during BGSAVE, of maxmemory", resident / (maxmemory * MIB), "<=", RESIDENT_BAR, "x")


def compare(bench, kelvin, folder):
    """Has redis-server load the file."""
    redis = bench.redis(more=["--dir", folder, "--dbfilename", "dump.rdb"])
    ours, theirs, draw = kelvin.client(), redis.client(), random.Random(2)
    total = sum(int(theirs.call("GET", counter(number))) for number in range(COUNTERS))
    bench.check("units in all counters of the snapshot", total, ">=", COUNTERS * UNITS)
    bench.check("and no more", total, "<=", COUNTERS * UNITS)
    names = [f"memtier-{draw.randint(1, STILL)}" for _ in range(SAMPLES)]
    differ = sum(ours.call("GET", name) != theirs.call("GET", name) for name in names)
    missing = sum(theirs.call("EXISTS", name) != 1 for name in names)
    bench.check("samples that differ or are missing", differ + missing, "<=", 0)
    bench.check("keys that differ in number", abs(ours.call("DBSIZE") - theirs.call("DBSIZE")), "<=", 0)


if __name__ == "__main__":
    main()

"""Values written together are read together: what reads in the order of writing gain, and what others pay.

The data are three million values of 512 bytes behind 256 MiB, filled by 64 clients, each over its own part in
order, so that neighbours among the keys are neighbours on flash. Sections, of which `--only` picks some:

- `random`: uniform GETs, which have nothing to gain, must cost what they did: device reads, CPU, speed, memory.
- `gaussian`: a hot set moves, from all cold and from a RAM full of other values: time until RAM serves it.
- `zipf`: hits of a read-only load, with popular keys side by side and scattered; and it writes nothing.
- `scan`: clients that walk beside clients that jump: how fast the ones are, how long the others wait.
- `verify`: every value read is compared with what was written, with two workers and little memory.
- `overwrites`: walks over all keys after random overwrites have mixed the order on flash, against all in RAM; on the data of
  `kelvin bench suite --ram 1gb`, twelve million values behind 1 GiB.

`--before PATH` is an earlier build: both are measured in the same run, each paused while the other is
measured. Without it what compares the two is not judged. The acceptance has `--overwrite-seconds 3600`.
"""

import contextlib
import threading
import time

from harness import (
    LOAD_CORE, MIB, SERVER_CORE, Bench, demote_all, machine_pauses, median, settle, tiering)

VALUE_BYTES = 512
# To size the flash: what a record there has beside the value (header, key, rounding), and how many of the values
# are there, with the padding between them.
RECORD_EXTRA_BYTES, ON_FLASH = 48, 0.95
CLIENTS = "-c 64 --pipeline 8"
FILL = f"-n allkeys {CLIENTS} --ratio 1:0 --key-pattern P:P"
RANDOM_GETS = f"--ratio 0:1 --key-pattern R:R {CLIENTS}"
COUNTS = ("tier_read_ram", "tier_read_flash", "flash_device_reads", "flash_device_write_bytes")
# Random GETs, now over before.
READS_A_GET_BAR, CPU_BAR, SPEED_BAR, RESIDENT_BAR = 1.01, 1.02, 0.99, 1.05
# The Gaussian mix: its width in keys, the hits to reach, for how many windows, and the part of before's time from all
# cold. Where RAM is full, values come at their second use as before.
DEVIATION_OF_KEYS = 0.01
HITS_WANTED, WINDOW_SECONDS, WINDOWS = 0.95, 0.2, 3
SAMPLE_SECONDS = 0.05
TIME_BAR, FULL_TIME_BAR = 0.5, 1.1
# Where the hot set lies, as part of the keys: each start has one from all cold, and one from a full RAM.
CENTRES = {"cold": 0.25, "full": 0.75}
COLD_SHARE_MAX = 0.01
ZIPF_BAR_POINTS = -0.2
# After the fill nobody writes any more when this is over.
REST_SECONDS = 3
SCANNERS, JUMPERS = 4, 16
SCAN_BAR, P99_BAR = 10, 1.5
FILL_OF_FLASH = 0.7
WALK_BAR, MIX_BAR = 0.35, 0.30


def add_options(parser):
    parser.add_argument("--before", help="the build to compare with")
    parser.add_argument("--only", action="append", choices=SECTIONS, help="some sections; may be repeated")
    parser.add_argument("--overwrite-seconds", type=int, help="how long values are overwritten at random; 60")


def main():
    with Bench("locality", "values written together are read together", add_options) as bench:
        for name in bench.options.only or SECTIONS:
            print(f"   -- {name}", flush=True)
            SECTIONS[name](bench)
        bench.finish()


# ---------------------------------------------------------------- the data, and servers that have it

def key_count(bench):
    return bench.scaled(3_000_000, 400_000)


def maxmemory_mib(bench):
    return bench.scaled(256, 64)


def suite_key_count(bench):
    return bench.scaled(12_000_000, 400_000)


def suite_maxmemory_mib(bench):
    return bench.scaled(1024, 64)


def span(bench, keys=None):
    return f"--key-minimum 1 --key-maximum {keys or key_count(bench)} -d {VALUE_BYTES}"


def seed(number):
    """Options of a load for keys of its own: what one load has brought to RAM is not what the next one asks for."""
    return f"--seed {1 + number}"


def round_count(bench):
    return bench.options.rounds or bench.scaled(3, 1)


def builds(bench, index):
    """The builds to measure, in an order that changes from round to round."""
    names = ["before", "now"] if bench.options.before else ["now"]
    return names if index % 2 == 0 else names[::-1]


def start_filled(bench, index, flash_size="8gb", keys=None, maxmemory=None):
    """A server of each build with the data, at rest."""
    servers, keys, maxmemory = {}, keys or key_count(bench), maxmemory or maxmemory_mib(bench)
    for name in builds(bench, index):
        binary = bench.options.before if name == "before" else None
        with contextlib.ExitStack() as others:
            for server in servers.values():
                others.enter_context(server.paused())
            servers[name] = bench.kelvin(maxmemory, flash_size, binary=binary)
            result, _ = bench.load(servers[name], f"{span(bench, keys)} {FILL}")
            settle(servers[name])
        client = servers[name].client()
        filled = client.call("DBSIZE")
        client.close()
        if filled != keys:
            raise SystemExit(f"{filled} keys behind the fill, not {keys}")
        bench.record("fills", {"build": name, "load": result, "tiering": tiering(servers[name])})
    return servers


def stop_all(bench, servers):
    for server in servers.values():
        bench.stop(server)


@contextlib.contextmanager
def alone(servers, name):
    """The server of one build, while those of others are kept off the core."""
    with contextlib.ExitStack() as others:
        for other, server in servers.items():
            if other != name:
                others.enter_context(server.paused())
        yield servers[name]


def counted_load(bench, server, arguments):
    """A load, and what the server counted meanwhile. GETs that found nothing, or that the server did not
    count, would make every figure look good: they end the script."""
    before = tiering(server)
    result, measured = bench.load(server, arguments)
    after = tiering(server)
    counts = {name: after[name] - before[name] for name in COUNTS}
    judge_counts(arguments, result, counts)
    return result, measured, counts


def judge_counts(arguments, result, counts):
    gets = result["get"]["count"]
    reads = counts["tier_read_ram"] + counts["tier_read_flash"]
    if result["misses"] or result["errors"] or gets == 0:
        raise SystemExit(f"{arguments}: {gets} GETs, {result['misses']} missed, {result['errors']} errors")
    if abs(reads - gets) > gets / 100:
        raise SystemExit(f"{arguments}: {gets} GETs, but the server counted {reads}")


def hit_share(counts):
    """Part of the GETs that RAM served."""
    reads = counts["tier_read_ram"] + counts["tier_read_flash"]
    return counts["tier_read_ram"] / reads if reads else None


def ratio(figures, name, field):
    """The median of one build, in that of the build before; None if there is none."""
    if not figures.get("before"):
        return None
    return median([each[field] for each in figures[name]]) / median([each[field] for each in figures["before"]])


# ---------------------------------------------------------------- random

def random_reads(bench):
    """Where the allocator puts things differs from start to start, and that alone is some per cent: each
    start of both gives one ratio, of rounds in the order before, now, now, before."""
    starts = []
    for index in range(round_count(bench)):
        servers = start_filled(bench, index)
        for name in servers:
            with alone(servers, name) as server:
                bench.load(server, f"{span(bench)} {RANDOM_GETS} --test-time {bench.scaled(4, 1)} {seed(0)}")
        figures = {name: [] for name in servers}
        for turn, name in enumerate([*servers, *reversed(servers)]):
            with alone(servers, name) as server:
                figures[name].append(random_gets(bench, server, name, turn))
        starts.append(figures)
        bench.record("random", figures)
        stop_all(bench, servers)
    judge_random(bench, starts)


def random_gets(bench, server, name, turn):
    seconds = bench.scaled(6, 1)
    result, measured, counts = counted_load(
        bench, server, f"{span(bench)} {RANDOM_GETS} --test-time {seconds} {seed(1 + turn)}")
    gets = result["get"]["count"]
    cold = max(counts["tier_read_flash"], 1)
    line = {
        "per_second": result["get"]["per_second"], "cpu_us": measured.cpu_seconds / gets * 1e6,
        "hits": hit_share(counts), "reads_a_cold_get": counts["flash_device_reads"] / cold,
        "drive_reads_a_cold_get": measured.device["reads"] / cold,
        "resident": max(measured.hwm_bytes, measured.rss_max_bytes) / MIB / maxmemory_mib(bench),
        "latency_ms": result["get"]["latency_ms"], "server": measured.as_dict(), "counts": counts,
    }
    print(f"   {name:<7}{line['per_second']:>9,.0f} GET/s  CPU {line['cpu_us']:.2f} us  from RAM {line['hits']:.1%}  "
          f"device reads a cold GET {line['reads_a_cold_get']:.4f}, by the drive {line['drive_reads_a_cold_get']:.4f}  "
          f"p99 {line['latency_ms']['p99']:.2f} ms  resident {line['resident']:.3f}", flush=True)
    return line


def judge_random(bench, starts):
    ours = [line for figures in starts for line in figures["now"]]
    bench.check("random GETs: device reads a cold GET", max(line["reads_a_cold_get"] for line in ours),
                "<=", READS_A_GET_BAR)
    bench.check("the same by the drive's counter, median", median([line["drive_reads_a_cold_get"] for line in ours]),
                "<=", READS_A_GET_BAR)
    for what, field, comparison, bar in (("CPU", "cpu_us", "<=", CPU_BAR), ("speed", "per_second", ">=", SPEED_BAR)):
        ratios = [ratio(figures, "now", field) for figures in starts]
        if ratios[0] is not None:
            print(f"   {what} over before, by start: " + ", ".join(f"{each:.3f}" for each in ratios))
        bench.check(f"random GETs: {what} over that of the build before",
                    None if ratios[0] is None else median(ratios), comparison, bar, "x")
    bench.check("resident memory at most, of maxmemory", max(line["resident"] for line in ours), "<=", RESIDENT_BAR)


# ---------------------------------------------------------------- gaussian

class Sampler:
    """Reads what the server counts, again and again over a connection of its own, until `close`."""

    def __init__(self, server):
        self.client = server.client()
        self.samples = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self):
        while not self._ended.is_set():
            fields = self.client.info("tiering")
            self.samples.append({"time": time.monotonic(), **{name: fields[name] for name in COUNTS}})
            self._ended.wait(SAMPLE_SECONDS)

    def close(self):
        """The samples, from the last before the first read; their time counts from there."""
        self._ended.set()
        self._thread.join()
        self.client.close()
        reads = [sample["tier_read_ram"] + sample["tier_read_flash"] for sample in self.samples]
        first = next((index for index, read in enumerate(reads) if read > reads[0]), 1) - 1
        start = self.samples[first]["time"]
        return [{**sample, "time": round(sample["time"] - start, 4)} for sample in self.samples[first:]]


def windows(samples):
    """Hits of each stretch of `WINDOW_SECONDS`, one from each sample on, and the index of the sample that
    ends it. Stretches overlap: a time is then known better than by their length."""
    found, end = [], 0
    for begin, sample in enumerate(samples):
        while end < len(samples) and samples[end]["time"] - sample["time"] < WINDOW_SECONDS:
            end += 1
        if end == len(samples):
            break
        counts = {name: samples[end][name] - sample[name] for name in COUNTS}
        hits = hit_share(counts)
        found.append({"begin": begin, "end": end, "time": samples[end]["time"], "hits": hits,
                      "device_reads": counts["flash_device_reads"]})
    return found


def time_to_hits(found):
    """When the first window ended that has the hits wanted and is followed by others that have; else None."""
    by_begin = {window["begin"]: window for window in found}

    def holds(window, more):
        if window is None or window["hits"] is None or window["hits"] < HITS_WANTED:
            return False
        return more == 0 or holds(by_begin.get(window["end"]), more - 1)

    return next((window["time"] for window in found if holds(window, WINDOWS - 1)), None)


def gaussian(bench):
    """Each start has hot sets in two places that nobody has written to since the fill, as SETs of the mix
    change which values are neighbours on flash."""
    figures = {state: {name: [] for name in ("before", "now")} for state in CENTRES}
    for index in range(round_count(bench)):
        servers = start_filled(bench, index)
        for state in CENTRES:
            for name in servers:
                with alone(servers, name) as server:
                    prepare(bench, server, state)
                    figures[state][name].append(gaussian_mix(bench, server, name, state, index))
        stop_all(bench, servers)
    bench.record("gaussian", figures)
    for state, what, bar in (("cold", "from all cold", TIME_BAR), ("full", "from a full RAM", FULL_TIME_BAR)):
        bench.check(f"Gaussian mix {what}: time to {HITS_WANTED:.0%} hits, of before",
                    ratio(figures[state], "now", "seconds"), "<=", bar, "x")


def prepare(bench, server, state):
    """Takes every value out of RAM; then, if RAM is to be full, reads and writes values of the keys' first half:
    as many of each as all of the memory would hold."""
    demote_all(server)
    left = tiering(server)["tier_values_in_ram"] / key_count(bench)
    if left > COLD_SHARE_MAX:
        raise SystemExit(f"{left:.1%} of the values are still in RAM")
    if state == "full":
        requests = 2 * maxmemory_mib(bench) * MIB // VALUE_BYTES // 64
        bench.load(server, f"--key-minimum 1 --key-maximum {key_count(bench) // 2} -d {VALUE_BYTES} --ratio 1:1 "
                           f"--key-pattern R:R {CLIENTS} -n {requests} {seed(99)}")
        settle(server)


def gaussian_mix(bench, server, name, state, index):
    keys, seconds = key_count(bench), bench.scaled(20, 4)
    place = f"--key-median {keys * CENTRES[state]:.0f} --key-stddev {keys * DEVIATION_OF_KEYS:.0f}"
    start = tiering(server)
    sampler = Sampler(server)
    try:
        result, measured, counts = counted_load(
            bench, server, f"{span(bench)} {CLIENTS} --ratio 3:7 --key-pattern G:G {place} --test-time {seconds} "
                           f"{seed(index)}")
    finally:
        samples = sampler.close()
    found = windows(samples)
    reached = time_to_hits(found)
    most = max((window["hits"] or 0 for window in found), default=0)
    when = f"not within {seconds} s" if reached is None else f"after {reached:.2f} s"
    print(f"   {state:<5}{name:<7} {start['tier_values_in_ram_percent']:.1f} % in RAM at first; {HITS_WANTED:.0%} hits "
          f"{when}; at most {most:.1%}, in all {hit_share(counts):.1%}; "
          f"{result['all']['per_second']:,.0f} ops/s; stall {result['stall_ms_max']:.0f} ms "
          f"{machine_pauses(result)}", flush=True)
    return {
        # One that is not reached takes longer than the load.
        "seconds": seconds if reached is None else reached, "reached": reached is not None,
        "windows": [[window["time"], window["hits"], window["device_reads"]] for window in found],
        "in_ram_percent": start["tier_values_in_ram_percent"], "counts": counts, "load": result,
        "server": measured.as_dict(),
    }


# ---------------------------------------------------------------- zipf

def zipf(bench):
    """A value brought to RAM beside one that was asked for takes another's place: hits show it. Nothing is
    written, so one fill serves all rounds, each from all cold."""
    servers = start_filled(bench, 0)
    kinds = {"neighbours": "", "scattered": "--key-scatter"}
    figures = {kind: {name: [] for name in servers} for kind in kinds}
    for index in range(round_count(bench)):
        for kind, words in kinds.items():
            for name in builds(bench, index):
                with alone(servers, name) as server:
                    figures[kind][name].append(zipf_gets(bench, server, f"{name:<7}{kind}", words))
    stop_all(bench, servers)
    bench.record("zipf", figures)
    for kind, of_kind in figures.items():
        hits = {name: median([line["hits"] for line in lines]) * 100 for name, lines in of_kind.items()}
        bench.check(f"Zipf, popular keys {kind}: hits beyond before's",
                    hits["now"] - hits["before"] if "before" in hits else None, ">=", ZIPF_BAR_POINTS, "points")
    ours = [line for of_kind in figures.values() for line in of_kind["now"]]
    bench.check("bytes written to flash by loads that only read", sum(line["written"] for line in ours),
                "<=", 0, "bytes")


def zipf_gets(bench, server, name, words):
    demote_all(server)
    time.sleep(REST_SECONDS)
    arguments = f"{span(bench)} {CLIENTS} --ratio 0:1 --key-pattern Z:Z --key-zipf-exp 0.99 {words}"
    _, warming, warm = counted_load(bench, server, f"{arguments} --test-time {bench.scaled(20, 2)} {seed(1)}")
    result, measured, counts = counted_load(bench, server, f"{arguments} --test-time {bench.scaled(15, 2)} {seed(2)}")
    gets = result["get"]["count"]
    # By the server's account, and by the kernel's, which counts what the server may have forgotten.
    written = max(warm["flash_device_write_bytes"] + counts["flash_device_write_bytes"],
                  warming.process_write_bytes + measured.process_write_bytes)
    line = {
        "hits": hit_share(counts), "device_reads_a_get": counts["flash_device_reads"] / gets, "written": written,
        "per_second": result["get"]["per_second"], "cpu_us": measured.cpu_seconds / gets * 1e6,
        "counts": counts, "server": measured.as_dict(), "tiering": tiering(server),
    }
    print(f"   {name:<18} from RAM {line['hits']:.2%}  device reads a GET {line['device_reads_a_get']:.4f}  "
          f"{line['per_second']:>9,.0f} GET/s  CPU {line['cpu_us']:.2f} us  written {written} bytes", flush=True)
    return line


# ---------------------------------------------------------------- scan

def scan(bench):
    servers = start_filled(bench, 0)
    figures = {name: [] for name in servers}
    for index in range(round_count(bench)):
        for name in builds(bench, index):
            with alone(servers, name) as server:
                figures[name].append(scan_beside_random(bench, server, name, index))
    stop_all(bench, servers)
    bench.record("scan", figures)
    ours = figures["now"]
    bench.check("GETs of a client that walks, over those of one that jumps",
                median([line["scanner_over_jumper"] for line in ours]), ">=", SCAN_BAR, "x")
    bench.check("p99 of clients that jump beside ones that walk, over alone",
                median([line["p99_over_alone"] for line in ours]), "<=", P99_BAR, "x")


def scan_beside_random(bench, server, name, index):
    """Random GETs alone, then beside clients that walk; both begin with all values on flash."""
    seconds = bench.scaled(12, 2)
    # It goes first on the core that both loads share: its own wait is not the server's.
    random = f"{span(bench)} --ratio 0:1 --key-pattern R:R -c {JUMPERS} --pipeline 1 --test-time {seconds}"
    walk = f"{span(bench)} --ratio 0:1 --key-pattern P:P -c {SCANNERS} --pipeline 8 --test-time {seconds}"
    demote_all(server)
    alone_result = bench.end_load(bench.start_load(server, f"{random} {seed(2 * index)}", nice=-15))
    demote_all(server)
    before = tiering(server)
    with server.measure() as measured:
        walking = bench.start_load(server, walk)
        jumping = bench.start_load(server, f"{random} {seed(2 * index + 1)}", nice=-15)
        jumped, walked = bench.end_load(jumping), bench.end_load(walking)
    after = tiering(server)
    if alone_result["misses"] + jumped["misses"] + walked["misses"]:
        raise SystemExit("keys are missing")
    gets = jumped["get"]["count"] + walked["get"]["count"]
    jump_alone, jump_beside = (load["get"]["latency_ms"] for load in (alone_result, jumped))
    rates = walked["get"]["per_second"] / SCANNERS, jumped["get"]["per_second"] / JUMPERS
    reads = (after["flash_device_reads"] - before["flash_device_reads"]) / gets
    print(f"   {name:<7} a walk {rates[0]:>9,.0f} GET/s, a random client {rates[1]:>8,.0f} (alone "
          f"{alone_result['get']['per_second'] / JUMPERS:,.0f}): {rates[0] / rates[1]:.1f}x; random GETs p50 "
          f"{jump_beside['p50']:.3f} ms (alone {jump_alone['p50']:.3f}), p90 {jump_beside['p90']:.3f} "
          f"({jump_alone['p90']:.3f}), p99 {jump_beside['p99']:.3f} ({jump_alone['p99']:.3f}); "
          f"device reads a GET {reads:.3f} "
          f"{machine_pauses(jumped)}", flush=True)
    return {"scanner_over_jumper": rates[0] / rates[1], "p99_over_alone": jump_beside["p99"] / jump_alone["p99"],
            "alone": alone_result, "random": jumped, "walk": walked, "server": measured.as_dict()}


# ---------------------------------------------------------------- verify

def verify(bench):
    """The build under test alone; values of one size, and of sizes that differ and so end anywhere."""
    keys = bench.scaled(600_000, 200_000)
    totals = {"wrong": 0, "misses": 0, "errors": 0}
    for sizes in (f"-d {VALUE_BYTES}", "--data-size-range 1-4000"):
        server = bench.kelvin(64, "8gb", workers=2, cores=f"{SERVER_CORE},{LOAD_CORE}")
        data = f"--key-minimum 1 --key-maximum {keys} {sizes}"
        bench.load(server, f"{data} {FILL}")
        settle(server)
        for name, arguments in verified_loads(bench, keys):
            result, _ = bench.load(server, f"{data} {CLIENTS} --verify {arguments}", may_fail=True)
            bench.record("verify", {"sizes": sizes, "name": name, "load": result})
            print(f"   {sizes:<26} {name:<22} {result['get']['count']:>9,} GETs: {result['wrong']} wrong, "
                  f"{result['misses']} missing, {result['errors']} errors {result['error_texts'] or ''}", flush=True)
            for what in totals:
                totals[what] += result[what]
            totals["errors"] += result["connections_lost"]
        bench.stop(server)
    bench.check("values read that were wrong", totals["wrong"], "<=", 0)
    bench.check("values that were missing", totals["misses"], "<=", 0)
    bench.check("error replies and lost connections", totals["errors"], "<=", 0)


def verified_loads(bench, keys):
    """SETs write a second version of some values. A GET may find either, since the load does not note which keys
    it has set; the value of another key, or parts of two versions, is wrong."""
    timed = f"--test-time {bench.scaled(10, 1)}"
    newer = "--value-version 1 --accept-older"
    walk = "-n allkeys --ratio 0:1 --key-pattern P:P"
    return [
        ("walk", walk),
        ("uniform", f"{timed} --ratio 0:1 --key-pattern R:R"),
        ("Gaussian, 3:7", f"{timed} --ratio 3:7 --key-pattern G:G --key-stddev {keys * DEVIATION_OF_KEYS:.0f} {newer}"),
        ("Gaussian, wide, 3:7", f"{timed} --ratio 3:7 --key-pattern G:G {newer}"),
        ("Zipf", f"{timed} --ratio 0:1 --key-pattern Z:Z --key-zipf-exp 0.99 {newer}"),
        ("walk again", f"{walk} {newer}"),
        ("walk of SETs and GETs", f"-n allkeys --ratio 3:7 --key-pattern P:P {newer}"),
    ]


# ---------------------------------------------------------------- overwrites

def overwrites(bench):
    """Overwrites in random order leave neighbours among the keys all over the flash, and collection moves them."""
    record_bytes = VALUE_BYTES + RECORD_EXTRA_BYTES
    keys = suite_key_count(bench)
    flash_mib = int(keys * record_bytes * ON_FLASH / FILL_OF_FLASH) // MIB
    in_ram = start_in_ram(bench, keys)
    with in_ram.paused():
        servers = start_filled(bench, 0, f"{flash_mib}mb", keys, suite_maxmemory_mib(bench))
        for name in servers:
            with alone(servers, name) as server:
                overwrite(bench, server, name)
    servers["in RAM"] = in_ram
    shares = {}
    for what, ratio_of_sets, bar in (("walk of GETs", "0:1", WALK_BAR), ("70/30 mix in order", "3:7", MIX_BAR)):
        rates = {name: walk_speed(bench, servers, name, what, ratio_of_sets) for name in servers}
        shares[what] = {name: rate / rates["in RAM"] for name, rate in rates.items()}
        print(f"   {what}: of the speed in RAM " + ", ".join(
            f"{name} {share:.3f}" for name, share in shares[what].items() if name != "in RAM"), flush=True)
        bench.check(f"{what} behind overwrites: speed over all in RAM", shares[what]["now"], ">=", bar, "x")
    bench.record("overwrites", {"shares": shares})
    stop_all(bench, servers)


def start_in_ram(bench, keys):
    """The build under test with the same keys, all in RAM: fewer would cost fewer misses of the CPU's caches."""
    server = bench.kelvin(bench.scaled(12 * 1024, 1024), flash_size=None)
    bench.load(server, f"{span(bench, keys)} {FILL}")
    settle(server)
    return server


def overwrite(bench, server, name):
    seconds = bench.options.overwrite_seconds or bench.scaled(60, 3)
    filled = tiering(server)
    result, measured = bench.load(
        server, f"{span(bench, suite_key_count(bench))} {CLIENTS} --ratio 1:0 --key-pattern R:R --value-version 1 "
                f"--test-time {seconds}",
        may_fail=True)
    settle(server)
    after = tiering(server)
    times = result["set"]["count"] / suite_key_count(bench)
    amplification = measured.process_write_bytes / max(result["value_bytes_written"], 1)
    bench.record("overwrites", {"build": name, "load": result, "server": measured.as_dict(), "filled": filled,
                                "after": after})
    used = [fields["flash_used_bytes"] / fields["flash_capacity_bytes"] for fields in (filled, after)]
    print(f"   {name:<7} flash filled to {used[0]:.0%}, then {result['set']['per_second']:,.0f} SET/s for {seconds} s, "
          f"{times:.2f} a key: {used[1]:.0%} used, {amplification:.2f} bytes written for one; "
          f"{result['errors']} errors, stall {result['stall_ms_max']:.0f} ms {machine_pauses(result)}", flush=True)
    if name == "now":
        bench.check("overwrites refused", result["errors"], "<=", 0)


def walk_speed(bench, servers, name, what, ratio_of_sets):
    keys = suite_key_count(bench)
    arguments = f"{span(bench, keys)} {CLIENTS} --ratio {ratio_of_sets} --key-pattern P:P -n allkeys"
    with alone(servers, name) as server:
        result, measured, counts = counted_load(bench, server, arguments)
    reads = counts["flash_device_reads"] / result["get"]["count"]
    cpu_us = measured.cpu_seconds / result["all"]["count"] * 1e6
    print(f"   {name:<7} {what:<19} {result['all']['per_second']:>9,.0f} ops/s  CPU {cpu_us:.2f} us  from RAM "
          f"{hit_share(counts):.1%}  device reads a GET {reads:.4f}  p99 {result['all']['latency_ms']['p99']:.2f} ms",
          flush=True)
    bench.record("walks", {"build": name, "what": what, "load": result, "counts": counts,
                           "server": measured.as_dict()})
    return result["all"]["per_second"]


SECTIONS = {"random": random_reads, "gaussian": gaussian, "zipf": zipf, "scan": scan, "verify": verify,
            "overwrites": overwrites}


if __name__ == "__main__":
    main()

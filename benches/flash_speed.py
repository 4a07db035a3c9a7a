"""Point 4: speed from flash.

Uniform GETs over a data set 20 times the RAM for values against fio on the same drive, core, block
size and depth; SETs sustained until ten times the RAM has been written; and a Gaussian mix whose
hot set fits in RAM.
"""

from harness import (
    GIB, MIB, Bench, demote_all, machine_pauses, median, share_in_ram, settle, tiering)

VALUE_BYTES = 512
READ_BAR = 0.8
READS_A_GET_BAR = 1.02
CPU_BAR = 1.5
SET_BAR = 0.65
GAUSSIAN_HIT_BAR = 0.95
GAUSSIAN_SPEED_BAR = 0.8
# Of a normal distribution 99.7 % lies within six deviations: they are the hot set.
HOT_SET_DEVIATIONS = 6
HOT_SET_OF_RAM = 0.6
WARM_SECONDS = 30
DEPTHS = {32: "-c 32 --pipeline 1", 64: "-c 64 --pipeline 1", 128: "-c 64 --pipeline 2",
          256: "-c 16 --pipeline 16"}


def main():
    with Bench("flash_speed", "cold GETs against fio, sustained SETs, a Gaussian mix") as bench:
        keys = bench.scaled(16_000_000, 400_000)
        span = f"--key-minimum 1 --key-maximum {keys} -d {VALUE_BYTES}"
        in_ram = measure_in_ram(bench)
        in_ram["all_sets"] = measure_sets_in_ram(bench, span, keys)
        kelvin = bench.kelvin(bench.maxmemory_mib())
        bench.load(kelvin, f"{span} -n allkeys -c 16 --pipeline 32 --ratio 1:0 --key-pattern P:P")
        settle(kelvin)
        share = share_in_ram(kelvin, keys) if kelvin.has_tier() else 1.0
        ram_for_values = share * keys * VALUE_BYTES
        print(f"   {keys:,} keys, {share:.1%} of values in RAM: the data set is {1 / share:.1f} "
              f"times the {ram_for_values / MIB:.0f} MiB for values")
        bench.check("data set over the RAM for values", 1 / share, ">=", 20, "x")
        cold_gets(bench, kelvin, span)
        gaussian(bench, kelvin, span, keys, ram_for_values, in_ram)
        sustained_sets(bench, kelvin, span, keys, in_ram)
        bench.finish()


def measure_in_ram(bench):
    """SETs and the Gaussian mix with everything in RAM, to compare with."""
    keys = bench.scaled(1_000_000, 50_000)
    server = bench.kelvin(4096)
    span = f"--key-minimum 1 --key-maximum {keys} -d {VALUE_BYTES}"
    bench.load(server, f"{span} -n allkeys -c 16 --pipeline 32 --ratio 1:0 --key-pattern P:P")
    seconds = bench.scaled(10, 0.5)
    sets = bench.load(server, f"{span} {set_arguments()} --test-time {seconds}")
    mix = bench.load(server, f"{span} {mix_arguments(keys / 6)} --test-time {seconds}")
    bench.stop(server)
    bench.record("in_ram", {"sets": sets[0], "mix": mix[0]})
    return {"sets": speed(*sets), "mix": speed(*mix)}


def measure_sets_in_ram(bench, span, keys):
    """The SETs over the same keys with all of it in RAM: more keys cost more misses of the CPU's caches,
    wherever their values are."""
    server = bench.kelvin(bench.scaled(16 * 1024, 1024), flash_size=None)
    bench.load(server, f"{span} -n allkeys -c 16 --pipeline 32 --ratio 1:0 --key-pattern P:P")
    sets = bench.load(server, f"{span} {set_arguments()} --test-time {bench.scaled(10, 0.5)}")
    bench.stop(server)
    bench.record("sets_in_ram", {"keys": keys, "sets": sets[0]})
    return speed(*sets)


def speed(result, measured):
    """Operations a second, and the server's CPU for one, which a busy machine disturbs less."""
    return {"per_second": result["all"]["per_second"],
            "cpu_us": measured.cpu_seconds / result["all"]["count"] * 1e6}


def show_cpu(result, measured, in_ram):
    ours = speed(result, measured)["cpu_us"]
    print(f"   server CPU {ours:.2f} us an operation, in RAM {in_ram['cpu_us']:.2f}: "
          f"{ours / in_ram['cpu_us']:.2f}x")


def set_arguments():
    return "--ratio 1:0 --key-pattern R:R -c 64 --pipeline 8"


def mix_arguments(deviation):
    return f"--ratio 3:7 --key-pattern G:G --key-stddev {deviation:.0f} -c 64 --pipeline 8"


def cold_gets(bench, kelvin, span):
    """Uniform GETs at several depths, each followed by fio at the same depth and block size."""
    seconds = bench.scaled(10, 1)
    best = {"share": 0}
    for depth, connections in DEPTHS.items():
        arguments = f"{span} --ratio 0:1 --key-pattern R:R {connections} --verify"
        # The load before the measured one brings RAM into the state that the pattern leaves.
        bench.load(kelvin, f"{arguments} --test-time {bench.scaled(3, 0.5)} --seed 2")
        result, measured = bench.load(kelvin, f"{arguments} --test-time {seconds}")
        hot_cpu_us = hot_get_cpu_us(bench, kelvin, connections)
        reads = measured.device["reads"]
        gets = result["get"]["count"]
        block = round_up(measured.device["read_bytes"] / max(reads, 1), 512) or 1024
        fio = bench.fio_reads(block, depth, seconds, bench.scaled(8 * GIB, 64 * MIB))
        line = {
            "depth": depth, "gets_per_second": result["get"]["per_second"],
            "reads_per_second": reads / measured.seconds, "block_bytes": block,
            "share": reads / measured.seconds / fio["reads_per_second"], "fio": fio,
            "cold_share_by_reads": reads / gets,
            "cpu_us_per_get": measured.cpu_seconds / gets * 1e6, "hot_cpu_us_per_get": hot_cpu_us,
            "latency_ms": result["get"]["latency_ms"], "server": measured.as_dict(),
        }
        bench.record("cold_gets", line)
        print(f"   depth {depth:<4} {line['gets_per_second']:>8.0f} GET/s "
              f"{line['reads_per_second']:>8.0f} reads/s of {block} B; fio "
              f"{fio['reads_per_second']:>8.0f}: {line['share']:.0%}; CPU us a GET "
              f"{line['cpu_us_per_get']:.2f}, hot {hot_cpu_us:.2f}, fio read "
              f"{fio['cpu_us_per_read']:.2f}; p99 {line['latency_ms']['p99']:.2f} ms")
        best = max(best, line, key=lambda line: line["share"])
    judge_cold_gets(bench, kelvin, best)


def judge_cold_gets(bench, kelvin, best):
    tiered = kelvin.has_tier()
    bench.check(f"device reads a second over fio's, depth {best.get('depth')}",
                best["share"] if tiered else None, ">=", READ_BAR)
    if not tiered:
        return
    bench.record("tiering", tiering(kelvin))
    reads_a_cold_get = device_reads_a_cold_get(bench, kelvin)
    bench.check("device reads a cold GET", reads_a_cold_get, "<=", READS_A_GET_BAR)
    bench.check("device reads a cold GET (not fewer: nothing is cached twice)",
                reads_a_cold_get, ">=", 2 - READS_A_GET_BAR)
    cold = best["cold_share_by_reads"]
    # The GETs of the run were a mix: take the hot ones' CPU out.
    cpu_cold = (best["cpu_us_per_get"] - (1 - cold) * best["hot_cpu_us_per_get"]) / cold
    extra = (cpu_cold - best["hot_cpu_us_per_get"]) / best["fio"]["cpu_us_per_read"]
    bench.check("CPU of a cold GET beyond a hot one's, in fio reads", extra, "<=", CPU_BAR, "x")


def hot_get_cpu_us(bench, kelvin, connections):
    """CPU of a GET of a value in RAM, over the same connections."""
    arguments = (f"--key-minimum 1 --key-maximum 10000 -d {VALUE_BYTES} --ratio 0:1 "
                 f"--key-pattern R:R {connections}")
    # Twice over: the second access promotes under every policy.
    bench.load(kelvin, f"{arguments} --test-time {bench.scaled(3, 0.5)}")
    result, measured = bench.load(kelvin, f"{arguments} --test-time {bench.scaled(4, 0.5)}")
    return measured.cpu_seconds / result["get"]["count"] * 1e6


def device_reads_a_cold_get(bench, kelvin):
    """Every key of a stretch once, all of them cold, one at a time: reads by the drive's counter.

    The stretch is visited in a scattered order over the whole data set, so that no two reads are
    neighbours which the server may merge.
    """
    demote_all(kelvin)
    count = bench.scaled(50_000, 1_000)
    client = kelvin.client()
    keys = client.call("DBSIZE")
    step = keys // count
    with kelvin.measure() as measured:
        for index in range(count):
            client.call("GET", f"memtier-{1 + (index * 7919 % count) * step}")
    client.close()
    bench.record("one_by_one", {"gets": count, "server": measured.as_dict()})
    return measured.device["reads"] / count


def gaussian(bench, kelvin, span, keys, ram_for_values, in_ram):
    """A 70/30 mix with a hot set of 60 % of the RAM for values: GETs from RAM, and its speed."""
    hot_keys = HOT_SET_OF_RAM * ram_for_values / VALUE_BYTES
    deviation = max(hot_keys / HOT_SET_DEVIATIONS, 1)
    arguments = f"{span} {mix_arguments(deviation)}"
    bench.load(kelvin, f"{arguments} --test-time {bench.scaled(WARM_SECONDS, 1)}")
    seconds = bench.scaled(20, 1)
    result, measured = bench.load(kelvin, f"{arguments} --seed 2 --test-time {seconds}")
    hits = 1 - measured.device["reads"] / result["get"]["count"]
    written = measured.process_write_bytes / max(result["value_bytes_written"], 1)
    bench.record("gaussian", {"hot_keys": hot_keys, "load": result, "server": measured.as_dict()})
    print(f"   Gaussian, hot set {hot_keys:,.0f} of {keys:,} keys: "
          f"{result['all']['per_second']:.0f} ops/s, in RAM {in_ram['mix']['per_second']:.0f}; "
          f"{hits:.1%} of GETs from RAM")
    show_cpu(result, measured, in_ram["mix"])
    bench.check(f"Gaussian 70/30: GETs from RAM after {WARM_SECONDS} s", hits,
                ">=", GAUSSIAN_HIT_BAR)
    bench.check("Gaussian 70/30: speed over all in RAM",
                result["all"]["per_second"] / in_ram["mix"]["per_second"], ">=", GAUSSIAN_SPEED_BAR)
    bench.check("Gaussian 70/30: bytes to flash over bytes set", written, "<=", 0.05)


def sustained_sets(bench, kelvin, span, keys, in_ram):
    """Uniform SETs until ten times the RAM has been written; the slowest seconds count too."""
    requests = bench.scaled(10 * GIB, 20 * MIB) // VALUE_BYTES // 64
    arguments = f"{span} {set_arguments()} -n {requests} --value-version 1"
    result, measured = bench.load(kelvin, arguments)
    rates = result["replies_by_second"][:-1] or [result["all"]["per_second"]]
    bench.record("sustained_sets", {"load": result, "server": measured.as_dict()})
    per_second = result["all"]["per_second"]
    print(f"   {result['value_bytes_written'] / GIB:.1f} GiB of SETs: {per_second:.0f} ops/s "
          f"(seconds: median {median(rates):.0f}, least {min(rates):.0f}), all in RAM "
          f"{in_ram['all_sets']['per_second']:.0f}; stall {result['stall_ms_max']:.1f} ms "
          f"{machine_pauses(result)}")
    show_cpu(result, measured, in_ram["all_sets"])
    print(f"   over SETs of fewer keys, all in RAM: {per_second / in_ram['sets']['per_second']:.2f}x")
    bench.check("sustained SETs over the same with all in RAM",
                per_second / in_ram["all_sets"]["per_second"], ">=", SET_BAR)


def round_up(value, step):
    return int(-(-value // step) * step)


if __name__ == "__main__":
    main()

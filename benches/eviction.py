"""Eviction: full speed while RAM, or RAM and flash, are full and keys go.

The cache case: new keys for five times the flash. Without flash: redis-server under the same
`maxmemory` and policy, speed while both evict and hit ratio on Zipf. And a fill that ends in refusals.
"""

from harness import GIB, MIB, Bench, machine_pauses, tiering

VALUE_BYTES = 512
WRITE = "--ratio 1:0 --key-pattern P:P -n allkeys -c 16 --pipeline 8 --batch"
RATE_BAR = 0.5
REDIS_RATE_BAR = 0.9
STALL_MS_BAR = 100
SURPLUS_BAR = 1.05
HIT_POINTS_BAR = 1
ZIPF = 0.99


def main():
    with Bench("eviction", "speed, stalls and hit ratio while keys are evicted") as bench:
        for policy in ("allkeys-lru", "allkeys-lfu"):
            cache(bench, policy)
            beside_redis(bench, policy)
        fill_until_refused(bench)
        bench.finish()


def write(bench, server, first, last):
    """Writes new keys; returns what the load saw."""
    span = f"--key-minimum {first} --key-maximum {last} -d {VALUE_BYTES}"
    result, _ = bench.load(server, f"{span} {WRITE}", may_fail=True)
    return result


def cache(bench, policy):
    flash = bench.scaled(GIB, 256 * MIB)
    kelvin = bench.kelvin(bench.scaled(128, 96), flash_size=str(flash),
                          more=("--maxmemory-policy", policy))
    # Three quarters of what the flash holds, and then five times the flash.
    before_full = flash * 3 // 4 // (VALUE_BYTES + 64)
    filled = write(bench, kelvin, 1, before_full)
    before = tiering(kelvin)
    record_bytes = before["flash_live_bytes"] / max(before["tier_values_cold"], 1)
    last = before_full + int(5 * flash / record_bytes)
    full = write(bench, kelvin, before_full + 1, last)
    client = kelvin.client()
    kept, evicted = client.call("DBSIZE"), client.info("stats")["evicted_keys"]
    client.close()
    after = tiering(kelvin)
    fits = flash / record_bytes + after["tier_values_in_ram"]
    figures = {
        "policy": policy, "rate_before": filled["all"]["per_second"],
        "rate": full["all"]["per_second"], "stall_ms": full["stall_ms_max"],
        "p99_ms": full["set"]["latency_ms"]["p99"], "errors": full["errors"],
        "kept": kept, "evicted": evicted, "surplus": evicted / (last - fits),
        "relocated": after["flash_gc_relocated"], "waits": after["tier_pressure_waits"],
    }
    bench.record("cache", figures)
    print(f"   cache, {policy}: {figures['rate_before']:.0f} SET/s, and {figures['rate']:.0f} while "
          f"keys go; stall {figures['stall_ms']:.1f} ms, {figures['relocated']} records moved "
          f"{machine_pauses(full)}")
    bench.stop(kelvin)
    what = f"cache, {policy}:"
    ratio = figures["rate"] / figures["rate_before"]
    bench.check(f"{what} SET rate, of that before flash was full", ratio, ">=", RATE_BAR, "x")
    bench.check(f"{what} longest stall", figures["stall_ms"], "<=", STALL_MS_BAR, "ms")
    bench.check(f"{what} errors", figures["errors"], "<=", 0)
    bench.check(f"{what} evicted, of what had to go", figures["surplus"], "<=", SURPLUS_BAR, "x")


def beside_redis(bench, policy):
    maxmemory = bench.scaled(256, 64)
    keys = maxmemory * MIB // VALUE_BYTES * 4
    more = ("--maxmemory-policy", policy)
    servers = {
        "redis": bench.redis(more=("--maxmemory", f"{maxmemory}mb", *more)),
        "kelvin": bench.kelvin(maxmemory, flash_size=None, more=more),
    }
    rates, hits = {}, {}
    for name, server in servers.items():
        with servers["kelvin" if name == "redis" else "redis"].paused():
            # The first of these fills RAM, and while the second runs keys go all the time.
            write(bench, server, 1, keys // 2)
            rates[name] = write(bench, server, keys // 2 + 1, keys)["all"]["per_second"]
            zipf = (f"--key-minimum 1 --key-maximum {keys} -d {VALUE_BYTES} -c 16 --pipeline 8 "
                    f"--key-pattern Z:Z --key-zipf-exp {ZIPF} --batch")
            seconds = bench.scaled(20, 2)
            bench.load(server, f"{zipf} --ratio 1:4 --test-time {seconds}")
            result, _ = bench.load(server, f"{zipf} --ratio 1:4 --test-time {seconds} --seed 2")
            hits[name] = 100 * (1 - result["misses"] / result["get"]["count"])
    for server in servers.values():
        bench.stop(server)
    bench.record("redis", {"policy": policy, "rates": rates, "hits": hits})
    print(f"   RAM alone, {policy}: {rates['kelvin']:.0f} SET/s (redis {rates['redis']:.0f}), "
          f"hits {hits['kelvin']:.1f} % (redis {hits['redis']:.1f} %)")
    bench.check(f"RAM alone, {policy}: SET rate over redis", rates["kelvin"] / rates["redis"], ">=",
                REDIS_RATE_BAR, "x")
    bench.check(f"RAM alone, {policy}: hits missing, beside redis", hits["redis"] - hits["kelvin"],
                "<=", HIT_POINTS_BAR, "points")


def fill_until_refused(bench):
    kelvin = bench.kelvin(64)
    keys = bench.scaled(2_000_000, 600_000)
    result = write(bench, kelvin, 1, keys)
    bench.record("refused", {"stall_ms": result["stall_ms_max"], "errors": result["errors"]})
    print(f"   64 MiB and {keys} keys: {result['errors']} refused {machine_pauses(result)}")
    bench.stop(kelvin)
    bench.check("64 MiB filled until it refuses: longest stall", result["stall_ms_max"], "<=",
                STALL_MS_BAR, "ms")


if __name__ == "__main__":
    main()

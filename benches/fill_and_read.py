"""Point 1: the published profile at a thousandth of its size.

12 million records of 512 B go into 1 GB of memory and 16 GB of flash, are all read back, are all
overwritten, and are read back again, every byte checked.
"""

from harness import GIB, MIB, Bench, machine_pauses, share_in_ram, tiering

CLIENTS = 64
RSS_BAR = 1.05
STALL_MS_BAR = 100
IN_RAM_BAR = 0.07


def main():
    with Bench("fill_and_read", "12 M records of 512 B in 1 GB of RAM and 16 GB of flash") as bench:
        keys = bench.scaled(12_000_000, 400_000)
        span = f"--key-minimum 1 --key-maximum {keys} -d 512 -c {CLIENTS} --pipeline 8"
        # The bar for "full speed": what redis-server takes with everything in RAM.
        redis = bench.redis()
        redis_fill, _ = bench.load(redis, f"{span} -n allkeys --ratio 1:0 --key-pattern P:P")
        bench.stop(redis)
        bench.record("redis_fill", redis_fill)

        kelvin = bench.kelvin(bench.maxmemory_mib())
        phases = {
            "fill": "--ratio 1:0 --key-pattern P:P",
            "read": "--ratio 0:1 --key-pattern P:P --verify",
            "read at random": "--ratio 0:1 --key-pattern R:R --verify",
            "overwrite": "--ratio 1:0 --key-pattern P:P --value-version 1",
            "overwrite at random": "--ratio 1:0 --key-pattern R:R --value-version 2",
            "read after overwrites":
                "--ratio 0:1 --key-pattern P:P --value-version 2 --verify --accept-older",
        }
        rss_max, stall_max, failures = 0, 0, 0
        for name, arguments in phases.items():
            # Only pattern P divides `allkeys` among the clients: at random each would send them all.
            requests = "allkeys" if "P:P" in arguments else keys // CLIENTS
            result, measured = bench.load(kelvin, f"{span} -n {requests} {arguments}",
                                          may_fail=True)
            show(name, result, measured)
            bench.record(name, {"load": result, "server": measured.as_dict()})
            rss_max = max(rss_max, measured.rss_max_bytes, measured.hwm_bytes)
            stall_max = max(stall_max, result["stall_ms_max"])
            misses = result["misses"] if "--verify" in arguments else 0
            failures += result["errors"] + result["wrong"] + result["connections_lost"] + misses
            if name == "fill":
                speed = result["all"]["per_second"] / redis_fill["all"]["per_second"]
        bench.check("fill speed, of redis-server's with all in RAM", speed, ">=", 0.6)
        bench.check("errors, wrong or missing values, lost connections", failures, "<=", 0)
        bench.check("longest stall of a client", stall_max, "<=", STALL_MS_BAR, "ms")
        if kelvin.has_tier():
            bench.record("tiering", tiering(kelvin))
            share = rss_max / MIB / bench.maxmemory_mib()
            bench.check("resident memory at most, of maxmemory", share, "<=", RSS_BAR)
            in_ram = share_in_ram(kelvin, keys)
            bench.check("share of values in RAM at the end", in_ram, ">=", IN_RAM_BAR)
        bench.finish()


def show(name, result, measured):
    print(f"   {name:<22} {result['all']['per_second']:>9.0f} ops/s  "
          f"p99 {result['all']['latency_ms']['p99']:.2f} ms  "
          f"stall {result['stall_ms_max']:.1f} ms  "
          f"RSS {measured.rss_max_bytes / GIB:.3f} GiB  errors {result['errors']}  "
          f"wrong {result['wrong']}  misses {result['misses']}  {machine_pauses(result)}")


if __name__ == "__main__":
    main()

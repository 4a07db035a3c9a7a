"""The memory bound where it is hardest to hold: small and mixed values, little memory, full speed.

Values leave RAM in no order of address, so pages of small values come free late. Each fill is run
with defragmentation and without it: resident memory at its peak (the kernel's mark), speed, stalls.
"""

from harness import MIB, Bench

RSS_BAR = 1.05
STALL_MS_BAR = 100
CASES = [
    (100, 1_200_000, "-d 100"),
    (256, 5_000_000, "-d 100"),
    (256, 5_000_000, "-d 512"),
    (256, 5_000_000, "--data-size-range 1-1024"),
    (1024, 20_000_000, "-d 100"),
]


def main():
    with Bench("small_values", "resident memory while small values are written") as bench:
        print(f"   {'maxmemory, values':<34}{'resident':>9}{'without':>9}{'ops/s':>9}{'without':>9}"
              f"{'stall ms':>9}")
        peak, stall, failures, speeds = 0, 0, 0, []
        for maxmemory, keys, sizes in CASES[:bench.scaled(len(CASES), 1)]:
            with_it = fill(bench, maxmemory, keys, sizes, "yes")
            without = fill(bench, maxmemory, keys, sizes, "no")
            print(f"   {f'{maxmemory} MiB, {keys // 1000} k keys, {sizes}':<34}"
                  f"{with_it['share']:>9.3f}{without['share']:>9.3f}"
                  f"{with_it['rate']:>9.0f}{without['rate']:>9.0f}{with_it['stall']:>9.1f}")
            peak, stall = max(peak, with_it["share"]), max(stall, with_it["stall"])
            failures += with_it["failures"]
            speeds.append(with_it["rate"] / without["rate"])
        bench.check("resident memory at most, of maxmemory", peak, "<=", RSS_BAR)
        bench.check("longest stall of a client", stall, "<=", STALL_MS_BAR, "ms")
        bench.check("errors, lost connections", failures, "<=", 0)
        print(f"   speed, of that without defragmentation: at least {min(speeds):.2f}x")
        bench.finish()


def fill(bench, maxmemory, keys, sizes, defrag):
    kelvin = bench.kelvin(maxmemory, more=("--activedefrag", defrag))
    arguments = (f"--key-minimum 1 --key-maximum {keys} {sizes} -c 16 --pipeline 32 -n allkeys "
                 "--ratio 1:0 --key-pattern P:P --batch")
    result, measured = bench.load(kelvin, arguments, may_fail=True)
    bench.stop(kelvin)
    figures = {
        "share": max(measured.rss_max_bytes, measured.hwm_bytes) / MIB / maxmemory,
        "rate": result["all"]["per_second"],
        "stall": result["stall_ms_max"],
        "failures": result["errors"] + result["connections_lost"],
    }
    bench.record("fill", {"maxmemory_mib": maxmemory, "keys": keys, "sizes": sizes,
                          "activedefrag": defrag, **figures})
    return figures


if __name__ == "__main__":
    main()

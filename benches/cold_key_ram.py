"""Point 2: RAM for a cold key.

Resident memory of a fresh server, and again with N keys whose values are all on flash; the growth
divided by N, less the length of the key. What the server takes once (buffers, arenas) is in it.
"""

from harness import MIB, Bench, demote_all, key_bytes_mean, memory_bytes, settle, share_in_ram

BYTES_BAR = 28
BYTES_TARGET = 24
# The budget: enough for the keys, so that few values are in RAM on the way. With a larger one the
# allocator keeps its records of the pages that values once had, 128 bytes for each 4 KiB: after
# 4 GiB of values that is 12 bytes for each of 10 M keys.
MAXMEMORY_BYTES_A_KEY = 64
MAXMEMORY_MIB_MIN = 256


def main():
    with Bench("cold_key_ram", "resident memory for a key whose value is on flash") as bench:
        counts = bench.scaled([1_000_000, 10_000_000, 50_000_000], [50_000])
        judged = counts[min(1, len(counts) - 1)]
        for keys in counts:
            overhead = measure(bench, keys)
            if keys == judged:
                bench.check(f"RAM for a cold key beyond the key, {keys:,} keys", overhead,
                            "<=", BYTES_BAR, "bytes")
                bench.check("the same, against the target", overhead, "<=", BYTES_TARGET, "bytes")
            else:
                bench.check(f"for comparison, {keys:,} keys", overhead, "<=", BYTES_BAR, "bytes")
        bench.finish()


def measure(bench, keys):
    """Bytes of resident memory a cold key, beyond the key itself; None without a tier."""
    maxmemory_mib = max(keys * MAXMEMORY_BYTES_A_KEY // MIB, MAXMEMORY_MIB_MIN)
    kelvin = bench.kelvin(maxmemory_mib, flash_size="40gb")
    settle(kelvin, 5)
    before, _ = memory_bytes(kelvin.pid)
    bench.load(kelvin, f"-n allkeys -c 16 --pipeline 32 --ratio 1:0 --key-pattern P:P -d 512 "
                       f"--key-minimum 1 --key-maximum {keys}")
    cold = kelvin.has_tier()
    if cold:
        demote_all(kelvin)
        in_ram = share_in_ram(kelvin, keys)
        if in_ram > 0:
            raise SystemExit(f"{in_ram:.1%} of the values are still in RAM after TIER DEMOTE ALL")
    after, _ = memory_bytes(kelvin.pid)
    bytes_a_key = (after - before) / keys
    overhead = bytes_a_key - key_bytes_mean(keys)
    print(f"   {keys:>11,} keys: {before / MIB:.1f} -> {after / MIB:.1f} MiB, "
          f"{bytes_a_key:.2f} bytes a key, {overhead:.2f} beyond its {key_bytes_mean(keys):.2f}")
    bench.record("growth", {"keys": keys, "before": before, "after": after, "overhead": overhead})
    bench.stop(kelvin)
    return overhead if cold else None


if __name__ == "__main__":
    main()

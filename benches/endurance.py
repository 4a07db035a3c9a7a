"""Point 6: endurance of the drive.

A pure-read workload after warm-up writes nothing; Zipf overwrites of a data set that fills 70 % of
the flash are written at most 1.5 times, by the drive's own counter.
"""

import time

from harness import GIB, MIB, Bench, demote_all, settle, tiering

VALUE_BYTES = 512
FILL_OF_FLASH = 0.7
AMPLIFICATION_BAR = 1.5
# What a record of the log has beside the value (header, key, rounding), to size the data set.
RECORD_EXTRA_BYTES = 64
LOAD = "-c 32 --pipeline 8"


def main():
    with Bench("endurance", "no writes by reading, amplification of overwrites") as bench:
        flash_bytes = bench.scaled(8 * GIB, 1 * GIB)
        keys = int(flash_bytes * FILL_OF_FLASH) // (VALUE_BYTES + RECORD_EXTRA_BYTES)
        span = f"--key-minimum 1 --key-maximum {keys} -d {VALUE_BYTES} {LOAD}"
        kelvin = bench.kelvin(bench.scaled(1024, 256), flash_size=f"{flash_bytes // MIB}mb")
        bench.load(kelvin, f"{span} -n allkeys --ratio 1:0 --key-pattern P:P")
        if kelvin.has_tier():
            demote_all(kelvin)
            bench.record("tiering after the fill", tiering(kelvin))
        read_only(bench, kelvin, span)
        overwrites(bench, kelvin, span, keys, flash_bytes)
        bench.finish()


def read_only(bench, kelvin, span):
    """Uniform reads: by the process's counter exactly, by the drive's against an idle stretch."""
    reads = f"{span} --ratio 0:1 --verify"
    bench.load(kelvin, f"{reads} --test-time {bench.scaled(20, 1)}")
    settle(kelvin)
    seconds = bench.scaled(20, 1)
    with kelvin.measure() as idle:
        time.sleep(seconds)
    result, measured = bench.load(kelvin, f"{reads} --seed 2 --test-time {seconds}")
    bench.record("read_only", {"load": result, "server": measured.as_dict(),
                               "idle": idle.as_dict()})
    written = measured.process_write_bytes
    print(f"   {result['get']['count']:,} reads: server wrote {written} bytes, drive "
          f"{measured.device['write_bytes']}, idle drive {idle.device['write_bytes']}")
    bench.check("bytes written by a pure-read workload", written, "<=", 0, "bytes")
    # What others write to the drive comes now and then: allow for it.
    beyond = max(measured.device["write_bytes"] - idle.device["write_bytes"], 0) / MIB
    bench.check("the same by the drive's counter, beyond idle", beyond, "<=", 1, "MiB")


def overwrites(bench, kelvin, span, keys, flash_bytes):
    """Zipf overwrites, first to steady state, then measured over once the flash."""
    writes = f"{span} --ratio 1:0 --key-pattern Z:Z --key-zipf-exp 0.99 --key-scatter"
    connections = 32
    warm = flash_bytes // VALUE_BYTES // connections
    bench.load(kelvin, f"{writes} -n {warm} --value-version 1")
    settle(kelvin)
    result, measured = bench.load(kelvin, f"{writes} -n {warm} --value-version 2 --seed 2")
    user_bytes = result["value_bytes_written"]
    by_device = measured.device["write_bytes"] / user_bytes
    by_process = measured.process_write_bytes / user_bytes
    bench.record("overwrites", {"load": result, "server": measured.as_dict()})
    if kelvin.has_tier():
        bench.record("tiering after overwrites", tiering(kelvin))
    print(f"   {keys:,} keys, {user_bytes / GIB:.2f} GiB overwritten at "
          f"{result['all']['per_second']:.0f} ops/s: drive "
          f"{measured.device['write_bytes'] / GIB:.2f} GiB, {by_device:.2f}x "
          f"({by_process:.2f}x by the server's account); stall {result['stall_ms_max']:.0f} ms")
    bench.check("bytes to the drive over value bytes overwritten", by_device,
                "<=", AMPLIFICATION_BAR, "x")
    checked, _ = bench.load(kelvin, f"{span} -n allkeys --ratio 0:1 --key-pattern P:P --verify "
                                    f"--value-version 2 --accept-older")
    bench.check("wrong or missing values afterwards", checked["wrong"] + checked["misses"], "<=", 0)


if __name__ == "__main__":
    main()

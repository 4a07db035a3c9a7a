"""Endurance of the drive.

A pure-read workload after warm-up writes nothing; Zipf overwrites of a data set that fills 70 % of
the flash are written at most 1.5 times, by the drive's own counter. With a journal and values that stay on
flash, everything included, overwrites of ten times RAM are written at most 1.7 times.
"""

import shutil

import time

from harness import GIB, MIB, Bench, demote_all, settle, tiering

VALUE_BYTES = 512
FILL_OF_FLASH = 0.7
AMPLIFICATION_BAR = 1.5
# What a record of the log has beside the value (header, key, rounding), to size the data set.
RECORD_EXTRA_BYTES = 64
LOAD = "-c 32 --pipeline 8"
# With everything on.
DURABLE_VALUE_BYTES = 1024
DURABLE_BAR = 1.7
DATA_OVER_RAM = 10


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
        bench.stop(kelvin)
        durable_overwrites(bench)
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


def durable_overwrites(bench):
    """Zipf overwrites with `appendonly yes` and `tier-persistence yes`: once over the flash to steady state, then the same
    measured. What the drive wrote is told by file: the journal and its checkpoints, and the flash."""
    flash_bytes = bench.scaled(4 * GIB, GIB // 2)
    keys = int(flash_bytes * FILL_OF_FLASH) // (DURABLE_VALUE_BYTES + RECORD_EXTRA_BYTES)
    maxmemory = keys * DURABLE_VALUE_BYTES // DATA_OVER_RAM // MIB
    folder = bench.flash / bench.name / "journal"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    kelvin = bench.kelvin(maxmemory, flash_size=f"{flash_bytes // MIB}mb", more=[
        "--dir", folder, "--appendonly", "yes", "--tier-persistence", "yes"])
    span = f"--key-minimum 1 --key-maximum {keys} -d {DURABLE_VALUE_BYTES} {LOAD}"
    bench.load(kelvin, f"{span} -n allkeys --ratio 1:0 --key-pattern P:P")
    writes = f"{span} --ratio 1:0 --key-pattern Z:Z --key-zipf-exp 0.99 --key-scatter"
    count = flash_bytes // DURABLE_VALUE_BYTES // 32
    bench.load(kelvin, f"{writes} -n {count} --value-version 1", may_fail=True)
    settle(kelvin)
    before = written(kelvin)
    result, measured = bench.load(kelvin, f"{writes} -n {count} --value-version 2 --seed 2", may_fail=True)
    parts = {name: (value - before[name]) for name, value in written(kelvin).items()}
    user_bytes = result["value_bytes_written"]
    by_device = measured.device["write_bytes"] / user_bytes
    bench.record("durable", {"load": result, "server": measured.as_dict(), "written": parts, "keys": keys,
                             "maxmemory_mib": maxmemory})
    told = ", ".join(f"{name} {value / user_bytes:.2f}" for name, value in parts.items() if "bytes" in name)
    print(f"   durable: {keys:,} keys, {maxmemory} MiB, {user_bytes / GIB:.2f} GiB overwritten at "
          f"{result['all']['per_second']:,.0f} ops/s: drive {by_device:.2f}x (by process "
          f"{measured.process_write_bytes / user_bytes:.2f}; {told}; {parts['checkpoints']} checkpoints); "
          f"errors {result['errors']}, stall {result['stall_ms_max']:.0f} ms")
    bench.check("the same with a journal and values that stay, all included", by_device, "<=", DURABLE_BAR, "x")
    bench.check("overwrites refused meanwhile", result["errors"], "<=", 0)


def written(kelvin):
    """What the server says it has written, in bytes, and its checkpoints."""
    client = kelvin.client()
    persistence, tier = client.info("persistence"), client.info("tiering")
    client.close()
    return {
        "checkpoints": persistence["aof_rewrites"],
        **{name: value for name, value in tier.items()
           if name in ("flash_append_bytes", "flash_gc_relocated_bytes", "flash_device_write_bytes")},
    }


if __name__ == "__main__":
    main()

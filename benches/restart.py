"""How long a restart takes: ten million keys with a journal, their values on flash.

The server is killed, and once more ended by SHUTDOWN; the time counts from the start of the process to the first
GET that is answered, and what the drive reads meanwhile is compared with the size of the data set. redis-server
loads the same keys from its append-only file in the same run.
"""

import os
import shutil
import subprocess
import time

from harness import MIB, Bench, ReplyError, process_io_bytes, settle

VALUE_BYTES = 512
KEYS = 10_000_000
MAXMEMORY_MIB = 1536
KILLED_BAR, ENDED_BAR, READ_BAR = 8, 3, 0.15
STARTED_WITHIN = 600


def main():
    with Bench("restart", "from the start of the process to the first reply") as bench:
        keys = bench.scaled(KEYS, 200_000)
        data_bytes = keys * VALUE_BYTES
        folder = bench.flash / bench.name
        shutil.rmtree(folder, ignore_errors=True)
        journal = ["--appendonly", "yes", "--appendfsync", "everysec"]
        kept = [*journal, "--tier-persistence", "yes"]
        for name in ("kelvin", "redis"):
            (folder / name).mkdir(parents=True)
        kelvin = bench.kelvin(bench.scaled(MAXMEMORY_MIB, 96), "12gb", more=["--dir", folder / "kelvin", *kept])
        fill(bench, kelvin, keys)
        for name, bar in (("killed", KILLED_BAR), ("SHUTDOWN", ENDED_BAR)):
            if name == "killed":
                kelvin.process.kill()
            else:
                shut_down(kelvin)
            kelvin.process.wait()
            seconds, read_bytes = restart(bench, kelvin)
            print(f"   kelvin, {name}: {seconds:.2f} s, {read_bytes / MIB:.0f} MiB read of {data_bytes / MIB:.0f}", flush=True)
            bench.check(f"{name}: seconds to the first reply", seconds, "<=", bar, "s")
            bench.check(f"{name}: bytes read, of the data set", read_bytes / data_bytes, "<=", READ_BAR, "x")
            bench.check(f"{name}: reads that are wrong or find nothing", wrong(bench, kelvin, keys), "<=", 0)
        bench.stop(kelvin)
        redis = bench.redis(more=["--dir", folder / "redis", *journal])
        fill(bench, redis, keys)
        redis.process.kill()
        redis.process.wait()
        of_redis, _ = restart(bench, redis)
        print(f"   redis-server: {of_redis:.2f} s")
        bench.record("redis seconds", of_redis)
        bench.check("redis-server's time over that of Kelvin, SHUTDOWN", of_redis / seconds, ">=", 1, "x")
        bench.finish()


def fill(bench, server, keys):
    bench.load(server, f"--key-minimum 1 --key-maximum {keys} -d {VALUE_BYTES} -n allkeys -c 16 --pipeline 32 "
                       "--ratio 1:0 --key-pattern P:P")
    client = server.client()
    wait_for_rewrite(client)
    client.call("BGREWRITEAOF")
    wait_for_rewrite(client)
    client.close()
    if server.has_tier():
        settle(server)


def wait_for_rewrite(client):
    while client.info("persistence")["aof_rewrite_in_progress"]:
        time.sleep(0.2)


def shut_down(server):
    client = server.client()
    try:
        client.call("SHUTDOWN")
    except ConnectionError:
        pass
    client.close()


def restart(bench, server):
    """Seconds to the first GET that is answered, and bytes that the process has read from the drive by then. What
    the kernel has cached is dropped first, where that may be."""
    subprocess.run(["sync"], check=True)
    if os.access("/proc/sys/vm/drop_caches", os.W_OK):
        with open("/proc/sys/vm/drop_caches", "w") as drop:
            drop.write("1")
    start = time.monotonic()
    with server.log.open("ab") as log:
        server.process = subprocess.Popen(server.process.args, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                          cwd=bench.directory)
    server.pid = server.process.pid
    while time.monotonic() < start + STARTED_WITHIN and server.is_running():
        try:
            client = server.client()
            client.call("GET", "memtier-1")
            seconds = time.monotonic() - start
            client.close()
            return seconds, process_io_bytes(server.pid)[0]
        except (OSError, ReplyError):
            time.sleep(0.01)
    raise SystemExit(f"{server.name} does not start again: {server.log.read_text()[-2000:]}")


def wrong(bench, server, keys):
    """Reads that are wrong or find nothing, of some seconds of them."""
    result, _ = bench.load(server, f"--key-minimum 1 --key-maximum {keys} -d {VALUE_BYTES} --ratio 0:1 --key-pattern R:R "
                                   f"-c 16 --pipeline 8 --verify --test-time {bench.scaled(5, 1)}")
    return result["wrong"] + result["misses"]


if __name__ == "__main__":
    main()

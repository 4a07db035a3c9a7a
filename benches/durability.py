"""What durability costs: CPU and throughput of writes with `appendonly yes` and `everysec`.

Against redis-server with the same settings, and against Kelvin without a journal; with `--before PATH` an earlier
build without one, too, which tells whether it costs anybody who does not ask for it. All servers are up with the same
keys; those that are not measured are paused.
"""

import contextlib
import shutil
import subprocess
import time

from harness import LOAD_CORE, Bench, median

KEYS = 1_000_000
VALUE = "v" * 100
PIPELINE, CONNECTIONS = 8, 16
REDIS_BAR, OFF_BAR, BEFORE_BAR = 1.2, 1.25, 1.02
MAXMEMORY_MIB = 6144
JOURNAL = ["--appendonly", "yes", "--appendfsync", "everysec"]
# On keys drawn at random, and on one sorted set.
COMMANDS = [
    f"SET key:__rand_int__ {VALUE}",
    "INCR counter:__rand_int__",
    f"LPUSH list:__rand_int__ {VALUE}",
    f"HSET hash:__rand_int__ field {VALUE}",
    "ZADD zset __rand_int__ member:__rand_int__",
]


def add_before(parser):
    parser.add_argument("--before", help="an earlier build, to compare with where there is no journal")


def main():
    with Bench("durability", "CPU and throughput of writes with a journal", add_before) as bench:
        keys = bench.scaled(KEYS, 10_000)
        servers = start(bench)
        for text in COMMANDS:
            rates = {name: [] for name in servers}
            costs = {name: [] for name in servers}
            for round_number in range(1 + (bench.options.rounds or bench.scaled(3, 1))):
                names = list(servers) if round_number % 2 == 0 else list(servers)[::-1]
                for name in names:
                    rate, cost = measure(bench, servers, name, text, keys)
                    # The first round makes the keys.
                    if round_number > 0:
                        rates[name].append(rate)
                        costs[name].append(cost)
            judge(bench, text.split()[0], rates, costs)
        bench.finish()


def start(bench):
    journal = bench.flash / bench.name
    folders = {name: journal / name for name in ("kelvin", "redis")}
    for folder in folders.values():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    servers = {
        "redis": bench.redis(more=["--dir", folders["redis"], *JOURNAL]),
        "kelvin": bench.kelvin(MAXMEMORY_MIB, None, more=["--dir", folders["kelvin"], *JOURNAL]),
        "off": bench.kelvin(MAXMEMORY_MIB, None),
    }
    if bench.options.before:
        servers["before"] = bench.kelvin(MAXMEMORY_MIB, None, binary=bench.options.before)
    return servers


def measure(bench, servers, name, text, keys):
    """Operations a second, and CPU seconds of the server for one."""
    requests = bench.scaled(600_000, 10_000)
    command = ["taskset", "-c", LOAD_CORE, "redis-benchmark", "-p", servers[name].port, "-n", requests,
               "-P", PIPELINE, "-c", CONNECTIONS, "-r", keys, "-e", "-q", *text.split()]
    others = [server for other, server in servers.items() if other != name]
    for server in others:
        wait_for_rewrite(server)
    with contextlib.ExitStack() as paused:
        for server in others:
            paused.enter_context(server.paused())
        with servers[name].measure() as measured:
            subprocess.run([str(word) for word in command], check=True, capture_output=True)
    return requests / measured.seconds, measured.cpu_seconds / requests


def wait_for_rewrite(server):
    """What a fork of redis-server rewrites must not run beside another server's load."""
    client = server.client()
    while client.info("persistence").get("aof_rewrite_in_progress"):
        time.sleep(0.1)
    client.close()


def judge(bench, command, rates, costs):
    def cpu(over, under):
        return median([a / b for a, b in zip(costs[over], costs[under])])

    bench.record("rounds", {"command": command, "per_second": rates, "cpu_seconds_per_op": costs})
    figures = [f"{name} {median(costs[name]) * 1e6:.2f} us {median(rates[name]):,.0f}/s" for name in costs]
    print(f"   {command:<6} {'  '.join(figures)}", flush=True)
    faster = median([k / r for k, r in zip(rates["kelvin"], rates["redis"])])
    bench.check(f"{command}: CPU, redis-server's over Kelvin's", cpu("redis", "kelvin"), ">=", REDIS_BAR, "x")
    bench.check(f"{command}: rate, Kelvin's over redis-server's", faster, ">=", REDIS_BAR, "x")
    bench.check(f"{command}: CPU with a journal over without", cpu("kelvin", "off"), "<=", OFF_BAR, "x")
    if "before" in costs:
        bench.check(f"{command}: CPU without a journal over before", cpu("off", "before"), "<=", BEFORE_BAR, "x")


if __name__ == "__main__":
    main()

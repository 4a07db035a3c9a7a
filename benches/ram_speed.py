"""Point 3: speed with all data in RAM, against redis-server.

Operations per CPU-second of the server: 1 M keys of 512 B, GET and SET, pipelines of 1, 8 and 32.
Both servers are up; the one that is not measured is paused. redis-benchmark cross-checks the load
generator with its own keys. Two workers are compared with one on the same pair of cores.
"""

import subprocess

from harness import LOAD_CORE, Bench, median

KEYS = 1_000_000
CONNECTIONS = {1: 50, 8: 16, 32: 8}
RATIO_BARS = {1: 1.05, 8: 1.1, 32: 1.3}
WORKERS_BAR = 1.15
# Both with one worker and with two, there is time between requests at this many a second.
RATE_PER_CONNECTION = 1000
SPAN = f"--key-minimum 1 --key-maximum {KEYS} -d 512"
CROSS_CHECK = {"GET": ["GET", "key:__rand_int__"], "SET": ["SET", "key:__rand_int__", "x" * 512]}


def main():
    with Bench("ram_speed", "operations per CPU-second, all in RAM, against redis-server") as bench:
        compare_with_redis(bench)
        compare_workers(bench)
        bench.finish()


def compare_with_redis(bench):
    servers = {"redis": bench.redis(), "kelvin": bench.kelvin(6144)}
    for server in servers.values():
        fill(bench, server)
    # Many short rounds: the machine's speed drifts more between rounds than within one.
    rounds = bench.options.rounds or bench.scaled(9, 1)
    seconds = bench.scaled(2, 0.5)
    print(f"   {'':<16}{'redis':>11}{'kelvin':>11} ops per CPU-s{'redis':>11}{'kelvin':>11} ops/s")
    for pipeline, connections in CONNECTIONS.items():
        for kind, ratio in (("GET", "0:1"), ("SET", "1:0")):
            arguments = (f"{SPAN} --ratio {ratio} -c {connections} --pipeline {pipeline} --batch "
                         f"--test-time {seconds}")
            costs = {"redis": [], "kelvin": []}
            rates = {"redis": [], "kelvin": []}
            for index in range(rounds):
                for name in ordered(servers, index):
                    with servers[other(name)].paused():
                        result, measured = bench.load(servers[name], arguments)
                    costs[name].append(result["all"]["count"] / measured.cpu_seconds)
                    rates[name].append(result["all"]["per_second"])
            bench.record("paired", {"kind": kind, "pipeline": pipeline, "ops_per_cpu_second": costs,
                                    "ops_per_second": rates})
            print(f"   {kind} pipeline {pipeline:<3}{median(costs['redis']):>11.0f}"
                  f"{median(costs['kelvin']):>11.0f}{'':>14}"
                  f"{median(rates['redis']):>11.0f}{median(rates['kelvin']):>11.0f}")
            gains = [k / r for k, r in zip(costs["kelvin"], costs["redis"])]
            bench.check(f"{kind} at pipeline {pipeline}: operations per CPU-second over redis",
                        median(gains), ">=", RATIO_BARS[pipeline], "x")
    cross_check(bench, servers)
    for server in servers.values():
        bench.stop(server)


def ordered(servers, index):
    """The names of the servers, turned about each round, so that neither always goes first."""
    names = list(servers)
    return names if index % 2 == 0 else names[::-1]


def other(name):
    return "kelvin" if name == "redis" else "redis"


def fill(bench, server):
    bench.load(server, f"{SPAN} -n allkeys -c 16 --pipeline 32 --ratio 1:0 --key-pattern P:P")


def cross_check(bench, servers):
    """The same ratios by redis-benchmark: for the record, not judged."""
    rounds = bench.options.rounds or bench.scaled(3, 1)
    requests = {1: bench.scaled(300_000, 10_000), 32: bench.scaled(2_000_000, 20_000)}
    for pipeline in (1, 32):
        for kind in ("SET", "GET"):
            costs = {"redis": [], "kelvin": []}
            for index in range(rounds):
                for name in ordered(servers, index):
                    server = servers[name]
                    command = ["taskset", "-c", LOAD_CORE, "redis-benchmark",
                               "-p", str(server.port), "-n", str(requests[pipeline]),
                               "-r", str(KEYS), "-P", str(pipeline),
                               "-c", str(CONNECTIONS[pipeline]), "-q", *CROSS_CHECK[kind]]
                    with servers[other(name)].paused(), server.measure() as measured:
                        subprocess.run(command, check=True, capture_output=True)
                    costs[name].append(requests[pipeline] / measured.cpu_seconds)
            gain = median([k / r for k, r in zip(costs["kelvin"], costs["redis"])])
            bench.record("redis_benchmark", {"kind": kind, "pipeline": pipeline, "gain": gain,
                                             "ops_per_cpu_second": costs})
            print(f"   redis-benchmark: {kind} pipeline {pipeline:<3} {gain:.2f}x")


def compare_workers(bench):
    """CPU an operation of two workers over one; servers and load share both cores in each case.

    At the same rate both servers do the same work, with the same waits between requests. As fast as
    it goes, two threads of load keep both workers busy, and the ratio is what they cost each other;
    one thread keeps one worker busy but not two, which sleep and wake between requests as any two
    processes would, and the ratio is mostly the price of that.
    """
    servers = {workers: bench.kelvin(6144, workers=workers, cores="0,1")
               for workers in (1, 2)}
    for server in servers.values():
        fill(bench, server)
    arguments = (f"{SPAN} --ratio 1:1 -c {CONNECTIONS[1]} --pipeline 1 "
                 f"--rate-limiting {RATE_PER_CONNECTION} --test-time {bench.scaled(4, 0.5)}")
    ratio = two_over_one(bench, servers, arguments)
    bench.check(f"two workers, pipeline 1, {RATE_PER_CONNECTION * CONNECTIONS[1]} operations a "
                "second: CPU an operation over one's", ratio, "<=", WORKERS_BAR, "x")
    for threads in (2, 1):
        for pipeline in (1, 32):
            arguments = (f"{SPAN} --ratio 1:1 -t {threads} -c {CONNECTIONS[pipeline] // threads} "
                         f"--pipeline {pipeline} --batch --test-time {bench.scaled(4, 0.5)}")
            ratio = two_over_one(bench, servers, arguments)
            bench.check(f"two workers, pipeline {pipeline}, {threads} load threads: CPU an operation "
                        "over one's", ratio, "<=", WORKERS_BAR, "x")


def two_over_one(bench, servers, arguments):
    """The median ratio of paired rounds."""
    ratios = []
    for index in range(bench.options.rounds or bench.scaled(5, 1)):
        cost = {}
        for workers in ((1, 2) if index % 2 == 0 else (2, 1)):
            with servers[3 - workers].paused():
                result, measured = bench.load(servers[workers], arguments, cores="0,1")
            cost[workers] = measured.cpu_seconds / result["all"]["count"]
        ratios.append(cost[2] / cost[1])
        bench.record("workers", {"arguments": arguments, "cpu_seconds_per_op": cost})
    return median(ratios)


if __name__ == "__main__":
    main()

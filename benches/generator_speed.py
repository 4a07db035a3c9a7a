"""The load generator against redis-benchmark, on the same redis-server.

Operations per CPU-second of the client, user and system time as the kernel counts them, at the same
connections and pipelines; both send a pipeline again when all of it is answered, and draw 512-byte
values of 100,000 keys. Paired rounds, medians. Latencies stand beside each other: both clients keep
the server busy, so they agree when both do.
"""

import resource
import subprocess

from harness import LOAD_CORE, Bench, median

KEYS = 100_000
CONNECTIONS = 50
REQUESTS = {1: 200_000, 16: 1_000_000, 32: 1_500_000}
BARS = {1: 1.0, 16: 1.5, 32: 1.5}
ROUNDS = 3
COMMANDS = {"GET": ["GET", "memtier-__rand_int__"],
            "SET": ["SET", "memtier-__rand_int__", "x" * 512]}


def main():
    with Bench("generator_speed", "the load generator against redis-benchmark") as bench:
        server = bench.redis()
        bench.load(server, f"-n allkeys -c 16 --pipeline 32 --ratio 1:0 --key-pattern P:P -d 512 "
                           f"--key-minimum 0 --key-maximum {KEYS - 1}")
        # redis-benchmark writes the numbers of its keys with zeroes before them: it has to fill its
        # own, or it would read short replies for keys that are missing.
        run_redis_benchmark(bench, server, "SET", 32, 10 * KEYS)
        print(f"   {'':<16}{'redis-benchmark':>17}{'kelvin':>11} ops per CPU-s"
              f"{'p50 ms':>14}{'p99 ms':>17}")
        for pipeline, bar in BARS.items():
            for kind in COMMANDS:
                compare(bench, server, kind, pipeline, bar)
        bench.finish()


def compare(bench, server, kind, pipeline, bar):
    count = bench.scaled(REQUESTS[pipeline], 20_000)
    gains, lines = [], []
    for index in range(bench.options.rounds or bench.scaled(ROUNDS, 1)):
        runs = [("redis", run_redis_benchmark), ("kelvin", run_kelvin)]
        line = {name: run(bench, server, kind, pipeline, count)
                for name, run in (runs if index % 2 == 0 else runs[::-1])}
        gains.append(line["kelvin"]["per_cpu_second"] / line["redis"]["per_cpu_second"])
        lines.append(line)
    bench.record("paired", {"kind": kind, "pipeline": pipeline, "rounds": lines})

    def middle(name, figure):
        return median([line[name][figure] for line in lines])

    print(f"   {kind} pipeline {pipeline:<3}{middle('redis', 'per_cpu_second'):>17.0f}"
          f"{middle('kelvin', 'per_cpu_second'):>11.0f}{'':>14}"
          f"{middle('redis', 'p50'):>6.2f}{middle('kelvin', 'p50'):>8.2f}"
          f"{middle('redis', 'p99'):>9.2f}{middle('kelvin', 'p99'):>8.2f}")
    bench.check(f"{kind} at pipeline {pipeline}: operations per CPU-second of the client",
                median(gains), ">=", bar, "x")


def run_redis_benchmark(bench, server, kind, pipeline, count):
    command = ["taskset", "-c", LOAD_CORE, "redis-benchmark", "-p", str(server.port),
               "-n", str(count), "-r", str(KEYS), "-P", str(pipeline), "-c", str(CONNECTIONS),
               "--csv", *COMMANDS[kind]]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds = cpu_since(before)
    fields = [field.strip('"') for field in output.strip().split("\n")[-1].split(",")]
    # "test","rps","avg","min","p50","p95","p99","max"
    return {"per_cpu_second": count / seconds, "ops_per_second": float(fields[-7]),
            "p50": float(fields[-4]), "p99": float(fields[-2])}


def run_kelvin(bench, server, kind, pipeline, count):
    ratio = "0:1" if kind == "GET" else "1:0"
    arguments = (f"-c {CONNECTIONS} --pipeline {pipeline} --batch -n {count // CONNECTIONS} "
                 f"--ratio {ratio} -d 512 --key-minimum 0 --key-maximum {KEYS - 1}")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = bench.end_load(bench.start_load(server, arguments))
    seconds = cpu_since(before)
    latency = result["all"]["latency_ms"]
    return {"per_cpu_second": result["all"]["count"] / seconds,
            "ops_per_second": result["all"]["per_second"],
            "p50": latency["p50"], "p99": latency["p99"]}


def cpu_since(before):
    """CPU seconds of the children that have ended since."""
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()

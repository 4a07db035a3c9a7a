"""The load generator against redis-benchmark, on the same redis-server.

Operations per CPU-second of the client, user and system time as the kernel counts them, at the same
connections and pipelines; both send a pipeline again when all of it is answered, and draw 512-byte
values of 100,000 keys. Paired rounds, medians.

Latencies agree where the load is the same: with one connection. With fifty they need not, and why
is shown: `in flight` is throughput times mean latency (Little's law), so what is missing of all
requests is time that connections were idle because their client was busy; and where `perf` can
trace, the times that the kernel saw between sending and receiving stand beside what each client
says of the same run. docs/benchmarks.md has the figures.
"""

import re
import resource
import shutil
import subprocess

from harness import LOAD_CORE, Bench, median

KEYS = 100_000
CONNECTIONS = 50
REQUESTS = {1: 200_000, 16: 1_000_000, 32: 1_500_000}
BARS = {1: 1.0, 16: 1.5, 32: 1.5}
ROUNDS = 3
# Requests of one connection.
REQUESTS_ALONE = {1: 40_000, 16: 200_000, 32: 300_000}
APART_MAX = 0.1
REQUESTS_TRACED = {1: 60_000, 16: 200_000}
TRACED_APART_MAX = 0.05
# redis-benchmark rounds latencies up to the end of a bucket of so many milliseconds.
REDIS_RESOLUTION_MS = 0.008
PERCENTILES = ("p50", "p99")
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
        print("   each figure: redis-benchmark, kelvin")
        print(f"   {CONNECTIONS} connections   {'ops per CPU-second':>22}{'p50 ms':>16}{'p99 ms':>16}"
              f"{'in flight':>16}")
        for pipeline, bar in BARS.items():
            for kind in COMMANDS:
                gains = compare(bench, server, kind, pipeline)
                bench.check(f"{kind} at pipeline {pipeline}: operations per CPU-second of the client",
                            median(gains), ">=", bar, "x")
        print("   one connection")
        for pipeline in REQUESTS_ALONE:
            for kind in COMMANDS:
                compare_alone(bench, server, kind, pipeline)
        for pipeline in REQUESTS_TRACED:
            compare_traced(bench, server, pipeline)
        bench.finish()


def compare(bench, server, kind, pipeline):
    """How many times redis-benchmark's operations per CPU-second ours are, by round."""
    count = bench.scaled(REQUESTS[pipeline], 20_000)
    lines = rounds(bench, server, kind, pipeline, count, CONNECTIONS)
    show(kind, pipeline, middle(lines, "redis"), middle(lines, "kelvin"))
    return [line["kelvin"]["per_cpu_second"] / line["redis"]["per_cpu_second"] for line in lines]


def compare_alone(bench, server, kind, pipeline):
    """Latencies of one connection: nothing but the server's answer is in them."""
    count = bench.scaled(REQUESTS_ALONE[pipeline], 5_000)
    lines = rounds(bench, server, kind, pipeline, count, 1)
    redis, kelvin = middle(lines, "redis"), middle(lines, "kelvin")
    show(kind, pipeline, redis, kelvin)
    worst = max(apart(redis[name], kelvin[name]) for name in PERCENTILES)
    bench.check(f"{kind} at pipeline {pipeline}, one connection: p50 and p99 apart",
                worst, "<=", APART_MAX)


def apart(redis_ms, other_ms):
    """By which share a latency lies outside the bucket that redis-benchmark names."""
    outside = max(redis_ms - REDIS_RESOLUTION_MS - other_ms, other_ms - redis_ms, 0)
    return outside / other_ms


def rounds(bench, server, kind, pipeline, count, connections):
    runs = [("redis", run_redis_benchmark), ("kelvin", run_kelvin)]
    lines = [{name: run(bench, server, kind, pipeline, count, connections)
              for name, run in (runs if index % 2 == 0 else runs[::-1])}
             for index in range(bench.options.rounds or bench.scaled(ROUNDS, 1))]
    bench.record("paired", {"kind": kind, "pipeline": pipeline, "connections": connections,
                            "rounds": lines})
    return lines


def middle(lines, name):
    return {figure: median([line[name][figure] for line in lines]) for figure in lines[0][name]}


def show(kind, pipeline, redis, kelvin):
    def pair(figure, width, digits):
        return f"{redis[figure]:>{width}.{digits}f}{kelvin[figure]:>{width}.{digits}f}"

    print(f"   {kind} pipeline {pipeline:<3}{pair('per_cpu_second', 11, 0)}"
          f"{pair('p50', 8, 3)}{pair('p99', 8, 3)}{pair('in_flight', 8, 1)}")


def compare_traced(bench, server, pipeline):
    """What each client says of its latencies, and what the kernel saw in the same run."""
    if not can_trace():
        bench.check("latencies as the kernel sees them (needs perf, and root)", None, "<=",
                    TRACED_APART_MAX)
        return
    count = bench.scaled(REQUESTS_TRACED[pipeline], 5_000)
    for name, run in ("redis-benchmark", run_redis_benchmark), ("kelvin", run_kelvin):
        trace = bench.directory / "trace"
        said = run(bench, server, "GET", pipeline, count, CONNECTIONS, tracer(trace))
        seen = seen_by_kernel(trace)
        print(f"   {name:<16} pipeline {pipeline:<3} traced: " + ", ".join(
            f"{figure} says {said[figure]:.3f} ms, kernel {seen[figure]:.3f}"
            for figure in PERCENTILES))
        resolution = REDIS_RESOLUTION_MS if name != "kelvin" else 0
        worst = max(max(abs(said[figure] - seen[figure]) - resolution, 0) / seen[figure]
                    for figure in PERCENTILES)
        bench.check(f"{name} at pipeline {pipeline}: p50 and p99 apart from the kernel's",
                    worst, "<=", TRACED_APART_MAX)


def can_trace():
    return shutil.which("perf") is not None and subprocess.run(
        ["perf", "record", "-q", "-o", "/dev/null", "-e", "syscalls:sys_enter_read", "true"],
        capture_output=True).returncode == 0


def tracer(path):
    calls = ("sendto", "write", "recvfrom", "read")
    events = ",".join(f"syscalls:sys_enter_{call}" for call in calls)
    return ["perf", "record", "-q", "-o", str(path), "-e", events]


def seen_by_kernel(trace):
    """Percentiles of the time from a socket's sending to the receiving that follows, in ms."""
    command = ["perf", "script", "-i", str(trace), "-F", "time,event,trace"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    event = re.compile(r"(\d+\.\d+): +syscalls:sys_enter_(\w+):.*?fd: (0x[0-9a-f]+)")
    sent, latencies = {}, []
    for seconds, call, socket in event.findall(output):
        if call in ("sendto", "write"):
            sent[socket] = float(seconds)
        elif socket in sent:
            latencies.append((float(seconds) - sent.pop(socket)) * 1000)
    latencies.sort()
    return {f"p{percent}": latencies[len(latencies) * percent // 100] for percent in (50, 99)}


def run_redis_benchmark(bench, server, kind, pipeline, count, connections=CONNECTIONS, before=()):
    command = ["taskset", "-c", LOAD_CORE, *before, "redis-benchmark", "-p", str(server.port),
               "-n", str(count), "-r", str(KEYS), "-P", str(pipeline), "-c", str(connections),
               "--csv", *COMMANDS[kind]]
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds = cpu_since(usage)
    fields = [field.strip('"') for field in output.strip().split("\n")[-1].split(",")]
    # "test","rps","avg","min","p50","p95","p99","max"
    rps, mean, p50, p99 = (float(fields[index]) for index in (-7, -6, -4, -2))
    return figures(count / seconds, rps, mean, p50, p99)


def run_kelvin(bench, server, kind, pipeline, count, connections=CONNECTIONS, before=()):
    ratio = "0:1" if kind == "GET" else "1:0"
    arguments = (f"-c {connections} --pipeline {pipeline} --batch -n {count // connections} "
                 f"--ratio {ratio} -d 512 --key-minimum 0 --key-maximum {KEYS - 1}")
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = bench.end_load(bench.start_load(server, arguments, before=before))
    seconds, row = cpu_since(usage), result["all"]
    latency = row["latency_ms"]
    return figures(row["count"] / seconds, row["per_second"], latency["mean"], latency["p50"],
                   latency["p99"])


def figures(per_cpu_second, ops_per_second, mean, p50, p99):
    return {"per_cpu_second": per_cpu_second, "ops_per_second": ops_per_second, "p50": p50,
            "p99": p99, "in_flight": ops_per_second * mean / 1000}


def cpu_since(before):
    """CPU seconds of the children that have ended since."""
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()

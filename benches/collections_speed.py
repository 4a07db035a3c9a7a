"""Collections in RAM: CPU an operation against redis-server, by redis-benchmark.

A million elements, as 100,000 collections of 10, as 1,000 of 1,000 and as one. Where there are several,
each request takes one of them at random, and the element in its middle; where there is one, an element
at random. Both servers are up; the one that is not measured is paused.
"""

import math
import subprocess

from collections_data import COUNTS, TYPES, element, fill, key_name
from harness import LOAD_CORE, Bench, median

VALUE_BYTES = (16, 100)
CONNECTIONS = {1: 50, 16: 8}
BARS = {1: 1.0, 16: 1.1}
MEAN_BAR = 1.4
LIST, SET, HASH, SORTED, STREAM, PLACES = TYPES

# The collection that it works on, and the command: `KEY`, `OTHER` (a second collection of the type),
# `ELEMENT` (one that is there), `NEW` (one that most often is not), `NUMBER` (its score), `MIDDLE` (a position).
COMMANDS = [
    (LIST, "LPUSH KEY NEW"), (LIST, "RPUSH KEY NEW"), (LIST, "LPOP KEY"),
    (LIST, "LRANGE KEY 0 99"), (LIST, "LINDEX KEY MIDDLE"),
    (SET, "SADD KEY NEW"), (SET, "SISMEMBER KEY ELEMENT"), (SET, "SPOP KEY"),
    (SET, "SINTER KEY OTHER"),
    (HASH, "HSET KEY ELEMENT NEW"), (HASH, "HGET KEY ELEMENT"), (HASH, "HGETALL KEY"),
    (HASH, "HINCRBY KEY counter 1"),
    (SORTED, "ZADD KEY NUMBER ELEMENT"), (SORTED, "ZSCORE KEY ELEMENT"),
    (SORTED, "ZRANK KEY ELEMENT"), (SORTED, "ZRANGE KEY 0 9"),
    (SORTED, "ZRANGEBYSCORE KEY NUMBER +inf LIMIT 0 10"), (SORTED, "ZPOPMIN KEY"),
    (STREAM, "XADD KEY * field NEW"), (STREAM, "XRANGE KEY - + COUNT 10"),
    (STREAM, "XREADGROUP GROUP group consumer COUNT 1 NOACK STREAMS KEY >"),
    (PLACES, "GEOSEARCH KEY FROMLONLAT 15 37 BYRADIUS 200 km COUNT 10"),
    (None, "PFADD KEY NEW"),
]
# Commands that would read all of a large collection, and the largest that each is measured on.
SIZE_MAX = {"SINTER": 1_000, "HGETALL": 10}


def main():
    with Bench("collections_speed", "CPU an operation on collections in RAM, against redis-server",
               more_options) as bench:
        gains = []
        for value_bytes in VALUE_BYTES[:bench.scaled(2, 1)]:
            for size in COUNTS:
                for kind in (*TYPES, None):
                    gains += compare(bench, kind, size, value_bytes)
        mean = math.exp(sum(map(math.log, gains)) / len(gains))
        bench.check("geometric mean over all", mean, ">=", MEAN_BAR, "x")
        bench.finish()


def more_options(parser):
    parser.add_argument("--only", default="", help="commands, separated by commas")


def compare(bench, kind, size, value_bytes):
    """The gains of all commands on one type's collections of one size."""
    only = bench.options.only.upper().split(",") if bench.options.only else None
    commands = [text for of, text in COMMANDS
                if of == kind and size <= SIZE_MAX.get(text.split()[0], size)
                and (only is None or text.split()[0] in only)]
    if not commands:
        return []
    keys = COUNTS[size] if not bench.quick else min(COUNTS[size], 100)
    servers = {"redis": bench.redis(), "kelvin": bench.kelvin(6144)}
    gains = []
    for text in commands:
        for server in servers.values():
            client = server.client()
            client.call("FLUSHALL")
            if kind is not None:
                fill(client, kind, keys, size, value_bytes)
            client.close()
        for pipeline in CONNECTIONS:
            gain = paired(bench, servers, text, (keys, size, value_bytes), pipeline)
            gains.append(gain)
            name = f"{text.split()[0]} of {size:,}, {value_bytes} bytes, pipeline {pipeline}"
            bench.check(name, gain, ">=", BARS[pipeline], "x")
    for server in servers.values():
        bench.stop(server)
    return gains


def paired(bench, servers, text, shape, pipeline):
    """The median over paired rounds of redis-server's CPU an operation over Kelvin's."""
    requests = bench.scaled({1: 40_000, 16: 200_000}[pipeline], 2_000)
    costs = {name: [] for name in servers}
    for index in range(bench.options.rounds or bench.scaled(3, 1)):
        for name in (list(servers) if index % 2 == 0 else list(servers)[::-1]):
            other = servers["kelvin" if name == "redis" else "redis"]
            command = ["taskset", "-c", LOAD_CORE, "redis-benchmark", "-p",
                       str(servers[name].port), "-n", str(requests), "-P", str(pipeline), "-c",
                       str(CONNECTIONS[pipeline]), "-e", "-q", *words(text, shape)]
            with other.paused(), servers[name].measure() as measured:
                subprocess.run(command, check=True, capture_output=True)
            costs[name].append(measured.cpu_seconds / requests * 1e6)
    gain = median([r / k for r, k in zip(costs["redis"], costs["kelvin"])])
    bench.record("paired", {"command": text, "shape": shape, "pipeline": pipeline,
                            "cpu_us_per_op": costs, "gain": gain})
    print(f"   {text.split()[0]:<14} of {shape[1]:>9,} x {shape[2]:>3} B  p{pipeline:<3} redis "
          f"{median(costs['redis']):>7.2f} us  kelvin {median(costs['kelvin']):>7.2f} us  {gain:.2f}x",
          flush=True)
    return gain


def words(text, shape):
    """The arguments of redis-benchmark for a command; it puts random numbers below `-r` into them."""
    keys, size, value_bytes = shape
    one = keys == 1
    random, middle = "__rand_int__", size // 2
    parts = {
        "KEY": key_name("a", 0 if one else None),
        "OTHER": key_name("b", 0 if one else None),
        "ELEMENT": element(value_bytes, None if one else middle),
        "NEW": element(value_bytes, None).replace("e", "n", 1),
        "NUMBER": random if one else str(middle),
        # Redis takes no integer with zeros in front.
        "MIDDLE": str(middle),
    }
    # A pop takes an element of the middle's place once only: the collections shrink by one in turn.
    return ["-r", str(size if one else keys), *[parts.get(word, word) for word in text.split()]]


if __name__ == "__main__":
    main()

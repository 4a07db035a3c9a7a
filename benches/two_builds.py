"""Two builds of Kelvin against each other: the server's CPU time an operation, now over before.

A change is held to what the build before it cost. Both servers are up with the same keys, and the one that
is not measured is paused; rounds go in the order before, now, now, before, so that a machine that drifts
favours neither. Where the allocator puts things differs from start to start, and that alone is some per
cent: so each start of both servers gives one ratio, the median of its rounds, and the median of the starts
is judged.

`--before PATH` is the earlier build.
"""

from harness import Bench, median, settle

VALUE_BYTES = 512
BAR = 1.03
RAM_KEYS, RAM_MIB = 1_000_000, 4096
FLASH_KEYS = 6_000_000
UNIFORM, ZIPF = "--key-pattern R:R", "--key-pattern Z:Z --key-zipf-exp 0.99"
# What is measured: a name, and the load's arguments.
IN_RAM = [
    (f"{kind} at pipeline {pipeline}", f"--ratio {ratio} {UNIFORM} -c {connections} --pipeline {pipeline} --batch")
    for pipeline, connections in ((1, 50), (8, 16), (16, 8))
    for kind, ratio in (("GET", "0:1"), ("SET", "1:0"))]
ON_FLASH = [
    ("cold GET", f"--ratio 0:1 {UNIFORM} -c 16 --pipeline 8"),
    ("uniform SET over cold keys", f"--ratio 1:0 {UNIFORM} -c 64 --pipeline 8"),
    ("Zipf, 3 SETs to 7 GETs", f"--ratio 3:7 {ZIPF} -c 64 --pipeline 8"),
]


def add_before(parser):
    parser.add_argument("--before", required=True, help="the build to compare with")


def main():
    with Bench("two_builds", "CPU an operation, this build over the one before", add_before) as bench:
        starts = bench.options.rounds or bench.scaled(3, 1)
        compare(bench, starts, IN_RAM, bench.scaled(RAM_KEYS, 50_000), bench.scaled(RAM_MIB, 256), None)
        compare(bench, starts, ON_FLASH, bench.scaled(FLASH_KEYS, 400_000), bench.scaled(512, 96), "16gb")
        bench.finish()


def compare(bench, starts, loads, keys, maxmemory_mib, flash_size):
    """Starts both servers so often, and runs each load on them."""
    span = f"--key-minimum 1 --key-maximum {keys} -d {VALUE_BYTES}"
    ratios = {name: [] for name, _ in loads}
    for start in range(starts):
        servers = start_both(bench, maxmemory_mib, flash_size, before_first=start % 2 == 0)
        for server in servers.values():
            bench.load(server, f"{span} -n allkeys -c 16 --pipeline 32 --ratio 1:0 --key-pattern P:P")
            if flash_size:
                settle(server)
        for name, arguments in loads:
            ratios[name].append(ratio_of(bench, servers, name, f"{span} {arguments}"))
        for server in servers.values():
            bench.stop(server)
    for name, of_starts in ratios.items():
        print(f"   {name:<28}" + "".join(f"{ratio:>8.3f}" for ratio in of_starts))
        bench.check(f"{name}: CPU an operation over that of the build before", median(of_starts), "<=", BAR, "x")


def start_both(bench, maxmemory_mib, flash_size, before_first):
    servers = {}
    for name in ("before", "now") if before_first else ("now", "before"):
        servers[name] = bench.kelvin(
            maxmemory_mib, flash_size, binary=bench.options.before if name == "before" else None)
    return servers


def ratio_of(bench, servers, name, arguments):
    """The median CPU time of an operation on the build of now, over that on the one before."""
    seconds = bench.scaled(2, 0.5)
    costs = {"before": [], "now": []}
    for which in ("before", "now", "now", "before") * bench.scaled(2, 1):
        with servers["now" if which == "before" else "before"].paused():
            result, measured = bench.load(servers[which], f"{arguments} --test-time {seconds}")
        costs[which].append(measured.cpu_seconds / result["all"]["count"])
    bench.record("paired", {"load": name, "cpu_seconds_per_op": costs})
    return median(costs["now"]) / median(costs["before"])


if __name__ == "__main__":
    main()

"""Point 5: a cold key delays nobody.

A client on schedule reads hot keys; another reads cold keys as fast as it can. The first one's p99
is compared with its p99 beside a client that reads hot keys and costs the server the same CPU.
"""

from harness import Bench, median, settle

VALUE_BYTES = 512
HOT_KEYS = 10_000
P99_BAR = 2
COLD_CLIENT = "-c 16 --pipeline 8"
# The busiest that a hot neighbour can be told to be, in requests a second, when CPU is matched.
SATURATED = 0.97
MATCH_TRIES = 3


def main():
    with Bench("cold_neighbour", "p99 of hot GETs beside a reader of cold keys") as bench:
        keys = bench.scaled(15_000_000, 400_000)
        span = f"--key-minimum 1 --key-maximum {keys} -d {VALUE_BYTES}"
        kelvin = bench.kelvin(bench.maxmemory_mib())
        bench.load(kelvin, f"{span} -n allkeys -c 16 --pipeline 32 --ratio 1:0 --key-pattern P:P")
        settle(kelvin)
        hot = f"--key-minimum 1 --key-maximum {HOT_KEYS} -d {VALUE_BYTES} --ratio 0:1"
        bench.load(kelvin, f"{hot} -c 8 --pipeline 8 --test-time {bench.scaled(3, 0.5)}")
        ratios = []
        for index in range(bench.options.rounds or bench.scaled(3, 1)):
            cold = f"{span} --ratio 0:1 {COLD_CLIENT} --seed {index + 2}"
            beside_cold = measure(bench, kelvin, hot, cold)
            beside_hot = measure_matched(bench, kelvin, hot, beside_cold["cpu"])
            show("beside cold", beside_cold)
            show("beside hot", beside_hot)
            ratios.append(beside_cold["p99_ms"] / beside_hot["p99_ms"])
            bench.record("rounds", {"beside_cold": beside_cold, "beside_hot": beside_hot})
        bench.check("p99 of hot GETs beside cold ones, over beside hot ones at equal CPU",
                    median(ratios), "<=", P99_BAR, "x")
        bench.finish()


def measure(bench, kelvin, hot, neighbour):
    """p99 of the hot client while the neighbour runs, and the server's CPU share."""
    seconds = bench.scaled(8, 1)
    with kelvin.measure() as measured:
        noisy = bench.start_load(kelvin, f"{neighbour} --test-time {seconds}")
        # The hot client goes first on the core that both share: its own wait is not the server's.
        quiet = bench.start_load(
            kelvin, f"{hot} -c 4 --pipeline 4 --rate 5000 --test-time {seconds}", nice=-15)
        quiet, noisy = bench.end_load(quiet), bench.end_load(noisy)
    return {
        "p99_ms": quiet["get"]["latency_ms"]["p99"],
        "p999_ms": quiet["get"]["latency_ms"]["p99.9"],
        "unsent": quiet["unsent"],
        "cpu": measured.cpu_seconds / measured.seconds,
        "neighbour_per_second": noisy["all"]["per_second"],
        "reads_per_second": measured.device["reads"] / measured.seconds,
    }


def measure_matched(bench, kelvin, hot, cpu):
    """The hot client beside another hot one that brings the server to the CPU share `cpu`."""
    neighbour = f"{hot} {COLD_CLIENT} --seed 99"
    result = measure(bench, kelvin, hot, neighbour)
    rate = result["neighbour_per_second"]
    for _ in range(MATCH_TRIES):
        if cpu >= SATURATED or abs(result["cpu"] - cpu) < 0.03:
            break
        rate *= cpu / result["cpu"]
        result = measure(bench, kelvin, hot, f"{neighbour} --rate {rate:.0f}")
    return result


def show(name, result):
    print(f"   {name:<12} p99 {result['p99_ms']:.3f} ms  p99.9 {result['p999_ms']:.3f} ms  "
          f"server CPU {result['cpu']:.0%}  neighbour {result['neighbour_per_second']:.0f} GET/s  "
          f"drive {result['reads_per_second']:.0f} reads/s")


if __name__ == "__main__":
    main()

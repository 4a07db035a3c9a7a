"""RAM of collections: resident growth for the elements, against redis-server in the same run."""

import time

from collections_data import fill
from harness import Bench, demote_all, memory_bytes

VALUE_BYTES = 16
SHAPES = ((1, 1_000_000), (100_000, 10), (100_000, 100))
KINDS = ("hash", "set", "sorted set", "list", "stream")
# Of redis-server's: one collection of a million; where Redis packs small ones, and where it does not.
LARGE_BARS = {"hash": 0.45, "set": 0.4, "sorted set": 0.4, "list": 1.0, "stream": 1.0}
PACKED_BAR, LOOSE_BAR = 1.0, 0.6
SETTLE_SECONDS = 2
# Of a collection that is made and flushed beforehand.
WARM_ELEMENTS = 100


def main():
    with Bench("collections_ram", "RAM an element, against redis-server") as bench:
        for keys, size in SHAPES:
            if bench.quick:
                keys, size = max(keys // 100, 1), min(size, 10_000)
            for kind in KINDS:
                compare(bench, kind, keys, size)
        bench.finish()


def compare(bench, kind, keys, size):
    grown = {name: growth(bench, server, kind, keys, size)
             for name, server in (("redis", bench.redis()), ("kelvin", bench.kelvin(12_288)))}
    ratio = grown["kelvin"][0] / grown["redis"][0]
    bench.record("growth", {"kind": kind, "keys": keys, "size": size, "bytes_per_element": grown})
    print(f"   {kind:<10} {keys:>7,} x {size:>9,}: redis {grown['redis'][0]:6.1f} B an element, kelvin "
          f"{grown['kelvin'][0]:6.1f}, all cold {grown['kelvin'][1]:.2f}", flush=True)
    # Redis 7.0 packs no set of strings, and no sets but of integers.
    packs = kind in ("list", "stream") or kind != "set" and size <= 128
    bar = LARGE_BARS[kind] if keys == 1 else PACKED_BAR if packs else LOOSE_BAR
    bench.check(f"{kind}, {keys:,} of {size:,} elements: resident growth of redis-server's", ratio,
                "<=", bar, "x")


def growth(bench, server, kind, keys, size):
    """Bytes an element that a server grows by, and that are left when all of it is on flash."""
    client = server.client()
    # Pages of code that a command is the first to touch are no growth for elements.
    fill(client, kind, 1, WARM_ELEMENTS, VALUE_BYTES)
    client.call("FLUSHALL")
    before = memory_bytes(server.pid)[0]
    fill(client, kind, keys, size, VALUE_BYTES)
    client.close()
    time.sleep(SETTLE_SECONDS)
    grown = memory_bytes(server.pid)[0] - before
    cold = 0
    if server.has_tier():
        demote_all(server)
        cold = memory_bytes(server.pid)[0] - before
    bench.stop(server)
    return grown / (keys * size), cold / (keys * size)


if __name__ == "__main__":
    main()

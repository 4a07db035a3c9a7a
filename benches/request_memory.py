"""Memory of requests: `maxmemory` holds whatever clients ask, and others are served meanwhile.

Clients ask for more than fits: 200,000 cold values at once, plain and in a transaction; twenty
thousand each from many sides; large strings combined; arguments of half a gigabyte; thousands of
requests that never end. Meanwhile a client on schedule reads one hot key. The kernel's own mark of
resident memory counts, and the longest that the client on schedule waited.
"""

import contextlib
import resource
import socket
import threading

from harness import MIB, Bench, ReplyError, demote_all, machine_pauses, memory_bytes

RESIDENT_BAR = 1.05
WAIT_MS_BAR = 20
KEYS = 200_000
PIECE = b"v" * MIB
SPARE_FILES = 64
OPTIONS = ("--flash-segment-size", "4mb", "--tier-compression", "none")


def main():
    with Bench("request_memory", "memory and waits beside requests that are too large") as bench:
        case(bench, "cold values", 128, cold_values, read_from_all_sides)
        case(bench, "large strings", 200, large_strings, combine)
        case(bench, "announced arguments", 100, hot_key, announce)
        case(bench, "halves of requests", 100, hot_key, send_halves)
        bench.finish()


def case(bench, what, maxmemory, prepare, attack):
    """Runs an attack beside a client on schedule, and checks memory and that client's waits."""
    kelvin = bench.kelvin(maxmemory, flash_size="2gb", more=("--maxclients", "10100", *OPTIONS))
    prepare(bench, kelvin)
    seconds = bench.scaled(20, 4)
    hot = "--key-prefix hot- --key-minimum 1 --key-maximum 1 -d 10 -c 1"
    bench.load(kelvin, f"{hot} --ratio 1:0 -n 1")
    quiet = bench.start_load(kelvin, f"{hot} --ratio 0:1 --rate 500 --test-time {seconds}", nice=-15)
    asked = attack(bench, kelvin)
    quiet = bench.end_load(quiet)
    resident = memory_bytes(kelvin.pid)[1] / (maxmemory * MIB)
    wait = quiet["stall_ms_max"]
    bench.record("cases", {"what": what, "asked": asked, "resident": resident, "wait_ms": wait,
                           "machine_pause_ms_max": quiet["machine_pause_ms_max"],
                           "p99_ms": quiet["get"]["latency_ms"]["p99"]})
    print(f"   {what}: {asked}; resident {resident:.3f}x, longest wait {wait:.1f} ms, "
          f"p99 {quiet['get']['latency_ms']['p99']:.2f} ms; {machine_pauses(quiet)}")
    bench.stop(kelvin)
    bench.check(f"{what}: resident, of maxmemory", resident, "<=", RESIDENT_BAR, "x")
    bench.check(f"{what}: longest wait of another client", wait, "<=", WAIT_MS_BAR, "ms")


def call(client, *words):
    """The reply, or as text why there is none."""
    try:
        return client.call(*words)
    except (ReplyError, ConnectionError) as error:
        return str(error)


def from_all_sides(count, run):
    """Runs `run(number)` on so many threads; the sum of what they return."""
    results = [0] * count

    def one(number):
        results[number] = run(number)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(results)


def hot_key(_bench, _kelvin):
    pass


def cold_values(bench, kelvin):
    bench.load(kelvin, f"--key-minimum 1 --key-maximum {KEYS} -d 1000 -n allkeys -c 4 --pipeline 32 "
                       "--ratio 1:0 --key-pattern P:P --batch")
    demote_all(kelvin)


def read_from_all_sides(bench, kelvin):
    client = kelvin.client()
    keys = [f"memtier-{number}" for number in range(1, KEYS + 1)]
    refused = isinstance(call(client, "MGET", *keys), str)
    client.call("MULTI")
    for start in range(0, KEYS, 1000):
        client.call("MGET", *keys[start:start + 1000])
    refused += isinstance(call(client, "EXEC"), str)
    client.close()

    def read(number):
        reader = kelvin.client()
        first = number * 1000 % (KEYS * 9 // 10)
        values = call(reader, "MGET", *keys[first:first + KEYS // 10])
        reader.close()
        return not isinstance(values, str)

    count = bench.scaled(100, 10)
    return f"{refused} of 2 refused, {from_all_sides(count, read)} of {count} answered"


def large_strings(_bench, kelvin):
    client = kelvin.client()
    value = "v" * 40_000_000
    for name in "abcdef":
        client.call("SET", name, value)
    client.call("TIER", "DEMOTE", "ALL")
    client.close()


def combine(_bench, kelvin):
    client = kelvin.client()
    replies = [call(client, "BITOP", "XOR", "target", *"abcdef"), call(client, "LCS", "a", "b"),
               call(client, "BITOP", "NOT", "target", "a"), call(client, "SETRANGE", "b", 7, "x")]
    read = sum(len(call(client, "GET", name)) for name in "abcdef")
    client.close()
    refused = sum(isinstance(reply, str) for reply in replies)
    return f"{refused} of {len(replies)} refused, {read} bytes read"


def announce(bench, kelvin):
    def send(number):
        connection = socket.create_connection(("127.0.0.1", kelvin.port), 60)
        size = (20 if number % 2 else 500) * MIB
        # A connection that is closed for it cannot send any more.
        with contextlib.suppress(OSError):
            connection.sendall(b"*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n$%d\r\n" % size)
            for _ in range(size // MIB):
                connection.sendall(PIECE)
            connection.sendall(b"\r\n")
            return connection.recv(4) == b"+OK\r"
        return 0

    count = bench.scaled(8, 2)
    return f"{from_all_sides(count, send)} of {count} taken"


def send_halves(bench, kelvin):
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    count = min(bench.scaled(10_000, 500), limit - SPARE_FILES)
    connections = []
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", kelvin.port), 60)
        connection.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5000\r\n" + PIECE[:2500])
        connections.append(connection)
    for connection in connections:
        connection.close()
    return f"{count} connections"


if __name__ == "__main__":
    main()

"""Collections on flash: how few reads and writes a command takes, and at what speed.

Everything is demoted first. One element of a large hash and of a leaderboard is looked up, and one is
pushed to a list; fields of 40 hashes, 4 GB in 256 MB of RAM, are read at random beside fio on the same
drive; and whole hashes are asked for that RAM has not the room for, while a client on schedule reads a
hot key.

`--part NAME` (repeatable) picks parts.
"""

import os
import random
import time

from harness import (
    GIB, LOAD_CORE, MIB, Bench, ReplyError, demote_all, machine_pauses, median, settle, tiering)

FIELD_BYTES = 400
HGET_READS_BAR = 3
HGET_MS_BAR = 1
SORTED_READS_BAR = 4
PUSH_BYTES_BAR = 128 << 10
UNIFORM_BAR = 0.7
RESIDENT_BAR = 1.05
P99_BAR = 2
ELEMENTS_A_COMMAND = 200
SENT_BYTES_MAX = 1 << 20
# Text that does not compress, which values are pieces of.
TEXT = bytes(random.Random(1).choices(range(33, 127), k=1 << 20))
DEPTHS = {64: "-c 64 --pipeline 1", 256: "-c 64 --pipeline 4"}


def main():
    with Bench("collections_cold", "collections on flash", add_part) as bench:
        for name in bench.options.part or PARTS:
            PARTS[name](bench)
        bench.finish()


def add_part(parser):
    parser.add_argument("--part", action="append", choices=PARTS)


# ---------------------------------------------------------------- values

def value(number, size=FIELD_BYTES):
    """A text that only this number has at its head, and that does not compress."""
    head = b"%d:" % number
    start = number * 7919 % (len(TEXT) - size)
    return head + TEXT[start:start + size - len(head)]


def field(number):
    return b"field-%09d" % number


def fill(client, command, key, count, words_of):
    """Sends `command key` with the words of so many elements, several elements a command."""
    sent, sent_bytes, unread = [], 0, 0
    for start in range(0, count, ELEMENTS_A_COMMAND):
        words = [command, key]
        for number in range(start, min(start + ELEMENTS_A_COMMAND, count)):
            words += words_of(number)
        sent.append(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
        sent_bytes += len(sent[-1])
        unread += 1
        if sent_bytes > SENT_BYTES_MAX or start + ELEMENTS_A_COMMAND >= count:
            client.socket.sendall(b"".join(sent))
            for _ in range(unread):
                client.reply()
            sent, sent_bytes, unread = [], 0, 0


def fill_hash(client, key, size):
    """A hash of so many bytes of values; returns how many fields it has."""
    count = size // FIELD_BYTES
    fill(client, b"HSET", key, count, lambda number: (field(number), value(number)))
    return count


def start(bench):
    """A server with much memory: a hash grows at random places, and what of it is on flash already would be
    read for each field more. `shrink` takes the memory away."""
    return bench.kelvin(bench.scaled(2048, 512))


def shrink(bench, kelvin):
    """Sends everything to flash and leaves the server little memory; returns how much, in MiB."""
    demote_all(kelvin)
    maxmemory = bench.scaled(256, 96)
    client = kelvin.client()
    client.call("CONFIG", "SET", "maxmemory", f"{maxmemory}mb")
    client.close()
    settle(kelvin, 30)
    return maxmemory


def fill_by_load(bench, server, key, size):
    """The same, by the load generator, which is faster; its fields are named memtier-1 and on."""
    count = size // FIELD_BYTES
    bench.load(server, [
        "--command", f"HSET {key} __key__ __data__", "--command-key-pattern", "P", "-n", "allkeys",
        "-c", "4", "--pipeline", "32", "-d", str(FIELD_BYTES),
        "--key-minimum", "1", "--key-maximum", str(count)])
    return count


# ---------------------------------------------------------------- one command

def single_commands(bench):
    kelvin, fields, members = fill_for_single_commands(bench)
    measure_single_commands(bench, kelvin, fields, members)
    bench.stop(kelvin)


def fill_for_single_commands(bench):
    kelvin = bench.kelvin(bench.scaled(1024, 96))
    client = kelvin.client()
    fields = fill_hash(client, b"hash", bench.scaled(100 * MIB, 8 * MIB))
    members = bench.scaled(5_000_000, 100_000)
    fill(client, b"ZADD", b"board", members, lambda number: (b"%d" % number, member(number)))
    fill(client, b"RPUSH", b"list", bench.scaled(10 * MIB, MIB) // 100, lambda number: (value(number, 100),))
    client.close()
    demote_all(kelvin)
    return kelvin, fields, members


def member(number):
    return b"member-%09d" % number


def measure_single_commands(bench, kelvin, fields, members):
    tiered = kelvin.has_tier()
    client = kelvin.client()
    chosen = random.Random(2)
    count = bench.scaled(1000, 100)
    hget = [(("HGET", "hash", field(number).decode()), value(number))
            for number in chosen.sample(range(fields), count)]
    zrank = [(("ZRANK", "board", member(number).decode()), number)
             for number in chosen.sample(range(members), count)]
    hget = one_by_one(bench, kelvin, client, hget)
    zrank = one_by_one(bench, kelvin, client, zrank)
    zrange = first_ten(bench, kelvin, client)
    bench.check("HGET, hash of 100 MB: device reads, mean", hget["reads"] if tiered else None,
                "<=", HGET_READS_BAR)
    bench.check("HGET, hash of 100 MB: reads of one, most", hget["reads_max"] if tiered else None,
                "<=", HGET_READS_BAR)
    bench.check("HGET, hash of 100 MB: median", hget["p50_ms"], "<=", HGET_MS_BAR, "ms")
    bench.check("ZRANK of 5 M members: device reads, mean", zrank["reads"] if tiered else None,
                "<=", SORTED_READS_BAR)
    bench.check("ZRANK of 5 M members: reads of one, most", zrank["reads_max"] if tiered else None,
                "<=", SORTED_READS_BAR)
    bench.check("ZRANGE 0 9 of 5 M members: device reads", zrange if tiered else None,
                "<=", SORTED_READS_BAR)
    push_cold(bench, kelvin, client)
    client.close()


def demote(client):
    """Sends every value to flash, and waits a moment: until they are written, they are read from buffers."""
    client.call("TIER", "DEMOTE", "ALL")
    time.sleep(0.5)


def one_by_one(bench, kelvin, client, requests):
    """Requests one after the other, each with its reply. Of one half device reads are counted by the
    drive itself, and how long they took; of the other the most of one request, by the server's counter."""
    half = len(requests) // 2
    times = []
    with kelvin.measure() as measured:
        for words, expected in requests[:half]:
            start = time.perf_counter()
            reply = client.call(*words)
            times.append((time.perf_counter() - start) * 1000)
            assert reply == expected, f"{words}: {reply}"
    times.sort()
    line = {"what": requests[0][0][0], "reads": measured.device["reads"] / half,
            "reads_max": max(reads_of(client, words) for words, _ in requests[half:]),
            "p50_ms": median(times), "p99_ms": times[half * 99 // 100], "server": measured.as_dict()}
    bench.record("one_by_one", line)
    print(f"   {line['what']:<7} {line['reads']:.2f} device reads, at most {line['reads_max']}; "
          f"median {line['p50_ms']:.3f} ms, p99 {line['p99_ms']:.3f} ms")
    return line


def first_ten(bench, kelvin, client):
    """Device reads of a ZRANGE at the head of the leaderboard, which is demoted before each: the least of
    several by the drive, the most by the server."""
    found = []
    for _ in range(bench.scaled(10, 2)):
        demote(client)
        with kelvin.measure() as measured:
            reply = client.call("ZRANGE", "board", 0, 9)
        assert reply == [member(number) for number in range(10)], reply
        demote(client)
        found.append((measured.device["reads"], reads_of(client, ("ZRANGE", "board", 0, 9))))
    # What anybody else reads in the moment is counted as well, but never fewer.
    drive, server = min(reads for reads, _ in found), max(reads for _, reads in found)
    bench.record("first_ten", found)
    print(f"   ZRANGE  {drive:g} device reads of the drive, {server:g} by the server")
    return max(drive, server)


def reads_of(client, words):
    """Device reads of one request, by the server's counter."""
    before = device_reads(client)
    client.call(*words)
    return device_reads(client) - before


def device_reads(client):
    return client.info("tiering").get("flash_device_reads", 0)


def push_cold(bench, kelvin, client):
    """One element more for a list on flash, and all that this writes until it is on flash again."""
    with kelvin.measure() as measured:
        client.call("LPUSH", "list", "x" * 100)
        demote(client)
        settle(kelvin, 10)
    bench.record("push", measured.as_dict())
    print(f"   LPUSH   {measured.process_write_bytes} bytes written by the server, "
          f"{measured.device['write_bytes']} to the drive by all")
    bench.check("LPUSH on a list of 10 MB: bytes written", measured.process_write_bytes,
                "<=", PUSH_BYTES_BAR, "bytes")


# ---------------------------------------------------------------- uniform

def uniform(bench):
    kelvin, hashes, fields = fill_for_uniform(bench)
    measure_uniform(bench, kelvin, hashes, fields)
    bench.stop(kelvin)


def fill_for_uniform(bench):
    """4 GB of hashes, and the file that fio reads."""
    kelvin = start(bench)
    hashes = bench.scaled(40, 4)
    size = bench.scaled(4 * GIB, 128 * MIB) // hashes
    for number in range(hashes):
        fields = fill_by_load(bench, kelvin, f"hash-{number}", size)
        client = kelvin.client()
        demote(client)
        client.close()
    shrink(bench, kelvin)
    bench.fio_reads(4096, 1, 1, bench.scaled(4 * GIB, 64 * MIB))
    return kelvin, hashes, fields


def measure_uniform(bench, kelvin, hashes, fields):
    """HGETs of random fields at two depths, each followed by fio at the same depth and block size."""
    seconds = bench.scaled(6, 1)
    commands = [word for number in range(hashes)
                for word in ("--command", f"HGET hash-{number} __key__", "--command-key-pattern", "R")]
    best = {"share": 0}
    for depth, connections in DEPTHS.items():
        load = [*commands, *connections.split(), "--key-minimum", "1", "--key-maximum", str(fields)]
        bench.load(kelvin, [*load, "--test-time", str(bench.scaled(2, 0.5)), "--seed", "2"])
        result, measured = bench.load(kelvin, [*load, "--test-time", str(seconds)])
        reads = measured.device["reads"]
        block = -(-measured.device["read_bytes"] // max(reads, 1) // 512) * 512 or 1024
        fio = bench.fio_reads(block, depth, seconds, bench.scaled(4 * GIB, 64 * MIB))
        cold = min(reads, result["all"]["count"]) / measured.seconds
        line = {
            "depth": depth, "hgets_per_second": result["all"]["per_second"], "block_bytes": block,
            "reads_per_second": reads / measured.seconds, "fio": fio,
            "share": cold / fio["reads_per_second"], "load": result, "server": measured.as_dict(),
            "tiering": tiering(kelvin),
        }
        bench.record("uniform", line)
        print(f"   depth {depth:<4} {line['hgets_per_second']:>8.0f} HGET/s "
              f"{line['reads_per_second']:>8.0f} reads/s of {block} B; fio "
              f"{fio['reads_per_second']:>8.0f}: {line['share']:.0%}; server CPU "
              f"{measured.cpu_seconds / measured.seconds:.0%}, {measured.cpu_seconds / result['all']['count'] * 1e6:.2f} "
              f"us an HGET; resident {measured.rss_max_bytes / MIB:.0f} MiB")
        best = max(best, line, key=lambda line: line["share"])
    bench.check(f"uniform HGET, 4 GB in 256 MB: reads a second over fio's, depth {best.get('depth')}",
                best["share"] if kelvin.has_tier() else None, ">=", UNIFORM_BAR)


# ---------------------------------------------------------------- whole hashes

def whole(bench):
    kelvin, maxmemory, fields = fill_for_whole(bench)
    measure_whole(bench, kelvin, maxmemory, fields)
    bench.stop(kelvin)


def fill_for_whole(bench):
    kelvin = start(bench)
    client = kelvin.client()
    client.call("SET", "hot-1", "x" * 10)
    fields = fill_hash(client, b"medium", bench.scaled(50 * MIB, 4 * MIB))
    client.close()
    fill_by_load(bench, kelvin, "large", bench.scaled(GIB, 64 * MIB))
    return kelvin, shrink(bench, kelvin), fields


def measure_whole(bench, kelvin, maxmemory, fields):
    # The server's core is its own.
    os.sched_setaffinity(0, {int(LOAD_CORE)})
    alone = beside(bench, kelvin, lambda client: time.sleep(0.2))
    expected = {field(number): value(number) for number in range(fields)}

    def read_medium(client):
        reply = client.call("HGETALL", "medium")
        read_medium.is_right = dict(zip(reply[::2], reply[1::2])) == expected

    def read_large(client):
        try:
            read_large.answer = f"{len(client.call('HGETALL', 'large')) // 2} fields"
        except ReplyError as error:
            read_large.answer = str(error)

    judge(bench, "HGETALL of 50 MB", beside(bench, kelvin, read_medium), alone, maxmemory)
    bench.check("HGETALL of 50 MB: right content", int(read_medium.is_right), ">=", 1)
    judge(bench, "HGETALL of 1 GB", beside(bench, kelvin, read_large), alone, maxmemory)
    print(f"   HGETALL of 1 GB: {read_large.answer}")
    answered = read_large.answer.endswith(" fields") or "maxmemory-clients" in read_large.answer
    bench.check("HGETALL of 1 GB: answered, or refused by the limit's name", int(answered), ">=", 1)


def beside(bench, kelvin, work):
    """A client on schedule reads the hot key while `work(client)` is done again and again."""
    seconds = bench.scaled(8, 1)
    client = kelvin.client()
    demote(client)
    # At its second use it is in RAM again.
    client.call("MGET", "hot-1", "hot-1")
    client.call("GET", "hot-1")
    times = 0
    with kelvin.measure() as measured:
        hot = bench.start_load(kelvin, "--key-prefix hot- --key-minimum 1 --key-maximum 1 -d 10 -c 1 "
                                       f"--ratio 0:1 --rate 1000 --test-time {seconds}", nice=-15)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            work(client)
            times += 1
        hot = bench.end_load(hot)
    client.close()
    return {"times": times, "hot": hot, "server": measured.as_dict()}


def judge(bench, what, result, alone, maxmemory):
    p99, p99_alone = (line["hot"]["get"]["latency_ms"]["p99"] for line in (result, alone))
    resident = result["server"]["rss_max_bytes"] / (maxmemory * MIB)
    bench.record("whole", {"what": what, "result": result, "alone": alone})
    print(f"   {what}: {result['times']} in {result['server']['seconds']:.0f} s; p99 of the others "
          f"{p99:.3f} ms, alone {p99_alone:.3f}; resident {resident:.3f}x; {machine_pauses(result['hot'])}")
    bench.check(f"{what}: resident, of maxmemory", resident, "<=", RESIDENT_BAR, "x")
    bench.check(f"{what}: p99 of others, over that without", p99 / p99_alone, "<=", P99_BAR, "x")


PARTS = {"single": single_commands, "uniform": uniform, "whole": whole}


if __name__ == "__main__":
    main()

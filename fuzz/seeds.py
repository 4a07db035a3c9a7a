#!/usr/bin/env python3
"""Writes inputs that fuzzing begins with: `seeds.py <folder>` makes a folder a target in it.

Objects are those of the tests of the crate `rdb`, which redis-server and others have made.
"""

import pathlib
import re
import struct
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOOTER_BYTES = 10

# Objects that redis-server 7.0 does not write: type, bytes.
ZIPLIST = b"\x0f\x00\x00\x00\x0c\x00\x00\x00\x02\x00\x00\xf3\x02\xf6\xff"
LISTPACK = b"\x14\x00\x00\x00\x03\x00\x81f\x02\x81v\x02\xf1\x88\x13\x03\xff"
PAIRS = b"\x14\x00\x00\x00\x04\x00\x81f\x02\x81v\x02\x81g\x02\x81w\x02\xff"
PAIRS = len(PAIRS).to_bytes(4, "little") + PAIRS[4:]
LISTPACK = len(LISTPACK).to_bytes(4, "little") + LISTPACK[4:]
COMMANDS = (
    b"#TS:1700000000\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n"
    b"*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nvalue\r\n*1\r\n$4\r\nEXEC\r\n"
)
FIRST_MS = (1_700_000_005_000).to_bytes(8, "little")
OTHERS = [
    (1, b"\x02\x01a\xc0\x05"),
    (2, b"\x03\x01a\x01b\xc0\x07"),
    (3, b"\x03\x01a\x031.5\x01b\xfe\x01c\xff"),
    (4, b"\x02\x01f\x01v\x01g\x01w"),
    (5, b"\x01\x01a" + b"\x00" * 6 + b"\xf0\x3f"),
    (9, b"\x09\x01\x01f\x01\x02v..\xff"),
    (10, bytes([len(ZIPLIST)]) + ZIPLIST),
    (12, bytes([len(ZIPLIST)]) + ZIPLIST),
    (13, bytes([len(ZIPLIST)]) + ZIPLIST),
    (14, b"\x02" + 2 * (bytes([len(ZIPLIST)]) + ZIPLIST)),
    (16, bytes([len(PAIRS)]) + PAIRS),
    (18, b"\x02\x01\x03abc\x02" + bytes([len(PAIRS)]) + PAIRS),
    (20, bytes([len(PAIRS)]) + PAIRS),
    (22, b"\x02\x00\x01f\x01v\x53\x88\x01g\x01w"),
    (22, b"\x01\x01f\x01v" + FIRST_MS),
    (23, bytes([len(LISTPACK)]) + LISTPACK),
    (24, FIRST_MS + b"\x02\x00\x01f\x01v\x0b\x01g\x01w"),
    (25, FIRST_MS + bytes([len(LISTPACK)]) + LISTPACK),
    # Many members, and long ones: trees.
    (2, b"\x43\xe8" + b"".join(b"\x05%05d" % number for number in range(1000))),
    (1, b"\x43\xe8" + b"".join(b"\x05%05d" % number for number in range(1000))),
    (4, b"\x43\xe8" + b"".join(b"\x05%05d\x02ab" % number for number in range(1000))),
]


def objects():
    """Types and bytes of objects."""
    tests = (ROOT / "crates/rdb/tests/objects.rs").read_text()
    for text in re.findall(r'"((?:[0-9a-f\s\\]){24,})"', tests):
        digits = re.sub(r"[\s\\]", "", text)
        payload = bytes.fromhex(digits)
        yield payload[0], payload[1:-FOOTER_BYTES]
    yield from OTHERS


def write(folder, name, number, seed):
    path = folder / name
    path.mkdir(parents=True, exist_ok=True)
    (path / f"seed-{number:03}").write_bytes(seed)


def main():
    folder = pathlib.Path(sys.argv[1])
    for number, (kind, value) in enumerate(objects()):
        write(folder, "rdb_object", number, bytes([kind, 0]) + value)
        # Past and present, with every change and with half of them.
        for choice in (1, 0x51):
            write(folder, "restore", 2 * number + (choice > 1), bytes([choice, kind]) + value)
        head = b"REDIS0012" + b"\xfa\x03ver\x037.0\xfe\x00\xfb\x01\x00"
        expiry = b"\xfc" + FIRST_MS
        end = b"\xff" + b"\x00" * 8
        file = head + expiry + bytes([kind]) + b"\x01k" + value + end
        write(folder, "rdb_file", number, file)
        # As the base of a log, with commands behind it, in front of a file with the end cut off.
        write(folder, "log", number, b"\xfe--\xff".join([b"\x01" + file + COMMANDS, COMMANDS, COMMANDS[:-3]]))
    manifest = b"# log\nfile base seq 1 type b\nfile 'old' seq 1 type h\nfile \"fir\\x73t\" seq 1 type i startoffset 2\n"
    for choices in range(0, 32, 8):
        write(folder, "log", 900 + choices, b"\xfe--\xff".join([bytes([choices]) + manifest, COMMANDS, COMMANDS]))
    requests = [
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nvalue\r\n*1\r\n$4\r\nPING\r\n",
        b"PING\r\nSET k 'a b' \"\\x41\\n\"\r\n\r\n*0\r\n*-1\r\n",
    ]
    for number, request in enumerate(requests):
        write(folder, "resp_request", number, b"\x20\x40\x60\x80\xa0\xc0\x00" + request)
    replies = [
        b"*2\r\n$1\r\na\r\n:1\r\n",
        b"%1\r\n+a\r\n~2\r\n,1.5\r\n#t\r\n",
        b"=5\r\ntxt:a\r\n_\r\n(12345678901234567890\r\n",
    ]
    for number, reply in enumerate(replies):
        write(folder, "resp_reply", number, reply)
        write(folder, "load_reply", number, b"\x20\x40\x60\x80\xa0\xc0\x00" + reply)
    records = [
        b"\xac\x02\x07\x02\x03DEL\x01k\x00\x03\x03SET\x01k\x00",
        b"\x80\xd0\x95\xff\xbc1\x00\x03\x05RPUSH\x01l\xac\x02" + b"v" * 300,
    ]
    for number, record in enumerate(records):
        write(folder, "journal_record", number, record)
    label = b"KelvFlLb" + bytes(4) + b"\x01" + bytes(51)
    # Unused; with records and a list of a block; a record in two segments.
    entries = [(0, 0, 0, 0, 0), (1, 8, 512, 16, 1), (2, 9, 0, 100_000, 1), (3, 10, 0, 0, 0)]
    lists = {8: struct.pack("<II", 0, 512), 9: struct.pack("<I", 3)}
    segments = b"".join(
        struct.pack("<QIHBBIII", 1 << 32, place, 0, kind, 0, used, referred, count) + lists.get(kind, b"")
        for place, kind, used, referred, count in entries
    )
    sizes = struct.pack("<QQQQII", 5, 1, 7, 64 << 10, 512, len(entries))
    state = b"KelvFlSt" + bytes(4) + b"\x01" + bytes(3) + sizes + bytes(80)
    place = b"\x04\x01" + bytes(13) + b"\x09\x00\x00\x00\x20\x00\x00\x00"
    for number, kept in enumerate([label, state + segments, place]):
        write(folder, "kept", number, kept)
    arguments = "1:10 4-4 8:1,16:3 50,99.9 G:Z allkeys 100B:90%,4KiB:10% 8TB/day 150k/s 20% 1DWPD zipf:0.99 20%:80%"
    for number, argument in enumerate(arguments.split(" ") + ["MOVED 3999 127.0.0.1:6381", "SET __key__ 'a b'"]):
        write(folder, "arguments", number, argument.encode())
    options = (ROOT / "crates/server/src/config").glob("*.rs")
    names = sorted({
        name
        for path in options
        for name in re.findall(r'"([a-z]+(?:-[a-z]+)+)"', path.read_text())
    })
    for number in range(0, len(names), 8):
        some = names[number : number + 8]
        lines = [f"{way}{name} {value}" for name in some for way, value in [("1", "1mb"), ("2", "yes")]]
        write(folder, "config", number, "\n".join(lines).encode())
    extra = b'2save 60 1 300 2\n0save "900 1"\n2maxmemory 1gb\n2client-output-buffer-limit pubsub 1mb 1kb 60\n'
    write(folder, "config", 999, extra)


main()

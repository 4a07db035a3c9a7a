"""The collections that the benchmarks of collections fill servers with."""

# Elements of a collection, and how many there are of that size.
COUNTS = {10: 100_000, 1_000: 1_000, 1_000_000: 1}
TYPES = ("list", "set", "hash", "sorted set", "stream", "places")
# Elements of a command, and bytes of commands on their way.
ELEMENTS_A_COMMAND = 500
SENT_BYTES_MAX = 1 << 20
RANDOM = "__rand_int__"


def key_name(prefix, number):
    """The name of a key; None stands for one at random, as redis-benchmark writes it."""
    return f"{prefix}:{RANDOM if number is None else format(number, '012d')}"


def element(value_bytes, number):
    """An element of so many bytes; None stands for one at random."""
    text = RANDOM if number is None else format(number, "012d")
    return "e" * (value_bytes - 13) + ":" + text


def fill(client, kind, keys, size, value_bytes):
    """Fills a server with `keys` collections of `size` elements, and with one more to intersect with."""
    sent, size_bytes = [], 0
    for words in commands_of(kind, keys, size, value_bytes):
        command = encode(words)
        sent.append(command)
        size_bytes += len(command)
        if size_bytes > SENT_BYTES_MAX:
            flush(client, sent)
            sent, size_bytes = [], 0
    flush(client, sent)


def encode(words):
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts)


def flush(client, sent):
    client.socket.sendall(b"".join(sent))
    for _ in sent:
        client.reply()


def commands_of(kind, keys, size, value_bytes):
    """The commands that make the collections of a type."""
    for key in range(keys):
        for prefix in ("a", "b") if kind == "set" and size <= 1_000 else ("a",):
            name = key_name(prefix, key)
            if kind == "stream":
                yield ["XGROUP", "CREATE", name, "group", "0", "MKSTREAM"]
                for number in range(size):
                    yield ["XADD", name, "*", "field", element(value_bytes, number)]
                continue
            for start in range(0, size, ELEMENTS_A_COMMAND):
                numbers = range(start, min(start + ELEMENTS_A_COMMAND, size))
                yield [ADD[kind], name, *words_of(kind, numbers, value_bytes)]


ADD = {"list": "RPUSH", "set": "SADD", "hash": "HSET", "sorted set": "ZADD", "places": "GEOADD"}


def words_of(kind, numbers, value_bytes):
    words = []
    for number in numbers:
        name = element(value_bytes, number)
        if kind == "hash":
            words += [name, name]
        elif kind == "sorted set":
            words += [number, name]
        elif kind == "places":
            # Spread evenly over a band around the place that is searched for.
            spread = number * 2_654_435_761 % (1 << 32) / (1 << 32)
            words += [spread * 360 - 180, (number * 40_503 % 65_536) / 65_536 * 160 - 80, name]
        else:
            words.append(name)
    return words

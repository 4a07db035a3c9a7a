"""Ordinary work with redis-py, in RESP2 and RESP3: `client.py HOST PORT`.

It empties the server first. Any surprise is an AssertionError or an exception, and the exit code.
"""

import sys
import threading
import time

import redis

import data_types
from connection import connect, fails, until


def main():
    for protocol in (2, 3):
        client = connect(protocol, client_name="redis-py-test")
        client.flushall()
        for work in (handshake, strings, conditions, numbers, bits, keys, expiry, scan, pipelines,
                     transactions, watch, databases, errors, binary_and_big, many_connections,
                     publish_and_subscribe, server_commands, *data_types.WORKS):
            work(client, protocol)
            client.flushall()
        client.close()
        print(f"redis-py {redis.__version__}, RESP{protocol}: ok")


def handshake(client, protocol):
    assert client.ping() is True
    info = client.client_info()
    assert info["name"] == "redis-py-test", info
    assert info["id"] == client.client_id()
    # Redis 7.0 does not report these two.
    assert int(info.get("resp", protocol)) == protocol
    assert info.get("lib-name", "redis-py").startswith("redis-py")
    client.client_setname("other")
    assert client.client_getname() in ("other", b"other")
    assert any(line["name"] == "other" for line in client.client_list())
    assert client.echo("hello") == b"hello"


def strings(client, _):
    assert client.set("s", "value") is True
    assert client.get("s") == b"value"
    assert client.get("missing") is None
    assert client.append("s", "!") == 6
    assert client.strlen("s") == 6
    assert client.getrange("s", 1, -2) == b"alue"
    assert client.setrange("s", 7, "z") == 8
    assert client.get("s") == b"value!\x00z"
    assert client.mset({"a": 1, "b": 2, "c": 3}) is True
    assert client.mget("a", "missing", "c") == [b"1", None, b"3"]
    assert client.msetnx({"a": 9, "d": 9}) in (False, 0)
    assert client.get("d") is None
    assert client.getset("a", "10") == b"1"
    assert client.getdel("a") == b"10"
    assert client.exists("a", "b", "c") == 2
    client.mset({"x": "ohmytext", "y": "mynewtext"})
    assert client.lcs("x", "y") == b"mytext"
    assert client.lcs("x", "y", len=True) == 6


def conditions(client, _):
    assert client.set("k", "1", nx=True) is True
    assert client.set("k", "2", nx=True) is None
    assert client.set("k", "3", xx=True) is True
    assert client.set("k2", "3", xx=True) is None
    assert client.set("k", "4", get=True) == b"3"
    assert client.set("k", "5", px=50_000) is True
    assert client.set("k", "6", keepttl=True) is True
    assert 0 < client.pttl("k") <= 50_000
    assert client.setnx("k", "7") is False
    assert client.execute_command("SETEX", "k", 10, "8") in (True, b"OK")
    assert client.execute_command("PSETEX", "k", 10_000, "9") in (True, b"OK")
    assert client.get("k") == b"9"


def numbers(client, _):
    assert client.incr("n") == 1
    assert client.incr("n", 41) == 42
    assert client.decr("n", 2) == 40
    assert client.incrbyfloat("n", 0.5) == 40.5
    client.set("n", 2**63 - 1)
    fails(lambda: client.incr("n"), "increment or decrement would overflow")


def bits(client, _):
    assert client.setbit("bits", 7, 1) == 0
    assert client.getbit("bits", 7) == 1
    client.set("one", b"\xff\x00")
    client.set("two", b"\x0f\x0f\x0f")
    assert client.bitcount("one") == 8
    assert client.bitcount("two", 5, 12, "BIT") == 4
    assert client.bitpos("one", 0) == 8
    assert client.bitop("AND", "and", "one", "two") == 3
    assert client.get("and") == b"\x0f\x00\x00"
    assert client.bitop("NOT", "not", "one") == 2
    assert client.get("not") == b"\x00\xff"
    field = client.bitfield("field").set("u8", "#1", 200).incrby("u8", "#1", 100, overflow="SAT")
    assert field.get("u8", 8).execute() == [0, 255, 255]
    assert client.execute_command("BITFIELD_RO", "field", "GET", "u8", 8) == [255]


def keys(client, _):
    client.mset({"a": "1", "b": "text"})
    assert client.type("a") == b"string"
    assert client.type("missing") == b"none"
    assert client.rename("a", "c") is True
    assert client.renamenx("c", "b") is False
    assert client.copy("c", "d") is True
    assert client.copy("c", "b", replace=True) is True
    assert sorted(client.keys("[b-d]")) == [b"b", b"c", b"d"]
    assert client.randomkey() in (b"b", b"c", b"d")
    assert client.object("encoding", "c") == b"int"
    assert client.object("refcount", "c") >= 1
    assert client.object("idletime", "c") >= 0
    assert client.touch("b", "c", "missing") == 2
    assert client.unlink("b", "missing") == 1
    assert client.delete("c", "d") == 2
    assert client.dbsize() == 0


def expiry(client, _):
    start = time.monotonic()
    client.set("k", "v", ex=100)
    assert 99 - (time.monotonic() - start) <= client.ttl("k") <= 100
    assert client.expire("k", 200, nx=True) in (False, 0)
    assert client.expire("k", 200, gt=True) in (True, 1)
    assert client.expiretime("k") > time.time()
    assert client.persist("k") in (True, 1)
    assert client.ttl("k") == -1
    assert client.ttl("missing") == -2
    assert client.getex("k", px=10_000_000) == b"v"
    assert client.pttl("k") > 9_000_000
    assert client.getex("k", persist=True) == b"v"
    assert client.pexpireat("k", 1) in (True, 1)
    assert client.exists("k") == 0
    client.set("soon", "v", px=1)
    until(lambda: client.get("soon") is None)
    client.set("sooner", "v", px=1)
    until(lambda: client.dbsize() == 0)


def scan(client, _):
    names = {f"key:{index}".encode() for index in range(1000)}
    client.mset(dict.fromkeys(names, "v"))
    assert set(client.scan_iter()) == names
    assert set(client.scan_iter(match="key:99*", count=50)) == {
        name for name in names if name.startswith(b"key:99")}
    assert set(client.scan_iter(_type="string")) == names
    assert set(client.scan_iter(_type="list")) == set()


def pipelines(client, _):
    with client.pipeline(transaction=False) as pipeline:
        for index in range(5000):
            pipeline.set(f"p{index}", index)
        for index in range(5000):
            pipeline.get(f"p{index}")
        replies = pipeline.execute()
    assert replies == [True] * 5000 + [str(index).encode() for index in range(5000)]
    with client.pipeline(transaction=False) as pipeline:
        replies = pipeline.set("a", "x").incr("a").get("a").execute(raise_on_error=False)
    assert replies[0] is True
    assert isinstance(replies[1], redis.ResponseError)
    assert replies[2] == b"x"


def transactions(client, _):
    with client.pipeline(transaction=True) as pipeline:
        assert pipeline.set("a", 1).incr("a").get("a").execute() == [True, 2, b"2"]
    with client.pipeline(transaction=True) as pipeline:
        replies = pipeline.set("a", "x").incr("a").set("b", 1).execute(raise_on_error=False)
    assert isinstance(replies[1], redis.ResponseError)
    assert client.get("b") == b"1"
    with client.pipeline(transaction=True) as pipeline:
        pipeline.set("c", 1).execute_command("NOSUCHCOMMAND")
        fails(pipeline.execute, "unknown command")
    assert client.get("c") is None


def watch(client, _):
    """A hundred increments by four threads, each read, incremented in Python and written back."""
    client.set("counter", 0)

    def add(pipeline):
        value = int(pipeline.get("counter"))
        pipeline.multi()
        pipeline.set("counter", value + 1)

    def work():
        for _ in range(25):
            client.transaction(add, "counter")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.get("counter") == b"100"
    with client.pipeline() as pipeline:
        pipeline.watch("counter")
        client.set("counter", "changed")
        pipeline.multi()
        pipeline.set("counter", "lost")
        try:
            pipeline.execute()
            raise AssertionError("EXEC went through after a watched key had changed")
        except redis.WatchError:
            pass
    assert client.get("counter") == b"changed"


def databases(client, protocol):
    other = connect(protocol, db=3)
    other.set("k", "three")
    assert client.get("k") is None
    client.set("m", "moved")
    assert client.move("m", 3) in (True, 1)
    assert other.get("m") == b"moved"
    assert client.swapdb(0, 3) is True
    assert client.get("k") == b"three"
    other.flushdb()
    assert client.dbsize() == 2
    other.close()


def errors(client, _):
    fails(lambda: client.execute_command("NOSUCH", "a"), "unknown command")
    fails(lambda: client.execute_command("GET"), "wrong number of arguments")
    client.set("k", "text")
    fails(lambda: client.incr("k"), "value is not an integer or out of range")
    fails(lambda: client.execute_command("SET", "k", "v", "EX", "0"), "invalid expire time")
    fails(lambda: client.execute_command("SET", "k", "v", "NOPE"), "syntax error")
    fails(lambda: client.setrange("k", 2**40, "x"), "")
    fails(lambda: client.rename("missing", "k"), "no such key")
    fails(lambda: client.execute_command("SELECT", 99), "DB index is out of range")
    assert client.ping()


def binary_and_big(client, _):
    key = bytes(range(256))
    client.set(key, b"\r\n$-1\r\n\x00")
    assert client.get(key) == b"\r\n$-1\r\n\x00"
    big = bytes(range(256)) * (40 << 10)
    client.set("big", big)
    assert client.get("big") == big
    assert client.getrange("big", len(big) - 3, -1) == big[-3:]
    client.set("", "empty key")
    assert client.get("") == b"empty key"
    client.set("k", "")
    assert client.get("k") == b""


def many_connections(_, protocol):
    clients = [connect(protocol) for _ in range(100)]
    for index, one in enumerate(clients):
        one.set(f"c{index}", index)
    for index, one in enumerate(reversed(clients)):
        assert one.get(f"c{index}") == str(index).encode()
        one.close()


def publish_and_subscribe(client, _):
    listener = client.pubsub()
    listener.subscribe("news", "weather")
    listener.psubscribe("n*")
    listener.ssubscribe("shard")
    told = [listener.get_message(timeout=10) for _ in range(4)]
    kinds = ["subscribe", "subscribe", "psubscribe", "ssubscribe"]
    assert [message["type"] for message in told] == kinds, told
    assert client.pubsub_numsub("news") == [(b"news", 1)]
    assert client.pubsub_numpat() == 1
    assert sorted(client.pubsub_channels()) == [b"news", b"weather"]
    for number in range(1000):
        assert client.publish("news", number) == 2
    assert client.spublish("shard", "one") == 1
    for number in range(1000):
        for kind in ("message", "pmessage"):
            message = listener.get_message(timeout=10)
            assert (message["type"], message["data"]) == (kind, str(number).encode()), message
    message = listener.get_message(timeout=10)
    assert (message["type"], message["data"]) == ("smessage", b"one"), message
    listener.ping("there?")
    assert listener.get_message(timeout=10)["data"] == b"there?"
    listener.unsubscribe()
    listener.punsubscribe()
    until(lambda: client.pubsub_channels() == [] and client.pubsub_numpat() == 0)
    listener.close()
    until(lambda: client.pubsub_shardchannels() == [])


def server_commands(client, protocol):
    client.set("k", "v" * 1000)
    info = client.info()
    for field in ("redis_version", "uptime_in_seconds", "connected_clients", "used_memory",
                  "maxmemory", "total_commands_processed", "keyspace_hits", "role", "db0"):
        assert field in info, field
    assert info["db0"]["keys"] == 1
    assert client.info("memory")["used_memory"] > 0
    assert client.config_get("maxmemory*")["maxmemory-policy"]
    timeout = client.config_get("timeout")["timeout"]
    assert client.config_set("timeout", 300) is True
    assert client.config_get("timeout") == {"timeout": "300"}
    client.config_set("timeout", timeout)
    assert client.memory_usage("k") > 1000
    seconds, microseconds = client.time()
    assert abs(seconds - time.time()) < 60 and 0 <= microseconds < 1_000_000
    assert client.command_count() > 50
    assert "get" in {str(name).lower() for name in client.command()}
    assert client.command_getkeys("MSET", "a", 1, "b", 2) in ([b"a", b"b"], ["a", "b"])
    assert isinstance(client.slowlog_get(), list)
    victim = connect(protocol)
    assert client.client_kill_filter(_id=victim.client_id()) == 1
    assert victim.ping() is True, "a killed client reconnects"
    victim.close()


if __name__ == "__main__":
    main()

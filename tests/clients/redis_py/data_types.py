"""Ordinary work with every type of value but strings, by redis-py: `WORKS`, each of (client, protocol)."""

import threading

import redis

from connection import connect, until

# Enough elements that a collection is a tree of leaves.
MANY = 5000


def types(client, _):
    make = {
        "list": lambda: client.rpush("list", "a"),
        "set": lambda: client.sadd("set", "a"),
        "hash": lambda: client.hset("hash", "field", "value"),
        "zset": lambda: client.zadd("zset", {"a": 1}),
        "stream": lambda: client.xadd("stream", {"field": "value"}),
    }
    for name, add in make.items():
        add()
        assert client.type(name) == name.encode()
        assert list(client.scan_iter(_type=name)) == [name.encode()]
        assert client.copy(name, "copy") is True
        assert client.rename("copy", "renamed") is True
        assert client.expire("renamed", 100) in (True, 1)
        assert client.type("renamed") == name.encode() and client.ttl("renamed") > 90
        assert client.memory_usage(name) > 0
        assert client.unlink("renamed") == 1
    assert client.delete(*make) == 5


def lists(client, _):
    assert client.rpush("l", "b", "c", "d") == 3
    assert client.lpush("l", "a") == 4
    assert client.lrange("l", 0, -1) == [b"a", b"b", b"c", b"d"]
    assert client.linsert("l", "AFTER", "b", "b") == 5
    assert client.lpos("l", "b", rank=-1, count=0) == [2, 1]
    assert client.lset("l", 0, "A") in (True, b"OK")
    assert client.lindex("l", -5) == b"A"
    assert client.lrem("l", -1, "b") == 1
    assert client.lpop("l") == b"A"
    assert client.rpop("l", 2) == [b"d", b"c"]
    assert client.lmove("l", "other", "LEFT", "RIGHT") == b"b"
    assert client.exists("l") == 0
    client.rpush("other", "c", "d")
    assert client.lmpop(2, "l", "other", direction="RIGHT", count=2) == [b"other", [b"d", b"c"]]
    numbers = [b"element %d" % number for number in range(MANY)]
    assert client.rpush("large", *numbers) == MANY
    assert client.lrange("large", 2000, 2009) == numbers[2000:2010]
    assert client.ltrim("large", 1, -2) in (True, b"OK")
    assert client.llen("large") == MANY - 2
    assert client.lrange("large", 0, -1) == numbers[1:-1]


def hashes(client, _):
    assert client.hset("h", mapping={"a": 1, "b": 2}) == 2
    assert client.hset("h", "a", 3) == 0
    assert client.hget("h", "a") == b"3"
    assert client.hgetall("h") == {b"a": b"3", b"b": b"2"}
    assert client.hmget("h", "b", "missing") == [b"2", None]
    assert client.hincrby("h", "a", 39) == 42
    assert client.hincrbyfloat("h", "a", 0.5) == 42.5
    assert client.hsetnx("h", "b", 9) in (False, 0)
    assert client.hexists("h", "b") in (True, 1)
    assert client.hstrlen("h", "a") == 4
    assert sorted(client.hkeys("h")) == [b"a", b"b"]
    assert sorted(client.hvals("h")) == [b"2", b"42.5"]
    assert sorted(client.hrandfield("h", 10)) == [b"a", b"b"]
    assert client.hdel("h", "a", "b", "c") == 2
    assert client.exists("h") == 0
    large = {b"field %d" % number: b"%d" % number for number in range(MANY)}
    assert client.hset("large", mapping=large) == MANY
    assert client.hgetall("large") == large
    assert dict(client.hscan_iter("large", count=100)) == large


def expiring_fields(client, _):
    client.hset("h", mapping={"a": 1, "b": 2, "c": 3})
    assert client.hexpire("h", 1000, "a", "b", "missing") == [1, 1, -2]
    assert client.hexpire("h", 10, "a", gt=True) == [0]
    assert 900 < client.httl("h", "a")[0] <= 1000
    assert client.hpersist("h", "a", "c") == [1, -1]
    assert client.httl("h", "a", "missing") == [-1, -2]
    assert client.hpexpire("h", 1, "b") == [1]
    until(lambda: client.hlen("h") == 2)
    assert client.hgetall("h") == {b"a": b"1", b"c": b"3"}


def sets(client, _):
    assert client.sadd("s", "a", "b", "c", "a") == 3
    assert client.smembers("s") == {b"a", b"b", b"c"}
    assert client.scard("s") == 3
    assert client.sismember("s", "a") in (True, 1)
    assert client.smismember("s", ["a", "z"]) in ([1, 0], [True, False])
    client.sadd("t", "b", "c", "d")
    assert client.sinter("s", "t") == {b"b", b"c"}
    assert client.sunion("s", "t") == {b"a", b"b", b"c", b"d"}
    assert client.sdiff("s", "t") == {b"a"}
    assert client.sintercard(2, ["s", "t"]) == 2
    assert client.sinterstore("stored", "s", "t") == 2
    assert client.sunionstore("stored", "s", "t") == 4
    assert client.sdiffstore("stored", "s", "t") == 1
    assert client.smove("s", "t", "a") in (True, 1)
    assert client.srem("s", "b") == 1
    assert client.srandmember("s") == b"c"
    assert client.spop("s") == b"c"
    assert set(client.spop("t", 10)) == {b"a", b"b", b"c", b"d"}
    large = {b"member %d" % number for number in range(MANY)}
    assert client.sadd("large", *large) == MANY
    assert len(set(client.srandmember("large", 100))) == 100
    assert set(client.sscan_iter("large", count=100)) == large


def sorted_sets(client, _):
    assert client.zadd("z", {"a": 1, "b": 2, "c": 3.5}) == 3
    assert client.zadd("z", {"a": 9}, nx=True) == 0
    assert client.zadd("z", {"a": 1.5}, gt=True, ch=True) == 1
    assert client.zadd("z", {"a": 1}, incr=True) == 2.5
    assert client.zscore("z", "c") == 3.5
    assert client.zmscore("z", ["a", "missing"]) == [2.5, None]
    assert client.zrange("z", 0, -1) == [b"b", b"a", b"c"]
    assert pairs(client.zrange("z", -1, -1, withscores=True)) == [(b"c", 3.5)]
    assert client.zrange("z", 4, 2, desc=True, byscore=True, offset=1, num=1) == [b"a"]
    assert client.zrangebyscore("z", "(2", "+inf") == [b"a", b"c"]
    assert client.zrank("z", "a") == client.zrevrank("z", "a") == 1
    assert client.zcount("z", 2, 3) == 2
    assert client.zincrby("z", 10, "b") == 12
    client.zadd("other", {"a": 1, "d": 4})
    assert client.zunionstore("stored", {"z": 1, "other": 10}, aggregate="MAX") == 4
    assert client.zscore("stored", "a") == 10
    assert client.zinter(["z", "other"]) == [b"a"]
    assert client.zdiff(["z", "other"]) == [b"c", b"b"]
    assert client.zrangestore("stored", "z", 0, 1) == 2
    assert pairs(client.zpopmin("z", 1)) == [(b"a", 2.5)]
    assert pairs(client.zpopmax("z", 1)) == [(b"b", 12)]
    key, popped = client.zmpop(2, ["z", "other"], max=True, count=5)
    assert (key, pairs(popped)) == (b"z", [(b"c", 3.5)])
    client.zadd("lex", dict.fromkeys("abc", 0))
    assert client.zrangebylex("lex", "[b", "+") == [b"b", b"c"]
    assert client.zlexcount("lex", "-", "(c") == 2
    assert client.zremrangebylex("lex", "[a", "[a") == 1
    assert len(client.zrandmember("lex", 5)) == 2
    large = {b"member %d" % number: number / 2 for number in range(MANY)}
    assert client.zadd("large", large) == MANY
    assert client.zrank("large", "member 4321") == 4321
    assert client.zrange("large", 1000, 1001) == [b"member 1000", b"member 1001"]
    assert dict(pairs(client.zscan_iter("large", count=100))) == large
    assert client.zremrangebyrank("large", 0, 99) == 100
    assert client.zremrangebyscore("large", 50, 59.5) == 20
    assert client.zcard("large") == MANY - 120


def streams(client, _):
    assert client.xadd("x", {"field": 1}, id="1-1") == b"1-1"
    assert client.xadd("x", {"field": 2}, id="1-*") == b"1-2"
    last = client.xadd("x", {"a": 3, "b": 4})
    assert client.xlen("x") == 3
    assert client.xrange("x")[1:] == [(b"1-2", {b"field": b"2"}), (last, {b"a": b"3", b"b": b"4"})]
    assert client.xrevrange("x", count=1)[0][0] == last
    assert client.xrange("x", "(1-1", "1-9") == [(b"1-2", {b"field": b"2"})]
    assert entries_read(client.xread({"x": "1-1"}, count=1)) == [b"1-2"]
    assert not client.xread({"x": "$"}, block=5)
    assert client.xinfo_stream("x")["length"] == 3
    assert client.xdel("x", "1-1", "9-9") == 1
    assert client.xtrim("x", maxlen=1, approximate=False) == 1
    with client.pipeline(transaction=False) as pipeline:
        for number in range(MANY):
            pipeline.xadd("large", {"number": number}, id=f"1-{number + 1}")
        pipeline.execute()
    assert client.xlen("large") == MANY
    assert client.xrange("large", "1-3000", count=1) == [(b"1-3000", {b"number": b"2999"})]
    assert client.xtrim("large", maxlen=1000) <= MANY - 1000


def groups(client, _):
    assert client.xgroup_create("x", "group", "0", mkstream=True) is True
    for number in range(1, 5):
        client.xadd("x", {"number": number}, id=f"1-{number}")

    def read_new(consumer, count=9):
        return entries_read(client.xreadgroup("group", consumer, {"x": ">"}, count=count))

    assert read_new("one", 3) == [b"1-1", b"1-2", b"1-3"]
    assert read_new("two") == [b"1-4"]
    assert read_new("two") == []
    assert client.xpending("x", "group")["pending"] == 4
    assert client.xack("x", "group", "1-1") == 1
    assert len(client.xpending_range("x", "group", "-", "+", 10, consumername="one")) == 2
    assert [entry[0] for entry in client.xclaim("x", "group", "two", 0, ["1-2"])] == [b"1-2"]
    assert len(client.xautoclaim("x", "group", "two", 0)[1]) == 3
    assert client.xinfo_groups("x")[0]["pending"] == 3
    assert len(client.xinfo_consumers("x", "group")) == 2
    assert client.xack("x", "group", "1-2", "1-3", "1-4") == 3
    assert client.xgroup_delconsumer("x", "group", "one") == 0
    assert client.xgroup_setid("x", "group", "1-3") in (True, b"OK")
    assert read_new("two") == [b"1-4"]
    assert client.xgroup_destroy("x", "group") in (True, 1)


def waiting(client, protocol):
    """Every request that waits: one that gives up, and one that another connection serves."""
    assert client.blpop("missing", timeout=0.01) is None
    assert client.blmove("missing", "to", 0.01) is None
    assert client.bzpopmin("missing", timeout=0.01) is None

    def served(wait, serve):
        replies = []
        with connect(protocol) as other:
            waiter = threading.Thread(target=lambda: replies.append(wait(other)))
            waiter.start()
            until(lambda: client.info("clients")["blocked_clients"] == 1 or not waiter.is_alive())
            serve()
            waiter.join()
        return replies[0]

    assert tuple(served(lambda other: other.blpop(["none", "q"], 60),
                        lambda: client.rpush("q", "one"))) == (b"q", b"one")
    assert tuple(served(lambda other: other.brpop("q", 60),
                        lambda: client.lpush("q", "two"))) == (b"q", b"two")
    assert served(lambda other: other.blmove("q", "to", 60), lambda: client.rpush("q", "three")) == b"three"
    assert served(lambda other: other.brpoplpush("q", "to", 60), lambda: client.rpush("q", "four")) == b"four"
    assert client.lrange("to", 0, -1) == [b"four", b"three"]
    assert served(lambda other: other.blmpop(60, 2, "none", "q", direction="LEFT", count=2),
                  lambda: client.rpush("q", "five", "six")) == [b"q", [b"five", b"six"]]
    assert tuple(served(lambda other: other.bzpopmax("z", 60),
                        lambda: client.zadd("z", {"a": 1, "b": 2}))) == (b"z", b"b", 2)
    client.delete("z")
    key, popped = served(lambda other: other.bzmpop(60, 2, ["none", "z"], min=True),
                         lambda: client.zadd("z", {"c": 3}))
    assert (key, pairs(popped)) == (b"z", [(b"c", 3)])
    client.xgroup_create("x", "group", "0", mkstream=True)
    for number, wait in enumerate([
            lambda other: other.xread({"x": "$"}, block=60_000),
            lambda other: other.xreadgroup("group", "one", {"x": ">"}, block=60_000)]):
        client.xgroup_setid("x", "group", "$")
        name = f"{number + 1}-0"
        assert entries_read(served(wait, lambda: client.xadd("x", {"a": 1}, id=name))) == [name.encode()]


def places(client, _):
    assert client.geoadd("g", [13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania"]) == 2
    assert client.geoadd("g", [2.3522, 48.8566, "Paris"]) == 1
    assert round(client.geodist("g", "Palermo", "Catania", "km")) == 166
    assert client.geohash("g", "Palermo") in (["sqc8b49rny0"], [b"sqc8b49rny0"])
    assert abs(client.geopos("g", "Paris")[0][1] - 48.8566) < 1e-4
    near = {"longitude": 15, "latitude": 37, "radius": 200, "unit": "km"}
    assert client.geosearch("g", sort="ASC", **near) == [b"Catania", b"Palermo"]
    boxed = client.geosearch("g", member="Paris", width=10, height=10, unit="km", withdist=True)
    assert [list(place) for place in boxed] == [[b"Paris", 0.0]]
    assert client.geosearchstore("near", "g", **near) == 2
    assert client.zrange("near", 0, -1) == client.geosearch("g", sort="DESC", **near)


def hyperloglogs(client, _):
    assert client.pfadd("p", "a", "b", "c") == 1
    assert client.pfadd("p", "a") == 0
    assert client.pfcount("p") == 3
    client.pfadd("q", *(f"value {number}" for number in range(MANY)))
    assert client.pfmerge("both", "p", "q") in (True, b"OK")
    assert abs(client.pfcount("both") - MANY - 3) < MANY * 0.03
    assert client.pfcount("p", "q") == client.pfcount("both")


def sorting(client, _):
    client.rpush("l", 3, 1, 2)
    client.mset({"weight_1": 30, "weight_2": 20, "weight_3": 10, "name_2": "two", "name_3": "three"})
    assert client.sort("l") == [b"1", b"2", b"3"]
    assert client.sort("l", by="weight_*", get="name_*", start=0, num=2) == [b"three", b"two"]
    assert client.sort("l", desc=True, alpha=True, store="sorted") == 3
    assert client.lrange("sorted", 0, -1) == [b"3", b"2", b"1"]


def transactions_of_types(client, _):
    with client.pipeline(transaction=True) as pipeline:
        pipeline.rpush("l", "a").hset("h", "field", "value").sadd("s", "a", "b")
        pipeline.zincrby("z", 1.5, "a").xadd("x", {"field": "value"}, id="1-1")
        assert pipeline.execute() == [1, 1, 2, 1.5, b"1-1"]
    with client.pipeline() as pipeline:
        pipeline.watch("h")
        client.hset("h", "field", "changed")
        pipeline.multi()
        pipeline.hset("h", "field", "lost")
        try:
            pipeline.execute()
            raise AssertionError("EXEC went through after a field of a watched hash had changed")
        except redis.WatchError:
            pass
    assert client.hget("h", "field") == b"changed"
    with client.pipeline(transaction=True) as pipeline:
        wrong, right = pipeline.lpop("h").sadd("s", "c").execute(raise_on_error=False)
    assert isinstance(wrong, redis.ResponseError) and "WRONGTYPE" in str(wrong)
    assert right == 1


def pairs(found):
    """Members and scores, which come as tuples or lists, numbers or text, by the protocol."""
    return [(member, float(score)) for member, score in found]


def entries_read(reply):
    """The IDs that XREAD or XREADGROUP replied for one stream."""
    if not reply:
        return []
    [found] = reply.values() if isinstance(reply, dict) else [stream[1] for stream in reply]
    # RESP3 has one list more around them.
    if found and isinstance(found[0], list):
        [found] = found
    return [entry[0] for entry in found]


WORKS = (types, lists, hashes, expiring_fields, sets, sorted_sets, streams, groups, waiting, places,
         hyperloglogs, sorting, transactions_of_types)

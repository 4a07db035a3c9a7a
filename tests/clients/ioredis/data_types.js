// Ordinary work with every type of value but strings, by ioredis: `works(connect, until)`.
"use strict";

const assert = require("node:assert/strict");

// Enough elements that a collection is a tree of leaves.
const MANY = 5000;
const numbers = (prefix) => Array.from({ length: MANY }, (_, number) => prefix + number);

// What comes as a map or as a flat list, by the protocol, as an object.
const object = (reply) =>
  Array.isArray(reply)
    ? Object.fromEntries(reply.flatMap((_, at) => (at % 2 ? [] : [[reply[at], reply[at + 1]]])))
    : reply;

// Members and scores, in pairs or flat, numbers or text, by the protocol.
const scores = (reply) => {
  const flat = reply.flat();
  return flat.flatMap((_, at) => (at % 2 ? [] : [[flat[at], Number(flat[at + 1])]]));
};

// Streams that were read: by name or in pairs. The IDs of the one that was asked for.
const idsRead = (reply) => {
  if (reply === null) return [];
  const [, entries] = Array.isArray(reply[0]) ? reply[0] : Object.entries(object(reply))[0];
  return entries.map(([id]) => id);
};

async function walk(stream) {
  const found = [];
  for await (const part of stream) found.push(...part);
  return found;
}

module.exports = (connect, until) => ({
  async types(redis) {
    const make = {
      list: () => redis.rpush("list", "a"),
      set: () => redis.sadd("set", "a"),
      hash: () => redis.hset("hash", "field", "value"),
      zset: () => redis.zadd("zset", 1, "a"),
      stream: () => redis.xadd("stream", "*", "field", "value"),
    };
    for (const [name, add] of Object.entries(make)) {
      await add();
      assert.equal(await redis.type(name), name);
      assert.deepEqual(await walk(redis.scanStream({ type: name })), [name]);
      assert.equal(await redis.copy(name, "copy"), 1);
      assert.equal(await redis.rename("copy", "renamed"), "OK");
      assert.equal(await redis.expire("renamed", 100), 1);
      assert.equal(await redis.type("renamed"), name);
      assert.ok((await redis.ttl("renamed")) > 90);
      assert.ok((await redis.memory("USAGE", name)) > 0);
      assert.equal(await redis.unlink("renamed"), 1);
    }
    assert.equal(await redis.del(Object.keys(make)), 5);
  },

  async lists(redis) {
    assert.equal(await redis.rpush("l", "b", "c", "d"), 3);
    assert.equal(await redis.lpush("l", "a"), 4);
    assert.deepEqual(await redis.lrange("l", 0, -1), ["a", "b", "c", "d"]);
    assert.equal(await redis.linsert("l", "AFTER", "b", "b"), 5);
    assert.deepEqual(await redis.lpos("l", "b", "RANK", -1, "COUNT", 0), [2, 1]);
    assert.equal(await redis.lset("l", 0, "A"), "OK");
    assert.equal(await redis.lindex("l", -5), "A");
    assert.equal(await redis.lrem("l", -1, "b"), 1);
    assert.equal(await redis.lpop("l"), "A");
    assert.deepEqual(await redis.rpop("l", 2), ["d", "c"]);
    assert.equal(await redis.lmove("l", "other", "LEFT", "RIGHT"), "b");
    assert.equal(await redis.exists("l"), 0);
    await redis.rpush("other", "c", "d");
    const popped = await redis.lmpop(2, "l", "other", "RIGHT", "COUNT", 2);
    assert.deepEqual(popped, ["other", ["d", "c"]]);
    const large = numbers("element ");
    assert.equal(await redis.rpush("large", ...large), MANY);
    assert.deepEqual(await redis.lrange("large", 2000, 2009), large.slice(2000, 2010));
    assert.equal(await redis.ltrim("large", 1, -2), "OK");
    assert.deepEqual(await redis.lrange("large", 0, -1), large.slice(1, -1));
  },

  async hashes(redis) {
    assert.equal(await redis.hset("h", { a: 1, b: 2 }), 2);
    assert.equal(await redis.hset("h", "a", 3), 0);
    assert.equal(await redis.hget("h", "a"), "3");
    assert.deepEqual({ ...(await redis.hgetall("h")) }, { a: "3", b: "2" });
    assert.deepEqual(await redis.hmget("h", "b", "missing"), ["2", null]);
    assert.equal(await redis.hincrby("h", "a", 39), 42);
    assert.equal(await redis.hincrbyfloat("h", "a", 0.5), "42.5");
    assert.equal(await redis.hsetnx("h", "b", 9), 0);
    assert.equal(await redis.hexists("h", "b"), 1);
    assert.equal(await redis.hstrlen("h", "a"), 4);
    assert.deepEqual((await redis.hkeys("h")).sort(), ["a", "b"]);
    assert.deepEqual((await redis.hvals("h")).sort(), ["2", "42.5"]);
    assert.deepEqual((await redis.hrandfield("h", 10)).sort(), ["a", "b"]);
    assert.equal(await redis.hdel("h", "a", "b", "c"), 2);
    assert.equal(await redis.exists("h"), 0);
    const large = Object.fromEntries(numbers("field ").map((field) => [field, `of ${field}`]));
    assert.equal(await redis.hset("large", large), MANY);
    assert.deepEqual({ ...(await redis.hgetall("large")) }, large);
    assert.deepEqual(object(await walk(redis.hscanStream("large", { count: 100 }))), large);
  },

  async expiringFields(redis) {
    const fields = (name, ...words) => redis.call(name, "h", ...words);
    await redis.hset("h", { a: 1, b: 2, c: 3 });
    const set = await fields("HEXPIRE", 1000, "FIELDS", 3, "a", "b", "missing");
    assert.deepEqual(set, [1, 1, -2]);
    const [left] = await fields("HTTL", "FIELDS", 1, "a");
    assert.ok(left > 900 && left <= 1000);
    assert.deepEqual(await fields("HPERSIST", "FIELDS", 2, "a", "c"), [1, -1]);
    assert.deepEqual(await fields("HPEXPIRE", 1, "FIELDS", 1, "b"), [1]);
    await until(async () => (await redis.hlen("h")) === 2);
    assert.deepEqual({ ...(await redis.hgetall("h")) }, { a: "1", c: "3" });
  },

  async sets(redis) {
    const sorted = async (reply) => [...(await reply)].sort();
    assert.equal(await redis.sadd("s", "a", "b", "c", "a"), 3);
    assert.deepEqual(await sorted(redis.smembers("s")), ["a", "b", "c"]);
    assert.equal(await redis.scard("s"), 3);
    assert.equal(await redis.sismember("s", "a"), 1);
    assert.deepEqual(await redis.smismember("s", "a", "z"), [1, 0]);
    await redis.sadd("t", "b", "c", "d");
    assert.deepEqual(await sorted(redis.sinter("s", "t")), ["b", "c"]);
    assert.deepEqual(await sorted(redis.sunion("s", "t")), ["a", "b", "c", "d"]);
    assert.deepEqual(await sorted(redis.sdiff("s", "t")), ["a"]);
    assert.equal(await redis.sintercard(2, "s", "t"), 2);
    assert.equal(await redis.sinterstore("stored", "s", "t"), 2);
    assert.equal(await redis.sunionstore("stored", "s", "t"), 4);
    assert.equal(await redis.sdiffstore("stored", "s", "t"), 1);
    assert.equal(await redis.smove("s", "t", "a"), 1);
    assert.equal(await redis.srem("s", "b"), 1);
    assert.equal(await redis.srandmember("s"), "c");
    assert.equal(await redis.spop("s"), "c");
    assert.deepEqual(await sorted(redis.spop("t", 10)), ["a", "b", "c", "d"]);
    const large = numbers("member ");
    assert.equal(await redis.sadd("large", ...large), MANY);
    assert.equal(new Set(await redis.srandmember("large", 100)).size, 100);
    const found = new Set(await walk(redis.sscanStream("large", { count: 100 })));
    assert.deepEqual(found, new Set(large));
  },

  async sortedSets(redis) {
    assert.equal(await redis.zadd("z", 1, "a", 2, "b", 3.5, "c"), 3);
    assert.equal(await redis.zadd("z", "NX", 9, "a"), 0);
    assert.equal(await redis.zadd("z", "GT", "CH", 1.5, "a"), 1);
    assert.equal(Number(await redis.zadd("z", "INCR", 1, "a")), 2.5);
    assert.equal(Number(await redis.zscore("z", "c")), 3.5);
    assert.deepEqual((await redis.zmscore("z", "a", "missing")).map((score) => score && Number(score)), [2.5, null]);
    assert.deepEqual(await redis.zrange("z", 0, -1), ["b", "a", "c"]);
    assert.deepEqual(scores(await redis.zrange("z", -1, -1, "WITHSCORES")), [["c", 3.5]]);
    assert.deepEqual(await redis.zrange("z", 4, 2, "BYSCORE", "REV", "LIMIT", 1, 1), ["a"]);
    assert.deepEqual(await redis.zrangebyscore("z", "(2", "+inf"), ["a", "c"]);
    assert.equal(await redis.zrank("z", "a"), 1);
    assert.equal(await redis.zrevrank("z", "a"), 1);
    assert.equal(await redis.zcount("z", 2, 3), 2);
    assert.equal(Number(await redis.zincrby("z", 10, "b")), 12);
    await redis.zadd("other", 1, "a", 4, "d");
    const stored = await redis.zunionstore("stored", 2, "z", "other", "WEIGHTS", 1, 10, "AGGREGATE", "MAX");
    assert.equal(stored, 4);
    assert.equal(Number(await redis.zscore("stored", "a")), 10);
    assert.deepEqual(await redis.zinter(2, "z", "other"), ["a"]);
    assert.deepEqual(await redis.zdiff(2, "z", "other"), ["c", "b"]);
    assert.equal(await redis.zrangestore("stored", "z", 0, 1), 2);
    assert.deepEqual(scores(await redis.zpopmin("z")), [["a", 2.5]]);
    assert.deepEqual(scores(await redis.zpopmax("z")), [["b", 12]]);
    const [key, popped] = await redis.zmpop(2, "z", "other", "MAX", "COUNT", 5);
    assert.deepEqual([key, scores(popped)], ["z", [["c", 3.5]]]);
    await redis.zadd("lex", 0, "a", 0, "b", 0, "c");
    assert.deepEqual(await redis.zrangebylex("lex", "[b", "+"), ["b", "c"]);
    assert.equal(await redis.zlexcount("lex", "-", "(c"), 2);
    assert.equal(await redis.zremrangebylex("lex", "[a", "[a"), 1);
    assert.equal((await redis.zrandmember("lex", 5)).length, 2);
    const large = numbers("member ");
    assert.equal(await redis.zadd("large", ...large.flatMap((member, at) => [at / 2, member])), MANY);
    assert.equal(await redis.zrank("large", "member 4321"), 4321);
    assert.deepEqual(await redis.zrange("large", 1000, 1001), ["member 1000", "member 1001"]);
    const found = scores(await walk(redis.zscanStream("large", { count: 100 })));
    assert.deepEqual(new Map(found), new Map(large.map((member, at) => [member, at / 2])));
    assert.equal(await redis.zremrangebyrank("large", 0, 99), 100);
    assert.equal(await redis.zremrangebyscore("large", 50, 59.5), 20);
    assert.equal(await redis.zcard("large"), MANY - 120);
  },

  async streams(redis) {
    assert.equal(await redis.xadd("x", "1-1", "field", 1), "1-1");
    assert.equal(await redis.xadd("x", "1-*", "field", 2), "1-2");
    const last = await redis.xadd("x", "*", "a", 3, "b", 4);
    assert.equal(await redis.xlen("x"), 3);
    const [, second, third] = await redis.xrange("x", "-", "+");
    assert.deepEqual([second, third], [["1-2", ["field", "2"]], [last, ["a", "3", "b", "4"]]]);
    assert.equal((await redis.xrevrange("x", "+", "-", "COUNT", 1))[0][0], last);
    assert.equal((await redis.xrange("x", "(1-1", "1-9")).length, 1);
    assert.deepEqual(idsRead(await redis.xread("COUNT", 1, "STREAMS", "x", "1-1")), ["1-2"]);
    assert.equal(await redis.xread("BLOCK", 5, "STREAMS", "x", "$"), null);
    assert.equal(object(await redis.xinfo("STREAM", "x")).length, 3);
    assert.equal(await redis.xdel("x", "1-1", "9-9"), 1);
    assert.equal(await redis.xtrim("x", "MAXLEN", 1), 1);
    const pipeline = redis.pipeline();
    numbers("").forEach((number, at) => pipeline.xadd("large", `1-${at + 1}`, "number", number));
    await pipeline.exec();
    assert.equal(await redis.xlen("large"), MANY);
    assert.deepEqual(await redis.xrange("large", "1-3000", "+", "COUNT", 1), [["1-3000", ["number", "2999"]]]);
    assert.ok((await redis.xtrim("large", "MAXLEN", "~", 1000)) <= MANY - 1000);
  },

  async groups(redis) {
    assert.equal(await redis.xgroup("CREATE", "x", "group", "0", "MKSTREAM"), "OK");
    for (let number = 1; number <= 4; number++) await redis.xadd("x", `1-${number}`, "number", number);
    const readNew = async (consumer, count = 9) =>
      idsRead(await redis.xreadgroup("GROUP", "group", consumer, "COUNT", count, "STREAMS", "x", ">"));
    assert.deepEqual(await readNew("one", 3), ["1-1", "1-2", "1-3"]);
    assert.deepEqual(await readNew("two"), ["1-4"]);
    assert.deepEqual(await readNew("two"), []);
    assert.equal((await redis.xpending("x", "group"))[0], 4);
    assert.equal(await redis.xack("x", "group", "1-1"), 1);
    assert.equal((await redis.xpending("x", "group", "-", "+", 10, "one")).length, 2);
    assert.equal((await redis.xclaim("x", "group", "two", 0, "1-2"))[0][0], "1-2");
    assert.equal((await redis.xautoclaim("x", "group", "two", 0, "0"))[1].length, 3);
    assert.equal(object((await redis.xinfo("GROUPS", "x"))[0]).pending, 3);
    assert.equal((await redis.xinfo("CONSUMERS", "x", "group")).length, 2);
    assert.equal(await redis.xack("x", "group", "1-2", "1-3", "1-4"), 3);
    assert.equal(await redis.xgroup("DELCONSUMER", "x", "group", "one"), 0);
    assert.equal(await redis.xgroup("SETID", "x", "group", "1-3"), "OK");
    assert.deepEqual(await readNew("two"), ["1-4"]);
    assert.equal(await redis.xgroup("DESTROY", "x", "group"), 1);
  },

  // Every request that waits: one that gives up, and one that another connection serves.
  async waiting(redis) {
    assert.equal(await redis.blpop("missing", 0.01), null);
    assert.equal(await redis.blmove("missing", "to", "LEFT", "LEFT", 0.01), null);
    assert.equal(await redis.bzpopmin("missing", 0.01), null);
    const served = async (wait, serve) => {
      const other = connect();
      let done = false;
      const reply = wait(other).finally(() => (done = true));
      await until(async () => done || /blocked_clients:1\b/.test(await redis.info("clients")));
      await serve();
      const served = await reply;
      other.disconnect();
      return served;
    };
    const pop = await served((other) => other.blpop("none", "q", 60), () => redis.rpush("q", "one"));
    assert.deepEqual(pop, ["q", "one"]);
    const last = await served((other) => other.brpop("q", 60), () => redis.lpush("q", "two"));
    assert.deepEqual(last, ["q", "two"]);
    const moved = await served(
      (other) => other.blmove("q", "to", "LEFT", "RIGHT", 60),
      () => redis.rpush("q", "three"),
    );
    assert.equal(moved, "three");
    assert.deepEqual(await redis.lrange("to", 0, -1), ["three"]);
    const several = await served(
      (other) => other.blmpop(60, 2, "none", "q", "LEFT", "COUNT", 2),
      () => redis.rpush("q", "four", "five"),
    );
    assert.deepEqual(several, ["q", ["four", "five"]]);
    const [, member] = await served(
      (other) => other.bzpopmax("z", 60),
      () => redis.zadd("z", 1, "a", 2, "b"),
    );
    assert.equal(member, "b");
    const [, lowest] = await served(
      (other) => other.bzmpop(60, 2, "none", "q", "MIN"),
      () => redis.zadd("q", 3, "c"),
    );
    assert.deepEqual(scores(lowest), [["c", 3]]);
    await redis.xgroup("CREATE", "x", "group", "$", "MKSTREAM");
    const read = await served(
      (other) => other.xread("BLOCK", 60000, "STREAMS", "x", "$"),
      () => redis.xadd("x", "1-1", "number", 1),
    );
    assert.deepEqual(idsRead(read), ["1-1"]);
    await redis.xgroup("SETID", "x", "group", "$");
    const delivered = await served(
      (other) => other.xreadgroup("GROUP", "group", "one", "BLOCK", 60000, "STREAMS", "x", ">"),
      () => redis.xadd("x", "1-2", "number", 2),
    );
    assert.deepEqual(idsRead(delivered), ["1-2"]);
  },

  async places(redis) {
    const added = await redis.geoadd("g", 13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania");
    assert.equal(added, 2);
    assert.equal(await redis.geoadd("g", 2.3522, 48.8566, "Paris"), 1);
    assert.equal(Math.round(await redis.geodist("g", "Palermo", "Catania", "km")), 166);
    assert.deepEqual(await redis.geohash("g", "Palermo", "missing"), ["sqc8b49rny0", null]);
    const [[, latitude]] = await redis.geopos("g", "Paris");
    assert.ok(Math.abs(latitude - 48.8566) < 1e-4);
    const near = ["FROMLONLAT", 15, 37, "BYRADIUS", 200, "km", "ASC"];
    assert.deepEqual(await redis.geosearch("g", ...near), ["Catania", "Palermo"]);
    const boxed = await redis.geosearch("g", "FROMMEMBER", "Paris", "BYBOX", 10, 10, "km", "WITHDIST");
    assert.deepEqual(boxed.map(([name, distance]) => [name, Number(distance)]), [["Paris", 0]]);
    assert.equal(await redis.geosearchstore("near", "g", ...near), 2);
    assert.equal(await redis.zcard("near"), 2);
  },

  async hyperLogLogs(redis) {
    assert.equal(await redis.pfadd("p", "a", "b", "c"), 1);
    assert.equal(await redis.pfadd("p", "a"), 0);
    assert.equal(await redis.pfcount("p"), 3);
    await redis.pfadd("q", ...numbers("value "));
    assert.equal(await redis.pfmerge("both", "p", "q"), "OK");
    const count = await redis.pfcount("both");
    assert.ok(Math.abs(count - MANY - 3) < MANY * 0.03);
    assert.equal(await redis.pfcount("p", "q"), count);
  },

  async sorting(redis) {
    await redis.rpush("l", 3, 1, 2);
    await redis.mset({ weight_1: 30, weight_2: 20, weight_3: 10, name_2: "two", name_3: "three" });
    assert.deepEqual(await redis.sort("l"), ["1", "2", "3"]);
    const named = await redis.sort("l", "BY", "weight_*", "LIMIT", 0, 2, "GET", "name_*");
    assert.deepEqual(named, ["three", "two"]);
    assert.equal(await redis.sort("l", "DESC", "ALPHA", "STORE", "sorted"), 3);
    assert.deepEqual(await redis.lrange("sorted", 0, -1), ["3", "2", "1"]);
  },

  async transactionsOfTypes(redis) {
    const replies = await redis
      .multi()
      .rpush("l", "a")
      .hset("h", "field", "value")
      .sadd("s", "a", "b")
      .zadd("z", 1, "a")
      .xadd("x", "1-1", "field", "value")
      .exec();
    assert.deepEqual(replies, [[null, 1], [null, 1], [null, 2], [null, 1], [null, "1-1"]]);
    await redis.watch("h");
    const other = connect();
    await other.hset("h", "field", "changed");
    other.disconnect();
    assert.equal(await redis.multi().hset("h", "field", "lost").exec(), null);
    assert.equal(await redis.hget("h", "field"), "changed");
    const [[wrong], [, right]] = await redis.multi().lpop("h").sadd("s", "c").exec();
    assert.match(wrong.message, /WRONGTYPE/);
    assert.equal(right, 1);
  },
});

// Ordinary work with ioredis, in RESP2 and RESP3: `node client.js HOST PORT`. It empties the server first.
"use strict";

const assert = require("node:assert/strict");
const Redis = require("ioredis");
const { version } = require("ioredis/package.json");

const [host, port] = [process.argv[2], Number(process.argv[3])];
let protocol = 2;
const connect = (options = {}) => new Redis({ host, port, protocol, ...options });

const works = {
  async strings(redis) {
    assert.equal(await redis.set("s", "value"), "OK");
    assert.equal(await redis.get("s"), "value");
    assert.equal(await redis.get("missing"), null);
    assert.equal(await redis.append("s", "!"), 6);
    assert.equal(await redis.getrange("s", 1, -2), "alue");
    assert.equal(await redis.set("s", "2", "NX"), null);
    assert.equal(await redis.set("s", "2", "EX", 100, "XX"), "OK");
    assert.equal(await redis.getdel("s"), "2");
    assert.equal(await redis.mset({ a: 1, b: 2 }), "OK");
    assert.deepEqual(await redis.mget("a", "missing", "b"), ["1", null, "2"]);
    assert.equal(await redis.incr("a"), 2);
    assert.equal(await redis.incrby("a", 40), 42);
    assert.equal(await redis.incrbyfloat("a", 0.5), "42.5");
    assert.equal(await redis.strlen("a"), 4);
    const binary = Buffer.from([0, 13, 10, 255, 36]);
    await redis.set("binary", binary);
    assert.deepEqual(await redis.getBuffer("binary"), binary);
    const big = Buffer.alloc(8 << 20, "0123456789abcdef");
    await redis.set("big", big);
    assert.deepEqual(await redis.getBuffer("big"), big);
  },

  async bits(redis) {
    assert.equal(await redis.setbit("bits", 7, 1), 0);
    assert.equal(await redis.getbit("bits", 7), 1);
    assert.equal(await redis.bitcount("bits"), 1);
    assert.equal(await redis.bitpos("bits", 1), 7);
    assert.equal(await redis.bitop("NOT", "not", "bits"), 1);
    assert.deepEqual(await redis.getBuffer("not"), Buffer.from([0xfe]));
    assert.deepEqual(await redis.bitfield("field", "SET", "u8", 0, 255, "GET", "i8", 0), [0, -1]);
  },

  async keys(redis) {
    await redis.mset({ a: 1, b: "text" });
    assert.equal(await redis.type("a"), "string");
    assert.equal(await redis.exists("a", "b", "c"), 2);
    assert.equal(await redis.rename("a", "c"), "OK");
    assert.equal(await redis.copy("c", "d"), 1);
    assert.equal(await redis.object("ENCODING", "c"), "int");
    assert.deepEqual((await redis.keys("[cd]")).sort(), ["c", "d"]);
    assert.equal(await redis.unlink("b", "c"), 2);
    assert.equal(await redis.dbsize(), 1);
  },

  async expiry(redis) {
    await redis.set("k", "v", "PX", 10000000);
    assert.ok((await redis.pttl("k")) > 9000000);
    assert.equal(await redis.expire("k", 10, "GT"), 0);
    assert.equal(await redis.persist("k"), 1);
    assert.equal(await redis.ttl("k"), -1);
    assert.equal(await redis.getex("k", "EX", 50), "v");
    await redis.set("soon", "v", "PX", 1);
    await until(async () => (await redis.exists("soon")) === 0);
  },

  async scan(redis) {
    const names = Array.from({ length: 1000 }, (_, index) => `key:${index}`);
    await redis.mset(...names.flatMap((name) => [name, "v"]));
    const seen = new Set();
    for await (const found of redis.scanStream({ match: "key:*", count: 100 })) {
      found.forEach((name) => seen.add(name));
    }
    assert.deepEqual([...seen].sort(), names.sort());
  },

  async pipelines(redis) {
    const pipeline = redis.pipeline();
    for (let index = 0; index < 5000; index++) pipeline.set(`p${index}`, index).get(`p${index}`);
    const replies = await pipeline.exec();
    assert.equal(replies.length, 10000);
    replies.forEach(([error, reply], index) => {
      assert.equal(error, null);
      assert.equal(reply, index % 2 === 0 ? "OK" : String((index - 1) / 2));
    });
    const mixed = await redis.pipeline().set("a", "x").incr("a").get("a").exec();
    assert.match(mixed[1][0].message, /not an integer/);
    assert.equal(mixed[2][1], "x");
    const together = await Promise.all(
      Array.from({ length: 2000 }, (_, index) => redis.get(`p${index}`)),
    );
    assert.deepEqual(together, Array.from({ length: 2000 }, (_, index) => String(index)));
  },

  async autoPipelines() {
    const redis = connect({ enableAutoPipelining: true });
    await Promise.all(Array.from({ length: 500 }, (_, index) => redis.set(`q${index}`, index)));
    const replies = await Promise.all(
      Array.from({ length: 500 }, (_, index) => redis.get(`q${index}`)),
    );
    assert.deepEqual(replies, Array.from({ length: 500 }, (_, index) => String(index)));
    redis.disconnect();
  },

  async transactions(redis) {
    const replies = await redis.multi().set("a", 1).incr("a").get("a").exec();
    assert.deepEqual(replies, [[null, "OK"], [null, 2], [null, "2"]]);
    await redis.watch("a");
    const other = connect();
    await other.set("a", "changed");
    other.disconnect();
    assert.equal(await redis.multi().set("a", "lost").exec(), null);
    assert.equal(await redis.get("a"), "changed");
    await assert.rejects(redis.multi().set("b", 1).call("NOSUCH").exec(), /EXECABORT|unknown/);
    assert.equal(await redis.get("b"), null);
  },

  async databases(redis) {
    const other = connect({ db: 5 });
    await other.set("k", "five");
    assert.equal(await redis.get("k"), null);
    assert.equal(await other.move("k", 0), 1);
    assert.equal(await redis.get("k"), "five");
    other.disconnect();
  },

  async publishAndSubscribe(redis) {
    const listener = connect();
    const heard = [];
    listener.on("message", (channel, message) => heard.push([channel, message]));
    listener.on("pmessage", (pattern, channel, message) => heard.push([pattern, channel, message]));
    assert.equal(await listener.subscribe("news", "weather"), 2);
    assert.equal(await listener.psubscribe("w*"), 3);
    assert.deepEqual(await redis.pubsub("NUMSUB", "news"), ["news", 1]);
    for (let number = 0; number < 500; number++) {
      assert.equal(await redis.publish("news", number), 1);
    }
    assert.equal(await redis.publish("weather", "rain"), 2);
    await until(() => heard.length === 502);
    const news = Array.from({ length: 500 }, (_, number) => ["news", String(number)]);
    assert.deepEqual(heard.slice(0, 500), news);
    assert.deepEqual(heard.slice(500), [["weather", "rain"], ["w*", "weather", "rain"]]);
    await listener.ping();
    assert.equal(await listener.unsubscribe("news", "weather"), 1);
    assert.equal(await listener.punsubscribe("w*"), 0);
    assert.equal(await redis.publish("news", "nobody"), 0);
    listener.disconnect();
  },

  async errors(redis) {
    await assert.rejects(redis.call("NOSUCH", "a"), /unknown command/);
    await assert.rejects(redis.call("GET"), /wrong number of arguments/);
    await redis.set("k", "text");
    await assert.rejects(redis.incr("k"), /not an integer or out of range/);
    assert.equal(await redis.ping(), "PONG");
  },

  async server(redis) {
    const info = await redis.info();
    for (const field of ["redis_version:", "used_memory:", "role:", "tcp_port:"]) {
      assert.ok(info.includes(field), field);
    }
    assert.equal(await redis.client("SETNAME", "ioredis-test"), "OK");
    assert.equal(await redis.client("GETNAME"), "ioredis-test");
    assert.match(await redis.client("INFO"), /name=ioredis-test/);
    assert.ok((await redis.client("ID")) > 0);
    assert.equal((await redis.config("GET", "maxmemory"))[0], "maxmemory");
    assert.ok((await redis.command("COUNT")) > 50);
    assert.equal((await redis.time()).length, 2);
  },

  async reconnection(redis) {
    const victim = connect();
    const id = await victim.client("ID");
    assert.equal(await redis.client("KILL", "ID", id), 1);
    assert.equal(await victim.ping(), "PONG");
    victim.disconnect();
  },
};

async function until(condition) {
  const deadline = Date.now() + 60000;
  while (!(await condition())) {
    assert.ok(Date.now() < deadline, "it did not come true in a minute");
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

Object.assign(works, require("./data_types")(connect, until));

async function workAll() {
  const redis = connect({ connectionName: "first" });
  for (const [name, work] of Object.entries(works)) {
    await redis.flushall();
    try {
      await work(redis);
    } catch (error) {
      error.message = `${name}: ${error.message}`;
      throw error;
    }
  }
  await redis.flushall();
  await redis.quit();
  console.log(`ioredis ${version}, RESP${protocol}: ok`);
}

async function main() {
  for (protocol of [2, 3]) await workAll();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});

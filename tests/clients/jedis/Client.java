import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;

import redis.clients.jedis.AbstractTransaction;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.GeoCoordinate;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.StreamEntryID;
import redis.clients.jedis.args.ExpiryOption;
import redis.clients.jedis.args.GeoUnit;
import redis.clients.jedis.args.ListDirection;
import redis.clients.jedis.args.ListPosition;
import redis.clients.jedis.args.SortedSetOption;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.GeoSearchParam;
import redis.clients.jedis.params.LPosParams;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.params.SortingParams;
import redis.clients.jedis.params.XAddParams;
import redis.clients.jedis.params.XAutoClaimParams;
import redis.clients.jedis.params.XPendingParams;
import redis.clients.jedis.params.XReadGroupParams;
import redis.clients.jedis.params.XReadParams;
import redis.clients.jedis.params.ZAddParams;
import redis.clients.jedis.params.ZParams;
import redis.clients.jedis.params.ZRangeParams;
import redis.clients.jedis.resps.ScanResult;
import redis.clients.jedis.resps.StreamEntry;
import redis.clients.jedis.resps.Tuple;

/** Ordinary work with jedis, in RESP2 and RESP3: `java Client.java HOST PORT`. It empties the server first. */
public class Client {
  /** Enough elements that a collection is a tree of leaves. */
  static final int MANY = 5000;

  static HostAndPort server;
  static RedisProtocol protocol;

  public static void main(String[] args) throws Exception {
    server = new HostAndPort(args[0], Integer.parseInt(args[1]));
    Map<String, Consumer<RedisClient>> works = new LinkedHashMap<>();
    works.put("strings", Client::strings);
    works.put("keys", Client::keys);
    works.put("lists", Client::lists);
    works.put("hashes", Client::hashes);
    works.put("expiring fields", Client::expiringFields);
    works.put("sets", Client::sets);
    works.put("sorted sets", Client::sortedSets);
    works.put("streams", Client::streams);
    works.put("groups of a stream", Client::groups);
    works.put("waiting", Client::waiting);
    works.put("places", Client::places);
    works.put("counting distinct values", Client::hyperLogLogs);
    works.put("sorting", Client::sorting);
    works.put("pipelines", Client::pipelines);
    works.put("transactions", Client::transactions);
    works.put("publish and subscribe", Client::publishAndSubscribe);
    works.put("errors", Client::errors);
    for (RedisProtocol version : List.of(RedisProtocol.RESP2, RedisProtocol.RESP3)) {
      protocol = version;
      try (RedisClient client = connect()) {
        for (Map.Entry<String, Consumer<RedisClient>> work : works.entrySet()) {
          client.flushAll();
          try {
            work.getValue().accept(client);
          } catch (Throwable error) {
            throw new AssertionError(work.getKey() + ": " + error.getMessage(), error);
          }
        }
        client.flushAll();
      }
      System.out.println("jedis, " + version + ": ok");
    }
  }

  static RedisClient connect() {
    return RedisClient.builder()
        .hostAndPort(server)
        .clientConfig(DefaultJedisClientConfig.builder()
            .protocol(protocol).clientName("jedis-test").socketTimeoutMillis(60_000).build())
        .build();
  }

  static void strings(RedisClient client) {
    same(client.ping(), "PONG");
    same(client.set("s", "value"), "OK");
    same(client.get("s"), "value");
    same(client.get("missing"), null);
    same(client.append("s", "!"), 6L);
    same(client.getrange("s", 1, -2), "alue");
    same(client.set("s", "2", SetParams.setParams().nx()), null);
    same(client.set("s", "2", SetParams.setParams().xx().ex(100)), "OK");
    same(client.getDel("s"), "2");
    same(client.mset("a", "1", "b", "2"), "OK");
    same(client.mget("a", "missing", "b"), listOf("1", null, "2"));
    same(client.incrBy("a", 41), 42L);
    same(client.incrByFloat("a", 0.5), 42.5);
    same(client.setbit("bits", 7, true), false);
    same(client.bitcount("bits"), 1L);
    byte[] binary = {0, 13, 10, -1, 36};
    client.set("binary".getBytes(), binary);
    same(List.of(client.get("binary".getBytes()).length, (int) client.get("binary".getBytes())[3]), List.of(5, -1));
  }

  static void keys(RedisClient client) {
    client.set("string", "1");
    client.rpush("list", "a");
    client.sadd("set", "a");
    client.hset("hash", "field", "value");
    client.zadd("sorted", 1, "a");
    client.xadd("stream", StreamEntryID.NEW_ENTRY, Map.of("field", "value"));
    Map<String, String> types = Map.of("string", "string", "list", "list", "set", "set", "hash", "hash",
        "sorted", "zset", "stream", "stream");
    types.forEach((key, type) -> {
      same(client.type(key), type);
      same(scan(client, ScanParams.SCAN_POINTER_START, new ScanParams().count(100), type), Set.of(key));
      same(client.copy(key, "copy", true), true);
      same(client.type("copy"), type);
      same(client.rename("copy", "renamed"), "OK");
      same(client.expire("renamed", 100L), 1L);
      same(client.ttl("renamed") > 90, true);
      same(client.persist("renamed"), 1L);
      same(client.memoryUsage(key) > 0, true);
      same(client.unlink("renamed"), 1L);
    });
    same(client.objectEncoding("string"), "int");
    same(client.exists("list", "set", "missing"), 2L);
    same(client.del("list", "set", "hash", "sorted", "stream", "string"), 6L);
    same(client.dbSize(), 0L);
    List<String> pairs = new ArrayList<>();
    numbers("key:").forEach(key -> pairs.addAll(List.of(key, "v")));
    client.mset(pairs.toArray(new String[0]));
    same(scan(client, ScanParams.SCAN_POINTER_START, new ScanParams().match("key:*").count(100), "string"),
        new HashSet<>(numbers("key:")));
    client.set("soon", "v", SetParams.setParams().px(1));
    until(() -> !client.exists("soon"));
  }

  static Set<String> scan(RedisClient client, String start, ScanParams params, String type) {
    return walk(cursor -> client.scan(cursor, params, type)).collect(Collectors.toSet());
  }

  static void lists(RedisClient client) {
    same(client.rpush("l", "b", "c", "d"), 3L);
    same(client.lpush("l", "a"), 4L);
    same(client.lrange("l", 0, -1), List.of("a", "b", "c", "d"));
    same(client.linsert("l", ListPosition.AFTER, "b", "b"), 5L);
    same(client.lpos("l", "b"), 1L);
    same(client.lpos("l", "b", LPosParams.lPosParams().rank(-1), 0), List.of(2L, 1L));
    same(client.lset("l", 0, "A"), "OK");
    same(client.lindex("l", -5), "A");
    same(client.lrem("l", -1, "b"), 1L);
    same(client.lpop("l"), "A");
    same(client.rpop("l", 2), List.of("d", "c"));
    same(client.lmove("l", "other", ListDirection.LEFT, ListDirection.RIGHT), "b");
    same(client.exists("l"), false);
    client.rpush("other", "c", "d");
    same(client.lmpop(ListDirection.RIGHT, 2, "l", "other").getValue(), List.of("d", "c"));
    same(client.lpushx("missing", "x"), 0L);
    List<String> numbers = numbers("element ");
    same(client.rpush("large", numbers.toArray(new String[0])), (long) MANY);
    same(client.lrange("large", 2000, 2009), numbers.subList(2000, 2010));
    same(client.ltrim("large", 1, -2), "OK");
    same(client.llen("large"), MANY - 2L);
    same(client.lrange("large", 0, -1), numbers.subList(1, MANY - 1));
  }

  static void hashes(RedisClient client) {
    same(client.hset("h", Map.of("a", "1", "b", "2")), 2L);
    same(client.hset("h", "a", "3"), 0L);
    same(client.hget("h", "a"), "3");
    same(client.hget("h", "missing"), null);
    same(client.hgetAll("h"), Map.of("a", "3", "b", "2"));
    same(client.hmget("h", "b", "missing"), listOf("2", null));
    same(client.hincrBy("h", "a", 39), 42L);
    same(client.hincrByFloat("h", "a", 0.5), 42.5);
    same(client.hsetnx("h", "b", "9"), 0L);
    same(client.hexists("h", "b"), true);
    same(client.hstrlen("h", "a"), 4L);
    same(client.hkeys("h"), Set.of("a", "b"));
    same(new HashSet<>(client.hvals("h")), Set.of("42.5", "2"));
    same(Set.of("a", "b").contains(client.hrandfield("h")), true);
    same(new HashSet<>(client.hrandfield("h", 10)), Set.of("a", "b"));
    same(client.hrandfieldWithValues("h", 10).size(), 2);
    same(client.hdel("h", "a", "b", "c"), 2L);
    same(client.exists("h"), false);
    Map<String, String> large = numbers("field ").stream().collect(Collectors.toMap(field -> field, field -> field));
    same(client.hset("large", large), (long) MANY);
    same(client.hgetAll("large"), large);
    same(walk(cursor -> client.hscan("large", cursor, new ScanParams().count(100)))
        .map(Map.Entry::getKey).collect(Collectors.toSet()), large.keySet());
  }

  static void expiringFields(RedisClient client) {
    client.hset("h", Map.of("a", "1", "b", "2", "c", "3"));
    same(client.hexpire("h", 1000, "a", "b", "missing"), List.of(1L, 1L, -2L));
    same(client.hexpire("h", 10, ExpiryOption.GT, "a"), List.of(0L));
    long left = client.httl("h", "a").get(0);
    same(left > 900 && left <= 1000, true);
    same(client.hpersist("h", "a", "c"), List.of(1L, -1L));
    same(client.httl("h", "a", "missing"), List.of(-1L, -2L));
    same(client.hpexpire("h", 1, "b"), List.of(1L));
    until(() -> !client.hexists("h", "b"));
    until(() -> client.hlen("h") == 2);
    same(client.hgetAll("h"), Map.of("a", "1", "c", "3"));
    same(client.hgetdel("h", "a", "missing"), listOf("1", null));
  }

  static void sets(RedisClient client) {
    same(client.sadd("s", "a", "b", "c", "a"), 3L);
    same(client.smembers("s"), Set.of("a", "b", "c"));
    same(client.scard("s"), 3L);
    same(client.sismember("s", "a"), true);
    same(client.smismember("s", "a", "z"), List.of(true, false));
    client.sadd("t", "b", "c", "d");
    same(client.sinter("s", "t"), Set.of("b", "c"));
    same(client.sunion("s", "t"), Set.of("a", "b", "c", "d"));
    same(client.sdiff("s", "t"), Set.of("a"));
    same(client.sintercard("s", "t"), 2L);
    same(client.sinterstore("stored", "s", "t"), 2L);
    same(client.sunionstore("stored", "s", "t"), 4L);
    same(client.sdiffstore("stored", "s", "t"), 1L);
    same(client.smove("s", "t", "a"), 1L);
    same(client.srem("s", "b"), 1L);
    same(client.srandmember("s"), "c");
    same(client.spop("s"), "c");
    same(client.spop("t", 10), Set.of("a", "b", "c", "d"));
    same(client.exists("s", "t"), 0L);
    List<String> numbers = numbers("member ");
    same(client.sadd("large", numbers.toArray(new String[0])), (long) MANY);
    same(new HashSet<>(client.srandmember("large", 100)).size(), 100);
    same(walk(cursor -> client.sscan("large", cursor, new ScanParams().count(100)))
        .collect(Collectors.toSet()), new HashSet<>(numbers));
  }

  static void sortedSets(RedisClient client) {
    same(client.zadd("z", Map.of("a", 1.0, "b", 2.0, "c", 3.5)), 3L);
    same(client.zadd("z", 9, "a", ZAddParams.zAddParams().nx()), 0L);
    same(client.zadd("z", 1.5, "a", ZAddParams.zAddParams().gt().ch()), 1L);
    same(client.zaddIncr("z", 1, "a", ZAddParams.zAddParams()), 2.5);
    same(client.zscore("z", "c"), 3.5);
    same(client.zscore("z", "missing"), null);
    same(client.zmscore("z", "a", "missing"), listOf(2.5, null));
    same(client.zrange("z", 0, -1), List.of("b", "a", "c"));
    same(client.zrangeWithScores("z", -1, -1), List.of(new Tuple("c", 3.5)));
    same(client.zrange("z", ZRangeParams.zrangeByScoreParams(4, 2).rev().limit(1, 1)), List.of("a"));
    same(client.zrange("z", ZRangeParams.zrangeByScoreParams(2.5, 4)), List.of("a", "c"));
    same(client.zrank("z", "a"), 1L);
    same(client.zrevrank("z", "a"), 1L);
    same(client.zrankWithScore("z", "c").getValue(), 3.5);
    same(client.zcount("z", 2, 3), 2L);
    same(client.zincrby("z", 10, "b"), 12.0);
    client.zadd("other", Map.of("a", 1.0, "d", 4.0));
    same(client.zunionstore("stored", new ZParams().weights(1, 10).aggregate(ZParams.Aggregate.MAX), "z", "other"), 4L);
    same(client.zscore("stored", "a"), 10.0);
    same(client.zinter(new ZParams(), "z", "other"), List.of("a"));
    same(client.zdiff("z", "other"), List.of("c", "b"));
    same(client.zrangestore("stored", "z", ZRangeParams.zrangeParams(0, 1)), 2L);
    same(client.zpopmin("z"), new Tuple("a", 2.5));
    same(client.zpopmax("z"), new Tuple("b", 12.0));
    same(client.zmpop(SortedSetOption.MAX, 5, "z", "other").getValue(), List.of(new Tuple("c", 3.5)));
    same(client.exists("z"), false);
    client.zadd("lex", Map.of("a", 0.0, "b", 0.0, "c", 0.0));
    same(client.zrange("lex", ZRangeParams.zrangeByLexParams("[b", "+")), List.of("b", "c"));
    same(client.zlexcount("lex", "-", "(c"), 2L);
    same(client.zremrangeByLex("lex", "[a", "[a"), 1L);
    same(client.zrandmember("lex", 5).size(), 2);
    Map<String, Double> large = IntStream.range(0, MANY).boxed()
        .collect(Collectors.toMap(number -> "member " + number, number -> number / 2.0));
    same(client.zadd("large", large), (long) MANY);
    same(client.zrank("large", "member 4321"), 4321L);
    same(client.zrange("large", 1000, 1001), List.of("member 1000", "member 1001"));
    same(walk(cursor -> client.zscan("large", cursor, new ScanParams().count(100)))
        .collect(Collectors.toMap(Tuple::getElement, Tuple::getScore, (one, same) -> one)), large);
    same(client.zremrangeByRank("large", 0, 99), 100L);
    same(client.zremrangeByScore("large", 50, 59.5), 20L);
    same(client.zcard("large"), MANY - 120L);
  }

  static void streams(RedisClient client) {
    StreamEntryID first = client.xadd("x", new StreamEntryID(1, 1), Map.of("field", "1"));
    same(first, new StreamEntryID(1, 1));
    client.xadd("x", XAddParams.xAddParams().id("1-*"), Map.of("field", "2"));
    client.xadd("x", StreamEntryID.NEW_ENTRY, Map.of("a", "3", "b", "4"));
    same(client.xlen("x"), 3L);
    List<StreamEntry> entries = client.xrange("x", "-", "+");
    same(entries.get(1).getID(), new StreamEntryID(1, 2));
    same(entries.get(2).getFields(), Map.of("a", "3", "b", "4"));
    same(client.xrevrange("x", "+", "-", 1).get(0).getID(), entries.get(2).getID());
    same(client.xrange("x", "(1-1", "1-9").size(), 1);
    same(client.xread(XReadParams.xReadParams().count(1), Map.of("x", first)).get(0).getValue().get(0).getFields(),
        Map.of("field", "2"));
    same(client.xread(XReadParams.xReadParams().block(5), Map.of("x", StreamEntryID.XREAD_NEW_ENTRY)), null);
    same(client.xinfoStream("x").getLength(), 3L);
    same(client.xdel("x", first, new StreamEntryID(9, 9)), 1L);
    same(client.xtrim("x", 1, false), 1L);
    Pipeline pipeline = client.pipelined();
    for (int number = 0; number < MANY; number++) {
      pipeline.xadd("large", new StreamEntryID(1, number + 1), Map.of("number", "" + number));
    }
    pipeline.close();
    same(client.xlen("large"), (long) MANY);
    same(client.xrange("large", "1-3000", "+", 1).get(0).getFields(), Map.of("number", "2999"));
    same(client.xtrim("large", 1000, true) <= MANY - 1000L, true);
  }

  static void groups(RedisClient client) {
    same(client.xgroupCreate("x", "group", new StreamEntryID(), true), "OK");
    for (int number = 1; number <= 4; number++) {
      client.xadd("x", new StreamEntryID(1, number), Map.of("number", "" + number));
    }
    List<StreamEntry> one = readNew(client, "one", 3);
    same(one.stream().map(entry -> entry.getFields().get("number")).toList(), List.of("1", "2", "3"));
    same(readNew(client, "two", 9).get(0).getID(), new StreamEntryID(1, 4));
    same(client.xreadGroup("group", "two", XReadGroupParams.xReadGroupParams().count(9),
        Map.of("x", StreamEntryID.XREADGROUP_UNDELIVERED_ENTRY)), null);
    same(client.xpending("x", "group").getTotal(), 4L);
    same(client.xack("x", "group", new StreamEntryID(1, 1)), 1L);
    same(client.xpending("x", "group", XPendingParams.xPendingParams("-", "+", 10).consumer("one")).size(), 2);
    same(client.xautoclaim("x", "group", "two", 0, new StreamEntryID(), XAutoClaimParams.xAutoClaimParams())
        .getValue().size(), 3);
    same(client.xpending("x", "group").getConsumerMessageCount(), Map.of("two", 3L));
    same(client.xinfoGroups("x").get(0).getPending(), 3L);
    same(client.xinfoConsumers2("x", "group").size(), 2);
    same(client.xack("x", "group", new StreamEntryID(1, 2), new StreamEntryID(1, 3), new StreamEntryID(1, 4)), 3L);
    same(client.xgroupDelConsumer("x", "group", "one"), 0L);
    same(client.xgroupSetID("x", "group", new StreamEntryID(1, 3)), "OK");
    same(readNew(client, "two", 9).size(), 1);
    same(client.xgroupDestroy("x", "group"), 1L);
  }

  static List<StreamEntry> readNew(RedisClient client, String consumer, int count) {
    return client.xreadGroup("group", consumer, XReadGroupParams.xReadGroupParams().count(count),
        Map.of("x", StreamEntryID.XREADGROUP_UNDELIVERED_ENTRY)).get(0).getValue();
  }

  /** Every request that waits: one that gives up, and one that another connection serves. */
  static void waiting(RedisClient client) {
    same(client.blpop(0.01, "missing"), null);
    same(client.blmove("missing", "to", ListDirection.LEFT, ListDirection.LEFT, 0.01), null);
    same(client.bzpopmin(0.01, "missing"), null);
    served(client, other -> other.blpop(60.0, "none", "q").getValue(), "one", () -> client.rpush("q", "one"));
    served(client, other -> other.brpop(60.0, "q").getValue(), "two", () -> client.lpush("q", "two"));
    served(client, other -> other.blmove("q", "to", ListDirection.LEFT, ListDirection.RIGHT, 60), "three",
        () -> client.rpush("q", "three"));
    same(client.lrange("to", 0, -1), List.of("three"));
    served(client, other -> other.blmpop(60, ListDirection.LEFT, 2, "none", "q").getValue(), List.of("four", "five"),
        () -> client.rpush("q", "four", "five"));
    served(client, other -> other.bzpopmax(60, "z").getValue(), new Tuple("b", 2.0),
        () -> client.zadd("z", Map.of("a", 1.0, "b", 2.0)));
    client.del("z");
    served(client, other -> other.bzmpop(60, SortedSetOption.MIN, "none", "z").getValue(),
        List.of(new Tuple("c", 3.0)), () -> client.zadd("z", 3, "c"));
    served(client, other -> other.xread(XReadParams.xReadParams().block(60_000),
            Map.of("x", StreamEntryID.XREAD_NEW_ENTRY)).get(0).getValue().get(0).getFields(),
        Map.of("number", "1"), () -> client.xadd("x", StreamEntryID.NEW_ENTRY, Map.of("number", "1")));
    client.xgroupCreate("x", "group", StreamEntryID.XGROUP_LAST_ENTRY, false);
    served(client, other -> other.xreadGroup("group", "one", XReadGroupParams.xReadGroupParams().block(60_000),
            Map.of("x", StreamEntryID.XREADGROUP_UNDELIVERED_ENTRY)).get(0).getValue().get(0).getFields(),
        Map.of("number", "2"), () -> client.xadd("x", StreamEntryID.NEW_ENTRY, Map.of("number", "2")));
  }

  /** Runs what waits on a connection of its own, and what serves it once it waits. */
  static <T> void served(RedisClient client, Function<RedisClient, T> waiter, T expected, Runnable server) {
    CompletableFuture<T> reply = CompletableFuture.supplyAsync(() -> {
      try (RedisClient other = connect()) {
        return waiter.apply(other);
      }
    });
    until(() -> client.info("clients").contains("blocked_clients:1") || reply.isDone());
    server.run();
    same(attempt(() -> reply.get(1, TimeUnit.MINUTES)), expected);
  }

  static void places(RedisClient client) {
    same(client.geoadd("g", Map.of("Palermo", new GeoCoordinate(13.361389, 38.115556),
        "Catania", new GeoCoordinate(15.087269, 37.502669))), 2L);
    same(client.geoadd("g", 2.3522, 48.8566, "Paris"), 1L);
    same(Math.round(client.geodist("g", "Palermo", "Catania", GeoUnit.KM)), 166L);
    same(client.geohash("g", "Palermo", "missing"), listOf("sqc8b49rny0", null));
    same(Math.abs(client.geopos("g", "Paris").get(0).getLatitude() - 48.8566) < 1e-4, true);
    same(client.geosearch("g", new GeoSearchParam().fromLonLat(15, 37).byRadius(200, GeoUnit.KM).asc())
        .stream().map(place -> place.getMemberByString()).toList(), List.of("Catania", "Palermo"));
    same(client.geosearch("g", new GeoSearchParam().fromMember("Paris").byBox(10, 10, GeoUnit.KM).withDist())
        .get(0).getDistance(), 0.0);
    same(client.geosearchStore("near", "g", new GeoSearchParam().fromMember("Palermo").byRadius(1, GeoUnit.KM)), 1L);
    same(client.zrange("near", 0, -1), List.of("Palermo"));
  }

  static void hyperLogLogs(RedisClient client) {
    same(client.pfadd("p", "a", "b", "c"), 1L);
    same(client.pfadd("p", "a"), 0L);
    same(client.pfcount("p"), 3L);
    client.pfadd("q", numbers("value ").toArray(new String[0]));
    same(client.pfmerge("both", "p", "q"), "OK");
    same(Math.abs(client.pfcount("both") - MANY - 3.0) < MANY * 0.03, true);
    same(client.pfcount("p", "q"), client.pfcount("both"));
  }

  static void sorting(RedisClient client) {
    client.rpush("l", "3", "1", "2");
    client.mset("weight_1", "30", "weight_2", "20", "weight_3", "10", "name_1", "one", "name_2", "two", "name_3", "three");
    same(client.sort("l"), List.of("1", "2", "3"));
    same(client.sort("l", new SortingParams().by("weight_*").get("name_*").limit(0, 2)), List.of("three", "two"));
    same(client.sort("l", new SortingParams().desc().alpha(), "sorted"), 3L);
    same(client.lrange("sorted", 0, -1), List.of("3", "2", "1"));
  }

  static void pipelines(RedisClient client) {
    List<Response<String>> read = new ArrayList<>();
    try (Pipeline pipeline = client.pipelined()) {
      for (int number = 0; number < MANY; number++) {
        pipeline.hset("h" + number % 10, "field " + number, "" + number);
        read.add(pipeline.hget("h" + number % 10, "field " + number));
      }
      pipeline.sync();
    }
    for (int number = 0; number < MANY; number++) {
      same(read.get(number).get(), "" + number);
    }
  }

  static void transactions(RedisClient client) {
    try (AbstractTransaction transaction = client.multi()) {
      transaction.rpush("l", "a");
      transaction.hset("h", "field", "value");
      transaction.sadd("s", "a", "b");
      Response<Double> score = transaction.zincrby("z", 1.5, "a");
      transaction.xadd("x", new StreamEntryID(1, 1), Map.of("field", "value"));
      same(transaction.exec().size(), 5);
      same(score.get(), 1.5);
    }
    try (AbstractTransaction transaction = client.transaction(false)) {
      transaction.watch("h");
      transaction.multi();
      client.hset("h", "field", "changed");
      transaction.hset("h", "field", "lost");
      same(transaction.exec(), null);
    }
    same(client.hget("h", "field"), "changed");
    try (AbstractTransaction transaction = client.multi()) {
      transaction.lpop("h");
      transaction.sadd("s", "c");
      List<Object> replies = transaction.exec();
      same(replies.get(0) instanceof JedisDataException, true);
      same(replies.get(1), 1L);
    }
  }

  static void publishAndSubscribe(RedisClient client) {
    LinkedBlockingQueue<String> heard = new LinkedBlockingQueue<>();
    JedisPubSub listener = new JedisPubSub() {
      @Override
      public void onMessage(String channel, String message) {
        heard.add(channel + " " + message);
      }

      @Override
      public void onPMessage(String pattern, String channel, String message) {
        heard.add(pattern + " " + channel + " " + message);
      }

      @Override
      public void onSubscribe(String channel, int count) {
        heard.add("subscribed " + channel);
      }

      @Override
      public void onPSubscribe(String pattern, int count) {
        heard.add("subscribed " + pattern);
      }
    };
    CompletableFuture<Void> subscription = CompletableFuture.runAsync(() -> {
      try (RedisClient other = connect()) {
        other.subscribe(listener, "news", "weather");
      }
    });
    same(next(heard), "subscribed news");
    same(next(heard), "subscribed weather");
    attempt(() -> {
      listener.psubscribe("w*");
      return null;
    });
    same(next(heard), "subscribed w*");
    for (int number = 0; number < 500; number++) {
      same(client.publish("news", "" + number), 1L);
    }
    same(client.publish("weather", "rain"), 2L);
    for (int number = 0; number < 500; number++) {
      same(next(heard), "news " + number);
    }
    same(next(heard), "weather rain");
    same(next(heard), "w* weather rain");
    listener.unsubscribe();
    listener.punsubscribe();
    attempt(() -> subscription.get(1, TimeUnit.MINUTES));
    until(() -> client.publish("news", "nobody") == 0);
  }

  static String next(LinkedBlockingQueue<String> heard) {
    return attempt(() -> heard.poll(1, TimeUnit.MINUTES));
  }

  static void errors(RedisClient client) {
    client.set("string", "text");
    fails(() -> client.lpush("string", "a"), "WRONGTYPE");
    fails(() -> client.incr("string"), "not an integer or out of range");
    fails(() -> client.lset("missing", 0, "a"), "no such key");
    fails(() -> client.xgroupCreate("missing", "group", new StreamEntryID(), false), "key to exist");
    same(client.ping(), "PONG");
  }

  // What the works share.

  /** All that a cursor leads through. */
  static <T> Stream<T> walk(Function<String, ScanResult<T>> step) {
    List<T> all = new ArrayList<>();
    String cursor = ScanParams.SCAN_POINTER_START;
    do {
      ScanResult<T> result = step.apply(cursor);
      all.addAll(result.getResult());
      cursor = result.getCursor();
    } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
    return all.stream();
  }

  static List<String> numbers(String prefix) {
    return IntStream.range(0, MANY).mapToObj(number -> prefix + number).toList();
  }

  @SafeVarargs
  static <T> List<T> listOf(T... items) {
    return Arrays.asList(items);
  }

  static void same(Object value, Object expected) {
    if (!Objects.equals(value, expected)) {
      throw new AssertionError(value + ", expected " + expected);
    }
  }

  static void fails(Callable<?> action, String text) {
    try {
      action.call();
    } catch (JedisDataException error) {
      same(error.getMessage().contains(text) ? text : error.getMessage(), text);
      return;
    } catch (Exception error) {
      throw new AssertionError(error);
    }
    throw new AssertionError("no error; expected " + text);
  }

  static <T> T attempt(Callable<T> action) {
    try {
      return action.call();
    } catch (Exception error) {
      throw new AssertionError(error);
    }
  }

  /** Waits for what must come true by itself, such as expiry. */
  static void until(BooleanSupplier condition) {
    long deadline = System.nanoTime() + TimeUnit.MINUTES.toNanos(1);
    while (!condition.getAsBoolean()) {
      same(System.nanoTime() < deadline, true);
    }
  }
}

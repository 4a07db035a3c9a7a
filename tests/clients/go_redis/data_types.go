package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Enough elements that a collection is a tree of leaves.
const many = 5000

// dataTypes is ordinary work with every type of value but strings.
var dataTypes = []func(*redis.Client){
	types, lists, hashes, expiringFields, sets, sortedSets, streams, groups, waiting, places,
	hyperLogLogs, sorting, transactionsOfTypes,
}

func numbers(prefix string) []any {
	names := make([]any, many)
	for number := range many {
		names[number] = prefix + strconv.Itoa(number)
	}
	return names
}

// sameStrings compares what has an order of its own; sameMembers what has none.
func sameStrings(found []string, expected ...string) {
	equal(strings.Join(found, " "), strings.Join(expected, " "))
}

func sameMembers(found []string, expected ...string) {
	sameStrings(slices.Sorted(slices.Values(found)), expected...)
}

func types(client *redis.Client) {
	must(client.RPush(cx, "list", "a").Err())
	must(client.SAdd(cx, "set", "a").Err())
	must(client.HSet(cx, "hash", "field", "value").Err())
	must(client.ZAdd(cx, "zset", redis.Z{Score: 1, Member: "a"}).Err())
	must(client.XAdd(cx, &redis.XAddArgs{Stream: "stream", Values: []any{"field", "value"}}).Err())
	names := []string{"list", "set", "hash", "zset", "stream"}
	for _, name := range names {
		equal(client.Type(cx, name).Val(), name)
		found, _, err := client.ScanType(cx, 0, "*", 1000, name).Result()
		must(err)
		sameStrings(found, name)
		equal(client.Copy(cx, name, "copy", 0, true).Val(), int64(1))
		equal(client.Rename(cx, "copy", "renamed").Val(), "OK")
		equal(client.Expire(cx, "renamed", time.Hour).Val(), true)
		equal(client.TTL(cx, "renamed").Val() > time.Minute, true)
		equal(client.Type(cx, "renamed").Val(), name)
		equal(client.Unlink(cx, "renamed").Val(), int64(1))
	}
	equal(client.Del(cx, names...).Val(), int64(5))
}

func lists(client *redis.Client) {
	equal(client.RPush(cx, "l", "b", "c", "d").Val(), int64(3))
	equal(client.LPush(cx, "l", "a").Val(), int64(4))
	sameStrings(client.LRange(cx, "l", 0, -1).Val(), "a", "b", "c", "d")
	equal(client.LInsertAfter(cx, "l", "b", "b").Val(), int64(5))
	equal(fmt.Sprint(client.LPosCount(cx, "l", "b", 0, redis.LPosArgs{Rank: -1}).Val()), "[2 1]")
	equal(client.LSet(cx, "l", 0, "A").Val(), "OK")
	equal(client.LIndex(cx, "l", -5).Val(), "A")
	equal(client.LRem(cx, "l", -1, "b").Val(), int64(1))
	equal(client.LPop(cx, "l").Val(), "A")
	sameStrings(client.RPopCount(cx, "l", 2).Val(), "d", "c")
	equal(client.LMove(cx, "l", "other", "LEFT", "RIGHT").Val(), "b")
	equal(client.Exists(cx, "l").Val(), int64(0))
	must(client.RPush(cx, "other", "c", "d").Err())
	key, popped, err := client.LMPop(cx, "RIGHT", 2, "l", "other").Result()
	must(err)
	equal(key, "other")
	sameStrings(popped, "d", "c")
	equal(client.RPush(cx, "large", numbers("element ")...).Val(), int64(many))
	sameStrings(client.LRange(cx, "large", 2000, 2001).Val(), "element 2000", "element 2001")
	equal(client.LTrim(cx, "large", 1, -2).Val(), "OK")
	found := client.LRange(cx, "large", 0, -1).Val()
	equal(len(found), many-2)
	for index, name := range numbers("element ")[1 : many-1] {
		equal(found[index], name.(string))
	}
}

func hashes(client *redis.Client) {
	equal(client.HSet(cx, "h", map[string]any{"a": 1, "b": 2}).Val(), int64(2))
	equal(client.HSet(cx, "h", "a", 3).Val(), int64(0))
	equal(client.HGet(cx, "h", "a").Val(), "3")
	equal(client.HGet(cx, "h", "missing").Err(), redis.Nil)
	equal(fmt.Sprint(client.HGetAll(cx, "h").Val()), "map[a:3 b:2]")
	equal(fmt.Sprint(client.HMGet(cx, "h", "b", "missing").Val()), "[2 <nil>]")
	equal(client.HIncrBy(cx, "h", "a", 39).Val(), int64(42))
	equal(client.HIncrByFloat(cx, "h", "a", 0.5).Val(), 42.5)
	equal(client.HSetNX(cx, "h", "b", 9).Val(), false)
	equal(client.HExists(cx, "h", "b").Val(), true)
	equal(client.HStrLen(cx, "h", "a").Val(), int64(4))
	sameMembers(client.HKeys(cx, "h").Val(), "a", "b")
	sameMembers(client.HVals(cx, "h").Val(), "2", "42.5")
	sameMembers(client.HRandField(cx, "h", 10).Val(), "a", "b")
	equal(len(client.HRandFieldWithValues(cx, "h", 10).Val()), 2)
	equal(client.HDel(cx, "h", "a", "b", "c").Val(), int64(2))
	large := map[string]any{}
	for index, name := range numbers("field ") {
		large[name.(string)] = index
	}
	equal(client.HSet(cx, "large", large).Val(), int64(many))
	equal(fmt.Sprint(client.HGetAll(cx, "large").Val()), fmt.Sprint(large))
	seen := map[string]string{}
	iterator := client.HScan(cx, "large", 0, "*", 100).Iterator()
	for iterator.Next(cx) {
		field := iterator.Val()
		iterator.Next(cx)
		seen[field] = iterator.Val()
	}
	must(iterator.Err())
	equal(fmt.Sprint(seen), fmt.Sprint(large))
}

func expiringFields(client *redis.Client) {
	must(client.HSet(cx, "h", "a", 1, "b", 2, "c", 3).Err())
	equal(fmt.Sprint(client.HExpire(cx, "h", 1000*time.Second, "a", "b", "missing").Val()), "[1 1 -2]")
	greater := redis.HExpireArgs{GT: true}
	equal(client.HExpireWithArgs(cx, "h", 10*time.Second, greater, "a").Val()[0], int64(0))
	left := client.HTTL(cx, "h", "a").Val()[0]
	equal(left > 900 && left <= 1000, true)
	equal(fmt.Sprint(client.HPersist(cx, "h", "a", "c").Val()), "[1 -1]")
	equal(client.HPExpire(cx, "h", time.Millisecond, "b").Val()[0], int64(1))
	until(func() bool { return client.HLen(cx, "h").Val() == 2 })
	equal(fmt.Sprint(client.HGetAll(cx, "h").Val()), "map[a:1 c:3]")
}

func sets(client *redis.Client) {
	equal(client.SAdd(cx, "s", "a", "b", "c", "a").Val(), int64(3))
	sameMembers(client.SMembers(cx, "s").Val(), "a", "b", "c")
	equal(client.SCard(cx, "s").Val(), int64(3))
	equal(client.SIsMember(cx, "s", "a").Val(), true)
	equal(fmt.Sprint(client.SMIsMember(cx, "s", "a", "z").Val()), "[true false]")
	must(client.SAdd(cx, "t", "b", "c", "d").Err())
	sameMembers(client.SInter(cx, "s", "t").Val(), "b", "c")
	sameMembers(client.SUnion(cx, "s", "t").Val(), "a", "b", "c", "d")
	sameMembers(client.SDiff(cx, "s", "t").Val(), "a")
	equal(client.SInterCard(cx, 0, "s", "t").Val(), int64(2))
	equal(client.SInterStore(cx, "stored", "s", "t").Val(), int64(2))
	equal(client.SUnionStore(cx, "stored", "s", "t").Val(), int64(4))
	equal(client.SDiffStore(cx, "stored", "s", "t").Val(), int64(1))
	equal(client.SMove(cx, "s", "t", "a").Val(), true)
	equal(client.SRem(cx, "s", "b").Val(), int64(1))
	equal(client.SRandMember(cx, "s").Val(), "c")
	equal(client.SPop(cx, "s").Val(), "c")
	sameMembers(client.SPopN(cx, "t", 10).Val(), "a", "b", "c", "d")
	equal(client.SAdd(cx, "large", numbers("member ")...).Val(), int64(many))
	equal(len(client.SRandMemberN(cx, "large", 100).Val()), 100)
	seen := map[string]bool{}
	iterator := client.SScan(cx, "large", 0, "member *", 100).Iterator()
	for iterator.Next(cx) {
		seen[iterator.Val()] = true
	}
	must(iterator.Err())
	equal(len(seen), many)
}

func sortedSets(client *redis.Client) {
	equal(client.ZAdd(cx, "z", scored("a", 1), scored("b", 2), scored("c", 3.5)).Val(), int64(3))
	equal(client.ZAddNX(cx, "z", scored("a", 9)).Val(), int64(0))
	greater := redis.ZAddArgs{GT: true, Ch: true, Members: []redis.Z{scored("a", 1.5)}}
	equal(client.ZAddArgs(cx, "z", greater).Val(), int64(1))
	equal(client.ZIncrBy(cx, "z", 1, "a").Val(), 2.5)
	equal(client.ZScore(cx, "z", "c").Val(), 3.5)
	equal(client.ZScore(cx, "z", "missing").Err(), redis.Nil)
	equal(fmt.Sprint(client.ZMScore(cx, "z", "a", "missing").Val()), "[2.5 0]")
	sameStrings(client.ZRange(cx, "z", 0, -1).Val(), "b", "a", "c")
	equal(fmt.Sprint(client.ZRangeWithScores(cx, "z", -1, -1).Val()), "[{3.5 c}]")
	backwards := redis.ZRangeArgs{Key: "z", Start: 4, Stop: 2, ByScore: true, Rev: true, Offset: 1, Count: 1}
	sameStrings(client.ZRangeArgs(cx, backwards).Val(), "a")
	sameStrings(client.ZRangeByScore(cx, "z", &redis.ZRangeBy{Min: "(2", Max: "+inf"}).Val(), "a", "c")
	equal(client.ZRank(cx, "z", "a").Val(), int64(1))
	equal(client.ZRevRank(cx, "z", "a").Val(), int64(1))
	equal(client.ZRankWithScore(cx, "z", "c").Val(), redis.RankScore{Rank: 2, Score: 3.5})
	equal(client.ZCount(cx, "z", "2", "3").Val(), int64(2))
	equal(client.ZIncrBy(cx, "z", 10, "b").Val(), 12.0)
	must(client.ZAdd(cx, "other", scored("a", 1), scored("d", 4)).Err())
	both := redis.ZStore{Keys: []string{"z", "other"}, Weights: []float64{1, 10}, Aggregate: "MAX"}
	equal(client.ZUnionStore(cx, "stored", &both).Val(), int64(4))
	equal(client.ZScore(cx, "stored", "a").Val(), 10.0)
	sameStrings(client.ZInter(cx, &both).Val(), "a")
	sameStrings(client.ZDiff(cx, "z", "other").Val(), "c", "b")
	equal(fmt.Sprint(client.ZPopMin(cx, "z").Val()), "[{2.5 a}]")
	equal(fmt.Sprint(client.ZPopMax(cx, "z").Val()), "[{12 b}]")
	key, popped, err := client.ZMPop(cx, "MAX", 5, "z", "other").Result()
	must(err)
	equal(key+fmt.Sprint(popped), "z[{3.5 c}]")
	must(client.ZAdd(cx, "lex", scored("a", 0), scored("b", 0), scored("c", 0)).Err())
	sameStrings(client.ZRangeByLex(cx, "lex", &redis.ZRangeBy{Min: "[b", Max: "+"}).Val(), "b", "c")
	equal(client.ZLexCount(cx, "lex", "-", "(c").Val(), int64(2))
	equal(client.ZRemRangeByLex(cx, "lex", "[a", "[a").Val(), int64(1))
	equal(len(client.ZRandMember(cx, "lex", 5).Val()), 2)
	largeSortedSet(client)
}

func largeSortedSet(client *redis.Client) {
	members := make([]redis.Z, many)
	for index, name := range numbers("member ") {
		members[index] = scored(name.(string), float64(index)/2)
	}
	equal(client.ZAdd(cx, "large", members...).Val(), int64(many))
	equal(client.ZRank(cx, "large", "member 4321").Val(), int64(4321))
	sameStrings(client.ZRange(cx, "large", 1000, 1001).Val(), "member 1000", "member 1001")
	seen := map[string]string{}
	iterator := client.ZScan(cx, "large", 0, "", 100).Iterator()
	for iterator.Next(cx) {
		member := iterator.Val()
		iterator.Next(cx)
		seen[member] = iterator.Val()
	}
	must(iterator.Err())
	equal(len(seen), many)
	equal(seen["member 4321"], "2160.5")
	equal(client.ZRemRangeByRank(cx, "large", 0, 99).Val(), int64(100))
	equal(client.ZRemRangeByScore(cx, "large", "50", "59.5").Val(), int64(20))
	equal(client.ZCard(cx, "large").Val(), int64(many-120))
}

func scored(member string, score float64) redis.Z {
	return redis.Z{Score: score, Member: member}
}

func add(client *redis.Client, id string, values ...any) string {
	id, err := client.XAdd(cx, &redis.XAddArgs{Stream: "x", ID: id, Values: values}).Result()
	must(err)
	return id
}

func streams(client *redis.Client) {
	equal(add(client, "1-1", "field", 1), "1-1")
	equal(add(client, "1-*", "field", 2), "1-2")
	last := add(client, "*", "a", 3, "b", 4)
	equal(client.XLen(cx, "x").Val(), int64(3))
	sameIDs(client.XRange(cx, "x", "-", "+").Val(), "1-1", "1-2", last)
	equal(fmt.Sprint(client.XRange(cx, "x", last, last).Val()[0].Values), "map[a:3 b:4]")
	sameIDs(client.XRevRangeN(cx, "x", "+", "-", 1).Val(), last)
	sameIDs(client.XRange(cx, "x", "(1-1", "1-9").Val(), "1-2")
	read := client.XRead(cx, &redis.XReadArgs{Streams: []string{"x", "1-1"}, Count: 1, Block: -1})
	sameIDs(read.Val()[0].Messages, "1-2")
	late := client.XRead(cx, &redis.XReadArgs{Streams: []string{"x", "$"}, Block: 5 * time.Millisecond})
	equal(late.Err(), redis.Nil)
	equal(client.XInfoStream(cx, "x").Val().Length, int64(3))
	equal(client.XDel(cx, "x", "1-1", "9-9").Val(), int64(1))
	equal(client.XTrimMaxLen(cx, "x", 1).Val(), int64(1))
	_, err := client.Pipelined(cx, func(pipe redis.Pipeliner) error {
		for index := range many {
			id := "1-" + strconv.Itoa(index+1)
			pipe.XAdd(cx, &redis.XAddArgs{Stream: "large", ID: id, Values: []any{"number", index}})
		}
		return nil
	})
	must(err)
	equal(client.XLen(cx, "large").Val(), int64(many))
	found := client.XRangeN(cx, "large", "1-3000", "+", 1).Val()
	sameIDs(found, "1-3000")
	equal(found[0].Values["number"], any("2999"))
	equal(client.XTrimMaxLenApprox(cx, "large", 1000, 0).Val() <= many-1000, true)
}

func sameIDs(messages []redis.XMessage, expected ...string) {
	found := make([]string, len(messages))
	for index, message := range messages {
		found[index] = message.ID
	}
	sameStrings(found, expected...)
}

func groups(client *redis.Client) {
	equal(client.XGroupCreateMkStream(cx, "x", "group", "0").Val(), "OK")
	for number := range 4 {
		add(client, "1-"+strconv.Itoa(number+1), "number", number)
	}
	readNew := func(consumer string, count int64) []redis.XMessage {
		streams, err := client.XReadGroup(cx, &redis.XReadGroupArgs{
			Group: "group", Consumer: consumer, Streams: []string{"x", ">"}, Count: count, Block: -1,
		}).Result()
		if err == redis.Nil {
			return nil
		}
		must(err)
		return streams[0].Messages
	}
	sameIDs(readNew("one", 3), "1-1", "1-2", "1-3")
	sameIDs(readNew("two", 9), "1-4")
	sameIDs(readNew("two", 9))
	equal(client.XPending(cx, "x", "group").Val().Count, int64(4))
	equal(client.XAck(cx, "x", "group", "1-1").Val(), int64(1))
	pending := redis.XPendingExtArgs{Stream: "x", Group: "group", Start: "-", End: "+", Count: 10, Consumer: "one"}
	equal(len(client.XPendingExt(cx, &pending).Val()), 2)
	claim := redis.XClaimArgs{Stream: "x", Group: "group", Consumer: "two", Messages: []string{"1-2"}}
	sameIDs(client.XClaim(cx, &claim).Val(), "1-2")
	rest, _, err := client.XAutoClaim(cx, &redis.XAutoClaimArgs{
		Stream: "x", Group: "group", Consumer: "two", Start: "0",
	}).Result()
	must(err)
	sameIDs(rest, "1-2", "1-3", "1-4")
	equal(client.XInfoGroups(cx, "x").Val()[0].Pending, int64(3))
	equal(len(client.XInfoConsumers(cx, "x", "group").Val()), 2)
	equal(client.XAck(cx, "x", "group", "1-2", "1-3", "1-4").Val(), int64(3))
	equal(client.XGroupDelConsumer(cx, "x", "group", "one").Val(), int64(0))
	equal(client.XGroupSetID(cx, "x", "group", "1-3").Val(), "OK")
	sameIDs(readNew("two", 9), "1-4")
	equal(client.XGroupDestroy(cx, "x", "group").Val(), int64(1))
}

// waiting has every request that waits: one that gives up, and one that another connection serves.
func waiting(client *redis.Client) {
	// The library asks for whole seconds here, so a list that is never filled is waited for by BLMOVE.
	equal(client.BLMove(cx, "missing", "to", "LEFT", "LEFT", time.Second).Err(), redis.Nil)
	served := func(expected string, wait func() (any, error), serve func() error) {
		reply := make(chan any)
		go func() {
			value, err := wait()
			must(err)
			reply <- value
		}()
		until(func() bool { return strings.Contains(client.Info(cx, "clients").Val(), "blocked_clients:1") })
		must(serve())
		equal(fmt.Sprint(<-reply), expected)
	}
	push := func(words ...any) func() error {
		return func() error { return client.RPush(cx, "q", words...).Err() }
	}
	served("[q one]", func() (any, error) {
		return client.BLPop(cx, time.Minute, "none", "q").Result()
	}, push("one"))
	served("[q two]", func() (any, error) {
		return client.BRPop(cx, time.Minute, "q").Result()
	}, push("two"))
	served("three", func() (any, error) {
		return client.BLMove(cx, "q", "to", "LEFT", "RIGHT", time.Minute).Result()
	}, push("three"))
	served("four", func() (any, error) {
		return client.BRPopLPush(cx, "q", "to", time.Minute).Result()
	}, push("four"))
	sameStrings(client.LRange(cx, "to", 0, -1).Val(), "four", "three")
	served("[five six]", func() (any, error) {
		_, popped, err := client.BLMPop(cx, time.Minute, "LEFT", 2, "none", "q").Result()
		return popped, err
	}, push("five", "six"))
	served("{{2 b} z}", func() (any, error) {
		popped, err := client.BZPopMax(cx, time.Minute, "z").Result()
		return *popped, err
	}, func() error { return client.ZAdd(cx, "z", scored("a", 1), scored("b", 2)).Err() })
	served("[{3 c}]", func() (any, error) {
		_, popped, err := client.BZMPop(cx, time.Minute, "MIN", 1, "none", "y").Result()
		return popped, err
	}, func() error { return client.ZAdd(cx, "y", scored("c", 3)).Err() })
	must(client.XGroupCreateMkStream(cx, "x", "group", "$").Err())
	served("[{x [{1-1 map[number:1] 0 0}]}]", func() (any, error) {
		return client.XRead(cx, &redis.XReadArgs{Streams: []string{"x", "$"}, Block: time.Minute}).Result()
	}, func() error { add(client, "1-1", "number", 1); return nil })
	must(client.XGroupSetID(cx, "x", "group", "$").Err())
	served("[{x [{1-2 map[number:2] 0 0}]}]", func() (any, error) {
		return client.XReadGroup(cx, &redis.XReadGroupArgs{
			Group: "group", Consumer: "one", Streams: []string{"x", ">"}, Block: time.Minute,
		}).Result()
	}, func() error { add(client, "1-2", "number", 2); return nil })
}

func places(client *redis.Client) {
	equal(client.GeoAdd(cx, "g",
		&redis.GeoLocation{Name: "Palermo", Longitude: 13.361389, Latitude: 38.115556},
		&redis.GeoLocation{Name: "Catania", Longitude: 15.087269, Latitude: 37.502669},
		&redis.GeoLocation{Name: "Paris", Longitude: 2.3522, Latitude: 48.8566},
	).Val(), int64(3))
	equal(math.Round(client.GeoDist(cx, "g", "Palermo", "Catania", "km").Val()), 166.0)
	sameStrings(client.GeoHash(cx, "g", "Palermo").Val(), "sqc8b49rny0")
	position := client.GeoPos(cx, "g", "Paris").Val()[0]
	equal(math.Abs(position.Latitude-48.8566) < 1e-4, true)
	near := redis.GeoSearchQuery{Longitude: 15, Latitude: 37, Radius: 200, RadiusUnit: "km", Sort: "ASC"}
	sameStrings(client.GeoSearch(cx, "g", &near).Val(), "Catania", "Palermo")
	box := redis.GeoSearchQuery{Member: "Paris", BoxWidth: 10, BoxHeight: 10, BoxUnit: "km"}
	found := client.GeoSearchLocation(cx, "g", &redis.GeoSearchLocationQuery{GeoSearchQuery: box, WithDist: true}).Val()
	equal(len(found), 1)
	equal(found[0].Dist, 0.0)
	stored := client.GeoSearchStore(cx, "g", "near", &redis.GeoSearchStoreQuery{GeoSearchQuery: near})
	equal(stored.Val(), int64(2))
	sameMembers(client.ZRange(cx, "near", 0, -1).Val(), "Catania", "Palermo")
}

func hyperLogLogs(client *redis.Client) {
	equal(client.PFAdd(cx, "p", "a", "b", "c").Val(), int64(1))
	equal(client.PFAdd(cx, "p", "a").Val(), int64(0))
	equal(client.PFCount(cx, "p").Val(), int64(3))
	must(client.PFAdd(cx, "q", numbers("value ")...).Err())
	equal(client.PFMerge(cx, "both", "p", "q").Val(), "OK")
	count := client.PFCount(cx, "both").Val()
	equal(math.Abs(float64(count-many-3)) < many*0.03, true)
	equal(client.PFCount(cx, "p", "q").Val(), count)
}

func sorting(client *redis.Client) {
	must(client.RPush(cx, "l", 3, 1, 2).Err())
	must(client.MSet(cx, "weight_1", 30, "weight_2", 20, "weight_3", 10, "name_2", "two", "name_3", "three").Err())
	sameStrings(client.Sort(cx, "l", &redis.Sort{}).Val(), "1", "2", "3")
	named := client.Sort(cx, "l", &redis.Sort{By: "weight_*", Get: []string{"name_*"}, Count: 2})
	sameStrings(named.Val(), "three", "two")
	equal(client.SortStore(cx, "l", "sorted", &redis.Sort{Order: "DESC", Alpha: true}).Val(), int64(3))
	sameStrings(client.LRange(cx, "sorted", 0, -1).Val(), "3", "2", "1")
}

func transactionsOfTypes(client *redis.Client) {
	replies, err := client.TxPipelined(cx, func(pipe redis.Pipeliner) error {
		pipe.RPush(cx, "l", "a")
		pipe.HSet(cx, "h", "field", "value")
		pipe.SAdd(cx, "s", "a", "b")
		pipe.ZIncrBy(cx, "z", 1.5, "a")
		pipe.XAdd(cx, &redis.XAddArgs{Stream: "x", ID: "1-1", Values: []any{"field", "value"}})
		return nil
	})
	must(err)
	equal(len(replies), 5)
	equal(replies[3].(*redis.FloatCmd).Val(), 1.5)
	err = client.Watch(cx, func(tx *redis.Tx) error {
		must(client.HSet(cx, "h", "field", "changed").Err())
		_, err := tx.TxPipelined(cx, func(pipe redis.Pipeliner) error {
			return pipe.HSet(cx, "h", "field", "lost").Err()
		})
		return err
	}, "h")
	equal(err, redis.TxFailedErr)
	equal(client.HGet(cx, "h", "field").Val(), "changed")
	var right *redis.IntCmd
	_, err = client.TxPipelined(cx, func(pipe redis.Pipeliner) error {
		pipe.LPop(cx, "h")
		right = pipe.SAdd(cx, "s", "c")
		return nil
	})
	contains(err, "WRONGTYPE")
	equal(right.Val(), int64(1))
}

// until waits for what must come true by itself, such as expiry.
func until(condition func() bool) {
	for deadline := time.Now().Add(time.Minute); !condition(); {
		if time.Now().After(deadline) {
			fail("it did not come true in a minute")
		}
	}
}

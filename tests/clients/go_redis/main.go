// Ordinary work with go-redis, in RESP2 and RESP3: `go run . HOST PORT`. It empties the server first.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	cx       = context.Background()
	protocol int
)

func connect(database int) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:       net.JoinHostPort(os.Args[1], os.Args[2]),
		Protocol:   protocol,
		DB:         database,
		ClientName: "go-redis-test",
	})
}

func main() {
	works := []func(*redis.Client){
		handshake, stringValues, bits, keys, expiry, scan, pipelines, transactions, watch, databases,
		publishAndSubscribe, refusals, serverCommands,
	}
	works = append(works, dataTypes...)
	for _, protocol = range []int{2, 3} {
		client := connect(0)
		for _, work := range works {
			must(client.FlushAll(cx).Err())
			work(client)
		}
		must(client.FlushAll(cx).Err())
		must(client.Close())
		fmt.Printf("go-redis %s, RESP%d: ok\n", redis.Version(), protocol)
	}
}

func handshake(client *redis.Client) {
	equal(client.Ping(cx).Val(), "PONG")
	equal(client.ClientGetName(cx).Val(), "go-redis-test")
	info, err := client.ClientInfo(cx).Result()
	must(err)
	equal(info.Name, "go-redis-test")
	equal(client.Echo(cx, "hello").Val(), "hello")
}

func stringValues(client *redis.Client) {
	equal(client.Set(cx, "s", "value", 0).Val(), "OK")
	equal(client.Get(cx, "s").Val(), "value")
	equal(client.Get(cx, "missing").Err(), redis.Nil)
	equal(client.Append(cx, "s", "!").Val(), int64(6))
	equal(client.GetRange(cx, "s", 1, -2).Val(), "alue")
	equal(client.SetRange(cx, "s", 0, "V").Val(), int64(6))
	equal(client.SetNX(cx, "s", "2", 0).Val(), false)
	equal(client.SetXX(cx, "s", "2", time.Hour).Val(), true)
	equal(client.SetArgs(cx, "s", "3", redis.SetArgs{Get: true, KeepTTL: true}).Val(), "2")
	if ttl := client.TTL(cx, "s").Val(); ttl <= 0 || ttl > time.Hour {
		fail("TTL %v", ttl)
	}
	equal(client.GetDel(cx, "s").Val(), "3")
	equal(client.MSet(cx, "a", 1, "b", 2).Val(), "OK")
	equal(fmt.Sprint(client.MGet(cx, "a", "missing", "b").Val()), "[1 <nil> 2]")
	equal(client.IncrBy(cx, "a", 41).Val(), int64(42))
	equal(client.IncrByFloat(cx, "a", 0.5).Val(), 42.5)
	big := bytes.Repeat([]byte("0123456789abcdef"), 512<<10)
	must(client.Set(cx, "big", big, 0).Err())
	read, err := client.Get(cx, "big").Bytes()
	must(err)
	equal(bytes.Equal(read, big), true)
	must(client.Set(cx, "\x00\r\n\xff", "\r\n\x00", 0).Err())
	equal(client.Get(cx, "\x00\r\n\xff").Val(), "\r\n\x00")
}

func bits(client *redis.Client) {
	equal(client.SetBit(cx, "bits", 7, 1).Val(), int64(0))
	equal(client.GetBit(cx, "bits", 7).Val(), int64(1))
	equal(client.BitCount(cx, "bits", nil).Val(), int64(1))
	equal(client.BitPos(cx, "bits", 1).Val(), int64(7))
	equal(client.BitOpNot(cx, "not", "bits").Val(), int64(1))
	equal(client.Get(cx, "not").Val(), "\xfe")
	field := client.BitField(cx, "field", "SET", "u8", "0", "255", "GET", "i8", "0")
	equal(fmt.Sprint(field.Val()), "[0 -1]")
}

func keys(client *redis.Client) {
	must(client.MSet(cx, "a", 1, "b", "text").Err())
	equal(client.Type(cx, "a").Val(), "string")
	equal(client.Exists(cx, "a", "b", "c").Val(), int64(2))
	equal(client.Rename(cx, "a", "c").Val(), "OK")
	equal(client.RenameNX(cx, "c", "b").Val(), false)
	equal(client.Copy(cx, "c", "d", 0, false).Val(), int64(1))
	equal(client.ObjectEncoding(cx, "c").Val(), "int")
	found := client.Keys(cx, "[cd]").Val()
	sort.Strings(found)
	equal(strings.Join(found, " "), "c d")
	equal(client.Touch(cx, "c", "missing").Val(), int64(1))
	equal(client.Unlink(cx, "b", "c").Val(), int64(2))
	equal(client.DBSize(cx).Val(), int64(1))
	equal(client.RandomKey(cx).Val(), "d")
}

func expiry(client *redis.Client) {
	must(client.Set(cx, "k", "v", 100*time.Second).Err())
	equal(client.ExpireGT(cx, "k", time.Second).Val(), false)
	equal(client.Expire(cx, "k", 200*time.Second).Val(), true)
	equal(client.Persist(cx, "k").Val(), true)
	equal(client.TTL(cx, "k").Val(), time.Duration(-1))
	equal(client.GetEx(cx, "k", time.Minute).Val(), "v")
	must(client.Set(cx, "soon", "v", time.Millisecond).Err())
	for deadline := time.Now().Add(time.Minute); client.Exists(cx, "soon").Val() == 1; {
		if time.Now().After(deadline) {
			fail("a key outlives its time by a minute")
		}
	}
}

func scan(client *redis.Client) {
	seen := map[string]bool{}
	for index := range 1000 {
		must(client.Set(cx, "key:"+strconv.Itoa(index), "v", 0).Err())
	}
	iterator := client.Scan(cx, 0, "key:*", 100).Iterator()
	for iterator.Next(cx) {
		seen[iterator.Val()] = true
	}
	must(iterator.Err())
	equal(len(seen), 1000)
}

func pipelines(client *redis.Client) {
	replies, err := client.Pipelined(cx, func(pipe redis.Pipeliner) error {
		for index := range 5000 {
			pipe.Set(cx, "p"+strconv.Itoa(index), index, 0)
			pipe.Get(cx, "p"+strconv.Itoa(index))
		}
		return nil
	})
	must(err)
	equal(len(replies), 10000)
	for index := range 5000 {
		equal(replies[2*index+1].(*redis.StringCmd).Val(), strconv.Itoa(index))
	}
}

func transactions(client *redis.Client) {
	var number *redis.IntCmd
	_, err := client.TxPipelined(cx, func(pipe redis.Pipeliner) error {
		pipe.Set(cx, "a", 1, 0)
		number = pipe.Incr(cx, "a")
		return nil
	})
	must(err)
	equal(number.Val(), int64(2))
	_, err = client.TxPipelined(cx, func(pipe redis.Pipeliner) error {
		pipe.Set(cx, "b", 1, 0)
		pipe.Do(cx, "NOSUCH")
		return nil
	})
	contains(err, "EXECABORT")
	equal(client.Exists(cx, "b").Val(), int64(0))
}

// watch counts to a hundred from four goroutines, each reading, adding in Go and writing back.
func watch(client *redis.Client) {
	must(client.Set(cx, "counter", 0, 0).Err())
	add := func(tx *redis.Tx) error {
		value, err := tx.Get(cx, "counter").Int()
		if err != nil {
			return err
		}
		_, err = tx.TxPipelined(cx, func(pipe redis.Pipeliner) error {
			pipe.Set(cx, "counter", value+1, 0)
			return nil
		})
		return err
	}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 25 {
				for {
					err := client.Watch(cx, add, "counter")
					if err == nil {
						break
					}
					if !errors.Is(err, redis.TxFailedErr) {
						must(err)
					}
				}
			}
		})
	}
	group.Wait()
	equal(client.Get(cx, "counter").Val(), "100")
}

func databases(client *redis.Client) {
	other := connect(5)
	must(other.Set(cx, "k", "five", 0).Err())
	equal(client.Get(cx, "k").Err(), redis.Nil)
	equal(other.Move(cx, "k", 0).Val(), true)
	equal(client.Get(cx, "k").Val(), "five")
	must(other.Close())
}

func publishAndSubscribe(client *redis.Client) {
	listener := client.Subscribe(cx, "news", "weather")
	must(listener.PSubscribe(cx, "w*"))
	for range 3 {
		_, err := listener.ReceiveTimeout(cx, time.Minute)
		must(err)
	}
	equal(client.PubSubNumSub(cx, "news").Val()["news"], int64(1))
	equal(client.PubSubNumPat(cx).Val(), int64(1))
	for number := range 500 {
		equal(client.Publish(cx, "news", number).Val(), int64(1))
	}
	equal(client.Publish(cx, "weather", "rain").Val(), int64(2))
	for number := range 500 {
		message, err := listener.ReceiveMessage(cx)
		must(err)
		equal(message.Channel, "news")
		equal(message.Payload, strconv.Itoa(number))
	}
	for _, pattern := range []string{"", "w*"} {
		message, err := listener.ReceiveMessage(cx)
		must(err)
		equal(message.Pattern, pattern)
		equal(message.Payload, "rain")
	}
	must(listener.Ping(cx))
	must(listener.Unsubscribe(cx))
	must(listener.Close())
}

func refusals(client *redis.Client) {
	contains(client.Do(cx, "NOSUCH", "a").Err(), "unknown command")
	contains(client.Do(cx, "GET").Err(), "wrong number of arguments")
	must(client.Set(cx, "k", "text", 0).Err())
	contains(client.Incr(cx, "k").Err(), "not an integer or out of range")
	contains(client.Rename(cx, "missing", "k").Err(), "no such key")
	equal(client.Ping(cx).Val(), "PONG")
}

func serverCommands(client *redis.Client) {
	info := client.Info(cx).Val()
	for _, field := range []string{"redis_version:", "used_memory:", "role:"} {
		equal(strings.Contains(info, field), true)
	}
	equal(len(client.ConfigGet(cx, "maxmemory").Val()), 1)
	must(client.Set(cx, "k", strings.Repeat("v", 1000), 0).Err())
	if used := client.MemoryUsage(cx, "k").Val(); used < 1000 {
		fail("MEMORY USAGE %d", used)
	}
	commands := client.Command(cx).Val()
	equal(commands["get"].Name, "get")
	if since := time.Since(client.Time(cx).Val()).Abs(); since > time.Minute {
		fail("the server's clock is off by %v", since)
	}
}

func equal(value, expected any) {
	if value != expected {
		fail("%#v, expected %#v", value, expected)
	}
}

func contains(err error, text string) {
	if err == nil || !strings.Contains(err.Error(), text) {
		fail("error %v, expected %q", err, text)
	}
}

func must(err error) {
	if err != nil {
		fail("%v", err)
	}
}

// fail panics, so that the trace shows which line of the work was at fault.
func fail(format string, values ...any) {
	panic(fmt.Sprintf(format, values...))
}

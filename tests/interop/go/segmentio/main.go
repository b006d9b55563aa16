// segmentio's kafka-go: the administrator, a writer with each codec, a group of two readers of which one leaves.
//
//	segmentio HOST:PORT TOPIC GROUP MESSAGES
//
// One line per message that was read for the first time, "got VALUE"; then "done".
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
)

const partitions = 4

func check(err error, what string) {
	if err != nil {
		fmt.Fprintln(os.Stderr, what, err)
		os.Exit(1)
	}
}

type seen struct {
	sync.Mutex
	values map[string]bool
}

func (s *seen) add(value string) {
	s.Lock()
	defer s.Unlock()
	if !s.values[value] {
		s.values[value] = true
		fmt.Println("got", value)
	}
}

func (s *seen) size() int {
	s.Lock()
	defer s.Unlock()
	return len(s.values)
}

func until(condition func() bool, what string) {
	for end := time.Now().Add(time.Minute); !condition(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			check(fmt.Errorf("it did not come"), what)
		}
	}
}

func create(client *kafka.Client, topic string) {
	made, err := client.CreateTopics(context.Background(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
		Topic: topic, NumPartitions: partitions, ReplicationFactor: 1,
		ConfigEntries: []kafka.ConfigEntry{{ConfigName: "segment.bytes", ConfigValue: "1048576"}},
	}}})
	check(err, "create")
	check(made.Errors[topic], "create")
}

func write(address, topic string, messages int) {
	codecs := []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd}
	for at, codec := range codecs {
		writer := &kafka.Writer{
			Addr: kafka.TCP(address), Topic: topic, Balancer: &kafka.Hash{}, RequiredAcks: kafka.RequireAll,
			Compression: codec, BatchTimeout: 5 * time.Millisecond,
		}
		var batch []kafka.Message
		for number := at; number < messages; number += len(codecs) {
			value := strconv.Itoa(number)
			batch = append(batch, kafka.Message{
				Key: []byte("k" + value), Value: []byte(value), Headers: []kafka.Header{{Key: "codec", Value: []byte(codec.String())}},
			})
		}
		check(writer.WriteMessages(context.Background(), batch...), "write")
		check(writer.Close(), "close")
	}
}

func read(ctx context.Context, address, topic, group string, all *seen) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{address}, Topic: topic, GroupID: group, MaxWait: 200 * time.Millisecond,
		SessionTimeout: 6 * time.Second, HeartbeatInterval: 500 * time.Millisecond, StartOffset: kafka.FirstOffset,
	})
	for {
		message, err := reader.FetchMessage(ctx)
		if ctx.Err() != nil {
			break
		}
		check(err, "fetch")
		all.add(string(message.Value))
		check(reader.CommitMessages(context.Background(), message), "commit")
	}
	check(reader.Close(), "close the reader")
}

func main() {
	address, topic, group := os.Args[1], os.Args[2], os.Args[3]
	messages, err := strconv.Atoi(os.Args[4])
	check(err, "messages")
	client := &kafka.Client{Addr: kafka.TCP(address), Timeout: 10 * time.Second}
	create(client, topic)
	write(address, topic, messages)

	all := &seen{values: map[string]bool{}}
	var readers sync.WaitGroup
	var ends []context.CancelFunc
	for range 2 {
		ctx, end := context.WithCancel(context.Background())
		ends = append(ends, end)
		readers.Go(func() { read(ctx, address, topic, group, all) })
	}
	until(func() bool { return all.size() >= messages/2 }, "half of the messages")
	ends[1]()
	until(func() bool { return all.size() >= messages }, "all messages")
	ends[0]()
	readers.Wait()

	deleted, err := client.DeleteTopics(context.Background(), &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	check(err, "delete")
	check(deleted.Errors[topic], "delete")
	fmt.Println("done")
}

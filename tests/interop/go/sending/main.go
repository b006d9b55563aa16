// sending SERVERS TOPIC PARTITIONS PRODUCERS: 0, 1, 2, … by franz-go's idempotent producers until SIGTERM; then
// `sent N failed M`.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	servers, topic := os.Args[1], os.Args[2]
	partitions, _ := strconv.Atoi(os.Args[3])
	count, _ := strconv.Atoi(os.Args[4])
	ending := make(chan os.Signal, 1)
	signal.Notify(ending, syscall.SIGTERM)
	clients := make([]*kgo.Client, count)
	for i := range clients {
		client, err := kgo.NewClient(
			kgo.SeedBrokers(servers),
			kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.ProducerBatchMaxBytes(512),
			kgo.ProducerLinger(0),
			kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		)
		if err != nil {
			panic(err)
		}
		clients[i] = client
	}
	var failed atomic.Int64
	number := 0
	fmt.Println("sending")
	for len(ending) == 0 {
		for _, client := range clients {
			record := &kgo.Record{Topic: topic, Partition: int32(number % partitions), Value: []byte(strconv.Itoa(number))}
			number++
			client.Produce(context.Background(), record, func(_ *kgo.Record, err error) {
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					failed.Add(1)
				}
			})
		}
		time.Sleep(2 * time.Millisecond)
	}
	for _, client := range clients {
		if err := client.Flush(context.Background()); err != nil {
			panic(err)
		}
		client.Close()
	}
	fmt.Printf("sent %d failed %d\n", number, failed.Load())
}

// Messages of three tags, read by a subscription to two of them with RocketMQ's Go client.
//
//	tags NAMESRV TOPIC GROUP clustering|broadcasting|orderly COUNT
//
// Prints "got TAG BODY" for each message, and "done" when the wanted ones have come and a while has passed.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

var tags = []string{"TagA", "TagB", "TagC"}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	rlog.SetLogLevel("error")
	servers, topic, group, mode := primitive.NamesrvAddr{os.Args[1]}, os.Args[2], os.Args[3], os.Args[4]
	count, err := strconv.Atoi(os.Args[5])
	must(err)

	sender, err := rocketmq.NewProducer(producer.WithNameServer(servers), producer.WithGroupName(group+"-producer"))
	must(err)
	must(sender.Start())
	send := func(number int) {
		for _, tag := range tags {
			message := primitive.NewMessage(topic, []byte(strconv.Itoa(number))).WithTag(tag)
			_, err := sender.SendSync(context.Background(), message)
			must(err)
		}
	}
	send(0)

	options := []consumer.Option{
		consumer.WithNameServer(servers), consumer.WithGroupName(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}
	switch mode {
	case "broadcasting":
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	case "orderly":
		options = append(options, consumer.WithConsumerOrder(true))
	}
	reader, err := rocketmq.NewPushConsumer(options...)
	must(err)
	var lock sync.Mutex
	got := map[string]bool{}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: "TagA || TagC"}
	must(reader.Subscribe(topic, selector,
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			lock.Lock()
			defer lock.Unlock()
			for _, message := range messages {
				fmt.Printf("got %s %s\n", message.GetTags(), message.Body)
				got[message.GetTags()+" "+string(message.Body)] = true
			}
			return consumer.ConsumeSuccess, nil
		}))
	must(reader.Start())
	for number := 1; number < count; number++ {
		send(number)
	}
	for waited := 0; waited < 400; waited++ {
		lock.Lock()
		all := len(got) >= 2*count
		lock.Unlock()
		if all {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	time.Sleep(time.Second)
	must(reader.Shutdown())
	must(sender.Shutdown())
	fmt.Println("done")
}

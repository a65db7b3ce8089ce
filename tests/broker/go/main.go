// Messages that the Go client of RocketMQ sends and consumes, with message traces: the workload "traces" of Traces.java in small.
//
// Arguments are the name server's address and the topic, which exists. The last line on standard output is one JSON
// object with what was sent, and what each consumer got.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type row map[string]any

var (
	lock       sync.Mutex
	deliveries = []row{}
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func handle(group string, message *primitive.MessageExt) {
	began := time.Now().UnixMilli()
	key := message.GetProperty(primitive.PropertyUniqueClientMessageIdKeyIndex)
	if key == "" { // it made the topic
		return
	}
	time.Sleep(20 * time.Millisecond)
	lock.Lock()
	defer lock.Unlock()
	deliveries = append(deliveries, row{
		"group": group, "keys": message.GetKeys(), "uniq_key": key,
		"reconsume_times": message.ReconsumeTimes, "began_ms": began, "ended_ms": time.Now().UnixMilli(), "success": true,
	})
}

func consume(names []string, topic string, group string, options ...consumer.Option) {
	options = append(options,
		consumer.WithNameServer(names), consumer.WithGroupName(group), consumer.WithInstance(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithTrace(&primitive.TraceConfig{NamesrvAddrs: names, GroupName: group, Access: primitive.Local}))
	client, err := consumer.NewPushConsumer(options...)
	check(err)
	check(client.Subscribe(topic, consumer.MessageSelector{}, func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		handle(group, messages[0])
		return consumer.ConsumeSuccess, nil
	}))
	check(client.Start())
}

func main() {
	rlog.SetLogLevel("error")
	names, topic := []string{os.Args[1]}, os.Args[2]
	client, err := producer.NewDefaultProducer(producer.WithNameServer(names), producer.WithGroupName("go-producer"),
		producer.WithTrace(&primitive.TraceConfig{NamesrvAddrs: names, GroupName: "go-producer", Access: primitive.Local}))
	check(err)
	check(client.Start())
	sent := []row{}
	for _, key := range []string{"KEY-0", "KEY-1", ""} {
		message := primitive.NewMessage(topic, []byte("body"))
		if key != "" {
			message.WithKeys([]string{key})
		}
		result, err := client.SendSync(context.Background(), message)
		check(err)
		sent = append(sent, row{"keys": key, "uniq_key": result.MsgID, "queue_id": result.MessageQueue.QueueId})
	}
	consume(names, topic, "traced")
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		lock.Lock()
		count := len(deliveries)
		lock.Unlock()
		if count >= len(sent) {
			break
		}
	}
	// A trace leaves the client after this time at most.
	time.Sleep(8 * time.Second)
	text, err := json.Marshal(row{"sent": sent, "deliveries": deliveries})
	check(err)
	fmt.Println(string(text))
}

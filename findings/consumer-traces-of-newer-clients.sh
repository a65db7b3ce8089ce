#!/usr/bin/env bash
# rocketmq-client 5.5.0 beside a broker of 4.9.3: a consumer with message traces writes none. The client drops traces of
# messages that have no region (`MSG_REGION`), and a broker of 4.9.3 stores its region with no message. The same program
# with the client of 4.9.3 writes a trace before and after it consumes. Nothing is logged: after an upgrade of the
# clients, "not traced" looks like "not consumed". Traces of producers are written in both cases.
# Seen on 2026-11-28. Needs Java 17 and Maven, two ports (19876 and 20911, or NAMES_PORT and BROKER_PORT), and a minute.
source "$(dirname "$0")/expect.sh"

cat >Traced.java <<'JAVA'
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.*;

public class Traced {
    static final int MESSAGES = 3;

    static DefaultMQPushConsumer consumer(String names, String group, boolean isTraced, String topic, MessageListenerConcurrently listener)
            throws Exception {
        DefaultMQPushConsumer consumer =
                new DefaultMQPushConsumer(group, null, new AllocateMessageQueueAveragely(), isTraced, null);
        consumer.setNamesrvAddr(names);
        consumer.setInstanceName(group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(listener);
        consumer.start();
        return consumer;
    }

    public static void main(String[] args) throws Exception {
        String names = args[0], run = args[1], topic = "Topic" + run;
        DefaultMQProducer producer = new DefaultMQProducer("producer" + run, null, true, null);
        producer.setNamesrvAddr(names);
        producer.start();
        Set<String> ids = ConcurrentHashMap.newKeySet();
        for (int number = 0; number < MESSAGES; number++) {
            ids.add(producer.send(new Message(topic, "body".getBytes())).getMsgId());
        }
        CountDownLatch consumed = new CountDownLatch(MESSAGES);
        DefaultMQPushConsumer traced = consumer(names, "group" + run, true, topic, (messages, context) -> {
            messages.forEach(each -> consumed.countDown());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        boolean all = consumed.await(60, TimeUnit.SECONDS);
        Thread.sleep(10_000); // a client sends its traces after 5 s at the latest
        traced.shutdown();
        producer.shutdown();
        Map<String, Integer> kinds = new ConcurrentSkipListMap<>();
        for (String kind : List.of("Pub", "SubBefore", "SubAfter")) kinds.put(kind, 0);
        DefaultMQPushConsumer reader = consumer(names, "reader" + run, false, "RMQ_SYS_TRACE_TOPIC", (messages, context) -> {
            for (MessageExt each : messages) {
                for (String trace : new String(each.getBody(), StandardCharsets.UTF_8).split("\u0002")) {
                    String[] fields = trace.split("\u0001");
                    if (Arrays.stream(fields).anyMatch(ids::contains)) kinds.merge(fields[0], 1, Integer::sum);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        Thread.sleep(10_000);
        reader.shutdown();
        System.out.println("consumed: " + (all ? MESSAGES : "not all") + ", traces: " + kinds);
        System.exit(0);
    }
}
JAVA

broker_of 4.9.3 traceTopicEnable=true
jars_of org.apache.rocketmq:rocketmq-client:5.5.0

for version in 4.9.3 5.5.0; do
    printf 'broker 4.9.3, client %s: ' "$version"
    client "$version" Traced.java "127.0.0.1:$names" "${version//./x}" || cat client.log >&2
    grep -o "consumed: .*" client.log
done | seen "broker 4.9.3, client 4.9.3: consumed: 3, traces: {Pub=3, SubAfter=3, SubBefore=3}
broker 4.9.3, client 5.5.0: consumed: 3, traces: {Pub=3, SubAfter=0, SubBefore=0}"

#!/usr/bin/env bash
# rocketmq-client 5.5.0 beside a broker of 4.9.3: a consumer with message traces writes none. The client drops traces of
# messages that have no region (`MSG_REGION`), and a broker of 4.9.3 stores its region with no message. The same program
# with the client of 4.9.3 writes a trace before and after it consumes. Nothing is logged: after an upgrade of the
# clients, "not traced" looks like "not consumed". Traces of producers are written in both cases.
# Seen on 2026-11-28. Needs Java 17 and Maven, two ports (19876 and 20911, or NAMES_PORT and BROKER_PORT), and a minute.
source "$(dirname "$0")/expect.sh"
names=${NAMES_PORT:-19876} port=${BROKER_PORT:-20911}

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

jars_of org.apache.rocketmq:rocketmq-broker:4.9.3
mkdir -p names && sed 's/rocketmq-broker/rocketmq-namesrv/' pom-4.9.3/pom.xml >names/pom.xml
mvn -q -B -f names/pom.xml dependency:copy-dependencies -DoutputDirectory="$work/4.9.3" >mvn.log 2>&1
jars_of org.apache.rocketmq:rocketmq-client:5.5.0

mkdir -p home/conf
for name in namesrv broker; do
    echo '<configuration/>' >home/conf/logback_$name.xml
done
export ROCKETMQ_HOME=$work/home
opens=(--add-opens=java.base/java.nio=ALL-UNNAMED --add-opens=java.base/sun.nio.ch=ALL-UNNAMED)
printf 'listenPort=%s\n' "$names" >names.conf
printf '%s\n' "listenPort=$port" brokerIP1=127.0.0.1 "namesrvAddr=127.0.0.1:$names" traceTopicEnable=true \
    autoCreateTopicEnable=true "storePathRootDir=$work/store" mappedFileSizeCommitLog=1048576 >broker.conf
java "${opens[@]}" -Duser.home="$work/home" -cp '4.9.3/*' org.apache.rocketmq.namesrv.NamesrvStartup -c names.conf >names.log 2>&1 &
servers=$!
java "${opens[@]}" -Duser.home="$work/home" -Xmx512m -cp '4.9.3/*' org.apache.rocketmq.broker.BrokerStartup -c broker.conf >broker.log 2>&1 &
servers="$servers $!"
trap 'kill -9 $servers; wait $servers 2>/dev/null; rm -rf "$work"' EXIT
for _ in $(seq 60); do
    grep -qs 'boot success' broker.log && break
    sleep 1
done
grep -q 'boot success' broker.log || { cat broker.log; exit 1; }

for version in 4.9.3 5.5.0; do
    printf 'broker 4.9.3, client %s: ' "$version"
    java "${opens[@]}" -Duser.home="$work/home" -cp "$version/*" Traced.java "127.0.0.1:$names" "${version//./x}" >client.log 2>&1 || cat client.log >&2
    grep -o "consumed: .*" client.log
done | seen "broker 4.9.3, client 4.9.3: consumed: 3, traces: {Pub=3, SubAfter=3, SubBefore=3}
broker 4.9.3, client 5.5.0: consumed: 3, traces: {Pub=3, SubAfter=0, SubBefore=0}"

#!/usr/bin/env bash
# ali-ons 3.12.0, a client for Node.js: a message that is made without tags is sent with the tag "null". Its property TAGS is the
# text of JavaScript's null, and a broker of 4.9.3 stores it with the hash code of that text. Consumers that
# subscribe to the tag "null" get it, a report by tag counts it, and the same message of the Java client has no tags.
# It has no unique key either, which each message of the Java client has.
# Seen on 2026-11-29. Needs Java 17, Maven, Node.js and npm, two ports (19876 and 20911, or NAMES_PORT and BROKER_PORT), a minute.
source "$(dirname "$0")/expect.sh"

cat >Java.java <<'JAVA'
import java.util.List;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

public class Java {
    public static void main(String[] args) throws Exception {
        if (args[1].equals("send")) {
            DefaultMQProducer producer = new DefaultMQProducer("producers");
            producer.setNamesrvAddr(args[0]);
            producer.start();
            producer.send(new Message("Tags", "java".getBytes()));
            System.exit(0);
        }
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("readers-" + args[2].length());
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(org.apache.rocketmq.common.consumer.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("Tags", args[2]);
        consumer.start();
        TreeMap<String, String> found = new TreeMap<>();
        for (long end = System.currentTimeMillis() + 15_000; System.currentTimeMillis() < end; ) {
            for (MessageExt each : consumer.poll(1000)) {
                boolean hasKey = each.getProperty("UNIQ_KEY") != null;
                found.put(new String(each.getBody()), "tags " + (each.getTags() == null ? "none" : '"' + each.getTags() + '"')
                    + (hasKey ? ", a unique key" : ", no unique key"));
            }
        }
        found.forEach((body, what) -> System.out.println("found=subscribed to " + args[2] + ", from " + body + ": " + what));
        System.exit(0);
    }
}
JAVA
cat >send.js <<'JS'
const { Producer, Message } = require('ali-ons');
const quiet = { debug() {}, info() {}, warn() {}, error: console.error };
const producer = new Producer({ nameSrv: process.argv[2], producerGroup: 'producers-of-node', logger: quiet, httpclient: { request() {} } });
producer.ready()
  .then(() => producer.send(new Message('Tags', 'node')))
  .then(result => { console.log('sent=' + result.sendStatus); process.exit(0); })
  .catch(error => { console.error(error); process.exit(1); });
JS

broker_of 4.9.3
npm install --silent --no-fund --no-audit ali-ons@3.12.0 >npm.log 2>&1

client 4.9.3 Java.java "127.0.0.1:$names" send
node send.js "127.0.0.1:$names" >node.log 2>&1 || { cat node.log; exit 1; }
{
    for tags in '*' null; do
        client 4.9.3 Java.java "127.0.0.1:$names" read "$tags"
        sed -n 's/^found=//p' client.log
    done
} | seen 'subscribed to *, from java: tags none, a unique key
subscribed to *, from node: tags "null", no unique key
subscribed to null, from node: tags "null", no unique key'

#!/usr/bin/env bash
# rocketmq-client 4.9.3: `viewMessage(topic, id)`, with which consoles look a message up by the id that `send` returned, does
# not find it if the reader's time zone is behind the producer's. An id holds milliseconds since its month began in the
# producer's zone; the reader adds them to the begin of its own month, and asks the broker's index for messages from then on
# alone. A message of a producer in Shanghai is found by a reader in UTC for eight hours, and never again. Here the zones are a
# minute apart, for a script that ends soon. Client 5.5.0 asks for the last three days instead, and finds it.
# Seen on 2026-11-29. Needs Java 17 and Maven, two ports (19876 and 20911, or NAMES_PORT and BROKER_PORT), and two minutes.
source "$(dirname "$0")/expect.sh"

cat >Client.java <<'JAVA'
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

public class Client {
    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("producers");
        producer.setNamesrvAddr(args[0]);
        producer.start();
        if (args.length == 1) {
            System.out.println("id=" + producer.send(new Message("Zones", "body".getBytes())).getMsgId());
            System.exit(0);
        }
        String found;
        try {
            found = producer.viewMessage("Zones", args[1]) == null ? "not found" : "found";
        } catch (MQClientException error) {
            found = "not found";
        }
        System.out.println("answer=" + found);
        System.exit(0);
    }
}
JAVA

broker_of 4.9.3
jars_of org.apache.rocketmq:rocketmq-client:5.5.0

# ask VERSION ZONE [ID]: sends a message, or looks one up; prints the id or the answer.
ask() {
    client "$1" -Duser.timezone="$2" Client.java "127.0.0.1:$names" ${3:+"$3"} || cat client.log >&2
    sed -n 's/^id=//p; s/^answer=//p' client.log
}
id=$(ask 4.9.3 GMT+00:01)
sent=$SECONDS
{
    sleep 5
    echo "at once, client 4.9.3, a minute behind: $(ask 4.9.3 GMT "$id")"
    sleep $((sent + 75 - SECONDS))
    echo "later, client 4.9.3, the producer's zone: $(ask 4.9.3 GMT+00:01 "$id")"
    echo "later, client 4.9.3, a minute behind: $(ask 4.9.3 GMT "$id")"
    echo "later, client 4.9.3, a minute ahead: $(ask 4.9.3 GMT+00:02 "$id")"
    echo "later, client 5.5.0, a minute behind: $(ask 5.5.0 GMT "$id")"
} | seen "at once, client 4.9.3, a minute behind: found
later, client 4.9.3, the producer's zone: found
later, client 4.9.3, a minute behind: not found
later, client 4.9.3, a minute ahead: found
later, client 5.5.0, a minute behind: found"

#!/usr/bin/env bash
# rocketmq-client 4.9.3: `viewMessage(topic, id)`, with which consoles look a message up by the id that `send` returned, does
# not find it if the reader's time zone is behind the producer's. An id holds milliseconds since its month began in the
# producer's zone; the reader adds them to the begin of its own month, and asks the broker's index for messages from then on
# alone. A message of a producer in Shanghai is found by a reader in UTC for eight hours, and never again. Here the zones are a
# minute apart, for a script that ends soon. Client 5.5.0 asks for the last three days instead, and finds it.
# Seen on 2026-11-29. Needs Java 17 and Maven, two ports (19876 and 20911, or NAMES_PORT and BROKER_PORT), and two minutes.
source "$(dirname "$0")/expect.sh"
names=${NAMES_PORT:-19876} port=${BROKER_PORT:-20911}

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
printf '%s\n' "listenPort=$port" brokerIP1=127.0.0.1 "namesrvAddr=127.0.0.1:$names" autoCreateTopicEnable=true \
    "storePathRootDir=$work/store" mappedFileSizeCommitLog=1048576 maxHashSlotNum=1000 maxIndexNum=4000 >broker.conf
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

# client VERSION ZONE [ID]: sends a message, or looks one up; prints the id or the answer.
client() {
    java "${opens[@]}" -Duser.home="$work/home" -Duser.timezone="$2" -cp "$1/*" Client.java "127.0.0.1:$names" ${3:+"$3"} >client.log 2>&1
    sed -n 's/^id=//p; s/^answer=//p' client.log
}
id=$(client 4.9.3 GMT+00:01)
sent=$SECONDS
{
    sleep 5
    echo "at once, client 4.9.3, a minute behind: $(client 4.9.3 GMT "$id")"
    sleep $((sent + 75 - SECONDS))
    echo "later, client 4.9.3, the producer's zone: $(client 4.9.3 GMT+00:01 "$id")"
    echo "later, client 4.9.3, a minute behind: $(client 4.9.3 GMT "$id")"
    echo "later, client 4.9.3, a minute ahead: $(client 4.9.3 GMT+00:02 "$id")"
    echo "later, client 5.5.0, a minute behind: $(client 5.5.0 GMT "$id")"
} | seen "at once, client 4.9.3, a minute behind: found
later, client 4.9.3, the producer's zone: found
later, client 4.9.3, a minute behind: not found
later, client 4.9.3, a minute ahead: found
later, client 5.5.0, a minute behind: found"

#!/usr/bin/env bash
# rocketmq-client 4.9.3 and 5.5.0: where a consumer in broadcasting mode keeps its offsets
# (`~/.rocketmq_offsets/CLIENT/GROUP/offsets.json`) is no JSON, in spite of its name. The queues are objects that stand as
# keys of another object: `{"offsetTable":{{"brokerName":...}:7}}`. fastjson (4.9.3) and fastjson2 (5.5.0) write and read
# that; a JSON parser refuses it. The two differ in white space alone.
# Seen on 2026-11-27. Needs Java 17, Maven and Python.
source "$(dirname "$0")/expect.sh"

cat >Offsets.java <<'JAVA'
import java.nio.file.*;
import java.util.*;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.store.*;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.message.MessageQueue;

public class Offsets {
    public static void main(String[] args) throws Exception {
        MQClientInstance client = new MQClientInstance(new ClientConfig(), 0, "client");
        MessageQueue queue = new MessageQueue("Topic", "broker-a", 3);
        LocalFileOffsetStore offsets = new LocalFileOffsetStore(client, "group");
        offsets.updateOffset(queue, 7, false);
        offsets.persistAll(new HashSet<>(Set.of(queue)));
        LocalFileOffsetStore again = new LocalFileOffsetStore(client, "group");
        again.load();
        System.out.println("read again by the client: " + again.readOffset(queue, ReadOffsetType.READ_FROM_STORE));
        System.exit(0);
    }
}
JAVA
for version in 4.9.3 5.5.0; do
    jars_of org.apache.rocketmq:rocketmq-client:$version
    echo "rocketmq-client $version"
    java -Drocketmq.client.localOffsetStoreDir="$work/offsets-$version" -cp "$version/*" Offsets.java 2>/dev/null | grep 'read again'
    "${PYTHON:-python3}" - "$work/offsets-$version/client/group/offsets.json" <<'PY'
import json, re, sys
text = open(sys.argv[1]).read()
print("without white space:", re.sub(r"\s", "", text))
try:
    json.loads(text)
    print("JSON")
except ValueError:
    print("no JSON")
PY
done | seen 'rocketmq-client 4.9.3
read again by the client: 7
without white space: {"offsetTable":{{"brokerName":"broker-a","queueId":3,"topic":"Topic"}:7}}
no JSON
rocketmq-client 5.5.0
read again by the client: 7
without white space: {"offsetTable":{{"brokerName":"broker-a","queueId":3,"topic":"Topic"}:7}}
no JSON'

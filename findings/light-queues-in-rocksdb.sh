#!/usr/bin/env bash
# rocketmq-store 5.3.1: with queues in RocksDB, a message that also goes to a light queue (`INNER_MULTI_DISPATCH`, enableLmq
# and enableMultiDispatch on) is put with PUT_OK, and the light queue stays empty: its consumers never get the message.
# With queues in files it is there. From 5.3.2 on it is in RocksDB, too (`RocksDBConsumeQueueStore#dispatchLMQ`).
# Seen on 2026-11-28. Needs Java 17 and Maven.
source "$(dirname "$0")/expect.sh"

cat >Light.java <<'JAVA'
import java.net.InetSocketAddress;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageArrivingListener;
import org.apache.rocketmq.store.RocksDBMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

public class Light {
    public static void main(String[] args) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir("store");
        config.setStorePathCommitLog("store/commitlog");
        config.setMappedFileSizeCommitLog(65536);
        config.setHaListenPort(0);
        config.setStoreType(args[1]);
        config.setEnableLmq(true);
        config.setEnableMultiDispatch(true);
        BrokerStatsManager stats = new BrokerStatsManager("finding", false);
        MessageArrivingListener nobody = (topic, queueId, offset, code, time, bitMap, properties) -> { };
        DefaultMessageStore store = args[1].equals("default")
            ? new DefaultMessageStore(config, stats, nobody, new BrokerConfig(), new ConcurrentHashMap<>())
            : new RocksDBMessageStore(config, stats, nobody, new BrokerConfig(), new ConcurrentHashMap<>());
        store.load();
        store.start();
        String seen = "";
        for (int number = 0; number < 3; number++) {
            MessageExtBrokerInner message = new MessageExtBrokerInner();
            message.setTopic("T");
            message.setBody(new byte[10]);
            message.setBornHost(new InetSocketAddress("127.0.0.1", 1));
            message.setStoreHost(new InetSocketAddress("127.0.0.1", 1));
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_INNER_MULTI_DISPATCH, "%LMQ%light");
            message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
            seen += " " + store.putMessage(message).getPutMessageStatus();
        }
        Thread.sleep(2000);
        System.out.println(args[0] + " " + args[1] + ":" + seen + ", T has " + store.getMaxOffsetInQueue("T", 0)
            + ", %LMQ%light has " + store.getMaxOffsetInQueue("%LMQ%light", 0));
        Runtime.getRuntime().halt(0);
    }
}
JAVA
for version in 5.3.1 5.3.2; do
    jars_of org.apache.rocketmq:rocketmq-store:$version
    for type in default defaultRocksDB; do
        rm -rf store
        java -Duser.home="$work" -cp "$version/*" Light.java $version $type 2>java.log | grep -E "^$version"
    done
done | seen '5.3.1 default: PUT_OK PUT_OK PUT_OK, T has 3, %LMQ%light has 3
5.3.1 defaultRocksDB: PUT_OK PUT_OK PUT_OK, T has 3, %LMQ%light has 0
5.3.2 default: PUT_OK PUT_OK PUT_OK, T has 3, %LMQ%light has 3
5.3.2 defaultRocksDB: PUT_OK PUT_OK PUT_OK, T has 3, %LMQ%light has 3'

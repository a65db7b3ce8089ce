#!/usr/bin/env bash
# rocketmq-store 5.5.0: a store whose storeType is switched to defaultRocksDB, after a clean stop, never serves the first
# message of its log. The new database is dispatched to offset 0, and a start after a clean stop dispatches records whose
# offset is greater than that (`CommitLog#recoverNormally`). It also looks at the last ten segments alone
# (`commitLogRecoverMaxNum`): of a longer log the messages before those are in no queue either.
# Seen on 2026-11-28. Needs Java 17 and Maven.
source "$(dirname "$0")/expect.sh"

cat >Switched.java <<'JAVA'
import java.net.InetSocketAddress;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.MessageArrivingListener;
import org.apache.rocketmq.store.RocksDBMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

public class Switched {
    private static final int MESSAGES = 30;

    private static DefaultMessageStore open(String type) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir("store");
        config.setStorePathCommitLog("store/commitlog");
        config.setMappedFileSizeCommitLog(1024);
        config.setHaListenPort(0);
        config.setStoreType(type);
        BrokerStatsManager stats = new BrokerStatsManager("finding", false);
        MessageArrivingListener nobody = (topic, queueId, offset, code, time, bitMap, properties) -> { };
        DefaultMessageStore store = type.equals("default")
            ? new DefaultMessageStore(config, stats, nobody, new BrokerConfig(), new ConcurrentHashMap<>())
            : new RocksDBMessageStore(config, stats, nobody, new BrokerConfig(), new ConcurrentHashMap<>());
        System.out.println(type + ": loaded " + store.load());
        store.start();
        return store;
    }

    private static void serve(DefaultMessageStore store) {
        int served = 0, first = -1;
        for (int at = 0; at < MESSAGES; at++) {
            GetMessageResult found = store.getMessage("group", "T", 0, at, 1, null);
            if (found != null && found.getMessageCount() == 1 && found.getMessageQueueOffset().get(0) == at) {
                first = first < 0 ? at : first;
                served++;
                found.release();
            }
        }
        System.out.println("serves " + served + " of " + MESSAGES + " messages, from queue offset " + first + " on");
    }

    public static void main(String[] args) throws Exception {
        InetSocketAddress host = new InetSocketAddress("127.0.0.1", 1);
        DefaultMessageStore files = open("default");
        for (int number = 0; number < MESSAGES; number++) {
            MessageExtBrokerInner message = new MessageExtBrokerInner();
            message.setTopic("T");
            message.setBody(new byte[Integer.parseInt(args[0])]);
            message.setBornHost(host);
            message.setStoreHost(host);
            message.setTags("t");
            message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
            files.putMessage(message);
        }
        Thread.sleep(1000);
        serve(files);
        files.shutdown();
        DefaultMessageStore rocksdb = open("defaultRocksDB");
        Thread.sleep(2000);
        serve(rocksdb);
        rocksdb.shutdown();
        System.exit(0);
    }
}
JAVA
jars_of org.apache.rocketmq:rocketmq-store:5.5.0
for body in 10 700; do
    rm -rf store
    echo "bodies of $body bytes"
    java -Duser.home="$work" -cp "5.5.0/*" Switched.java $body 2>java.log | grep -E "^(default|defaultRocksDB|serves)"
done | seen 'bodies of 10 bytes
default: loaded true
serves 30 of 30 messages, from queue offset 0 on
defaultRocksDB: loaded true
serves 29 of 30 messages, from queue offset 1 on
bodies of 700 bytes
default: loaded true
serves 30 of 30 messages, from queue offset 0 on
defaultRocksDB: loaded true
serves 10 of 30 messages, from queue offset 20 on'

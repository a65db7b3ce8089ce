#!/usr/bin/env bash
# rocketmq-store 5.5.0: `rocksdbCQDoubleWriteEnable` that is switched on for a store with queues in files, after a clean
# stop, fills RocksDB from the last segment of the log alone: recovery begins where the files end, and dispatches from
# there. Entries of older messages are in the files only (here, six messages are in a segment).
# Seen on 2026-11-28. Needs Java 17 and Maven.
source "$(dirname "$0")/expect.sh"

cat >DoubleWrite.java <<'JAVA'
import java.net.InetSocketAddress;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageArrivingListener;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.queue.AbstractConsumeQueueStore;
import org.apache.rocketmq.store.queue.CombineConsumeQueueStore;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

public class DoubleWrite {
    private static final int MESSAGES = 30;

    private static DefaultMessageStore open(boolean writesBoth) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir("store");
        config.setStorePathCommitLog("store/commitlog");
        config.setMappedFileSizeCommitLog(4096);
        config.setHaListenPort(0);
        config.setRocksdbCQDoubleWriteEnable(writesBoth);
        MessageArrivingListener nobody = (topic, queueId, offset, code, time, bitMap, properties) -> { };
        DefaultMessageStore store = new DefaultMessageStore(
            config, new BrokerStatsManager("finding", false), nobody, new BrokerConfig(), new ConcurrentHashMap<>());
        System.out.println((writesBoth ? "both" : "files") + ": loaded " + store.load());
        store.start();
        return store;
    }

    private static void report(String kind, AbstractConsumeQueueStore queues) throws Exception {
        int found = 0, first = -1;
        for (int at = 0; at < MESSAGES; at++) {
            var entry = queues.findOrCreateConsumeQueue("T", 0).get(at);
            if (entry != null && entry.getSize() > 0) {
                first = first < 0 ? at : first;
                found++;
            }
        }
        System.out.println(kind + " has " + found + " of " + MESSAGES + " entries, from queue offset " + first + " on");
    }

    public static void main(String[] args) throws Exception {
        InetSocketAddress host = new InetSocketAddress("127.0.0.1", 1);
        DefaultMessageStore files = open(false);
        for (int number = 0; number < MESSAGES; number++) {
            MessageExtBrokerInner message = new MessageExtBrokerInner();
            message.setTopic("T");
            message.setBody(new byte[500]);
            message.setBornHost(host);
            message.setStoreHost(host);
            message.setTags("t");
            message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
            files.putMessage(message);
        }
        Thread.sleep(1000);
        files.shutdown();
        DefaultMessageStore both = open(true);
        Thread.sleep(2000);
        CombineConsumeQueueStore queues = (CombineConsumeQueueStore) both.getQueueStore();
        report("file", queues.getConsumeQueueStore());
        report("RocksDB", queues.getRocksDBConsumeQueueStore());
        both.shutdown();
        System.exit(0);
    }
}
JAVA
jars_of org.apache.rocketmq:rocketmq-store:5.5.0
java -Duser.home="$work" -cp "5.5.0/*" DoubleWrite.java 2>java.log | grep -E "^(both|files|file|RocksDB)" | seen 'files: loaded true
both: loaded true
file has 30 of 30 entries, from queue offset 0 on
RocksDB has 6 of 30 entries, from queue offset 24 on'

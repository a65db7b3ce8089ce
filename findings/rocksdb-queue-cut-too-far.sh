#!/usr/bin/env bash
# rocketmq-store 5.5.0 with queues in RocksDB: if the log ends before the queues do, as after its last segment was
# restored from an older copy, recovery cuts the queues by a binary search for the log's end. Where that is exactly where
# the record of an entry began that the search looks at, it stops with an entry further ahead: here the queue should end
# with 44 entries, and goes on at 30. The next messages get the queue offsets of 14 messages that the log still has.
# Seen on 2026-11-29. Needs Java 17 and Maven.
source "$(dirname "$0")/expect.sh"

cat >Cut.java <<'JAVA'
import java.io.RandomAccessFile;
import java.net.InetSocketAddress;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.MessageArrivingListener;
import org.apache.rocketmq.store.RocksDBMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

public class Cut {
    private static RocksDBMessageStore open() throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir("store");
        config.setStorePathCommitLog("store/commitlog");
        config.setMappedFileSizeCommitLog(1 << 20);
        config.setStoreType("defaultRocksDB");
        config.setHaListenPort(0);
        MessageArrivingListener nobody = (topic, queueId, offset, code, time, bitMap, properties) -> { };
        RocksDBMessageStore store = new RocksDBMessageStore(
            config, new BrokerStatsManager("finding", false), nobody, new BrokerConfig(), new ConcurrentHashMap<>());
        System.out.println("loaded " + store.load());
        store.start();
        return store;
    }

    private static void put(RocksDBMessageStore store, String body) throws Exception {
        InetSocketAddress host = new InetSocketAddress("127.0.0.1", 1);
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic("T");
        message.setBody(body.getBytes());
        message.setBornHost(host);
        message.setStoreHost(host);
        message.setTags("t");
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        store.putMessage(message);
    }

    private static String bodyAt(RocksDBMessageStore store, long queueOffset) {
        var found = store.getMessage("nobody", "T", 0, queueOffset, 1, null);
        MessageExt message = MessageDecoder.decode(found.getMessageBufferList().get(0));
        return new String(message.getBody());
    }

    public static void main(String[] args) throws Exception {
        RocksDBMessageStore store = open();
        for (int number = 0; number < 60; number++) {
            put(store, "message " + number);
        }
        Thread.sleep(2000);
        System.out.println("60 messages, the queue ends at " + store.getMaxOffsetInQueue("T", 0));
        long end = store.getCommitLogOffsetInQueue("T", 0, 44);
        store.shutdown();
        try (RandomAccessFile segment = new RandomAccessFile("store/commitlog/00000000000000000000", "rw")) {
            segment.seek(end);
            segment.write(new byte[1 << 18]);
        }
        RocksDBMessageStore again = open();
        System.out.println("the log has 44, the queue ends at " + again.getMaxOffsetInQueue("T", 0));
        System.out.println("at queue offset 29: " + bodyAt(again, 29));
        put(again, "a new message");
        Thread.sleep(2000);
        System.out.println("at queue offset 30: " + bodyAt(again, 30));
        again.shutdown();
        Runtime.getRuntime().halt(0);
    }
}
JAVA
jars_of org.apache.rocketmq:rocketmq-store:5.5.0
java -Duser.home="$work" -cp "5.5.0/*" Cut.java 2>java.log | grep -E "^(loaded|60|the|at|after)" | seen 'loaded true
60 messages, the queue ends at 60
loaded true
the log has 44, the queue ends at 30
at queue offset 29: message 29
at queue offset 30: a new message'

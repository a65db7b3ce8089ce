#!/usr/bin/env bash
# rocketmq-store 5.5.0 with the index in files and in RocksDB (`indexRocksDBEnable`): the same queries by key of the same log
# have other answers in RocksDB (`indexFileReadEnable=false`):
# * of more messages than were asked for it returns the first ones, where the files return the last ones;
# * a range of more than `maxRocksDBIndexQueryDays` (7) finds nothing, and only the log says so;
# * a query for a key finds messages of longer keys, too, where the rest begins with `@`, which is RocksDB's separator; they
#   use up what was asked for, so the message with the key itself may be left out;
# * messages without a unique key, as those that a Go client sends several of in one call, are not in it;
# * times are kept in milliseconds. The files keep seconds since their first entry, so there a message is not found by a
#   range that begins at its own store time.
# Seen on 2026-11-29. Needs Java 17 and Maven.
source "$(dirname "$0")/expect.sh"

cat >Index.java <<'JAVA'
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageArrivingListener;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

public class Index {
    private static final MessageStoreConfig CONFIG = new MessageStoreConfig();
    private static DefaultMessageStore store;

    private static long put(String key, String body, boolean hasUniqueKey) {
        InetSocketAddress host = new InetSocketAddress("127.0.0.1", 1);
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic("T");
        message.setBody(body.getBytes());
        message.setKeys(key);
        message.setBornHost(host);
        message.setStoreHost(host);
        if (hasUniqueKey) {
            MessageClientIDSetter.setUniqID(message);
        }
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        return store.putMessage(message).getAppendMessageResult().getStoreTimestamp();
    }

    private static List<String> query(boolean files, String key, int most, long begin, long end) {
        CONFIG.setIndexFileReadEnable(files);
        List<String> bodies = new ArrayList<>();
        for (var buffer : store.queryMessage("T", key, most, begin, end).getMessageBufferList()) {
            bodies.add(new String(MessageDecoder.decode(buffer).getBody()));
        }
        return bodies;
    }

    private static void ask(String what, String key, int most, long begin, long end) {
        System.out.println(what + ": files " + query(true, key, most, begin, end)
            + ", RocksDB " + query(false, key, most, begin, end));
    }

    public static void main(String[] args) throws Exception {
        CONFIG.setStorePathRootDir("store");
        CONFIG.setStorePathCommitLog("store/commitlog");
        CONFIG.setMappedFileSizeCommitLog(1 << 20);
        CONFIG.setHaListenPort(0);
        CONFIG.setIndexRocksDBEnable(true);
        BrokerStatsManager stats = new BrokerStatsManager("finding", false);
        MessageArrivingListener nobody = (topic, queueId, offset, code, time, bitMap, properties) -> { };
        store = new DefaultMessageStore(CONFIG, stats, nobody, new BrokerConfig(), new ConcurrentHashMap<>());
        store.load();
        store.start();
        put("first", "the first", true);
        Thread.sleep(300);
        long itsTime = put("timed", "timed", true);
        for (int number = 1; number <= 5; number++) {
            put("order", "order " + number, true);
        }
        put("sensor@-5", "sensor@-5", true);
        put("sensor", "sensor", true);
        put("plain", "plain", false);
        put("last", "the last", true);
        long now, hour = TimeUnit.HOURS.toMillis(1);
        do {
            Thread.sleep(100);
            now = System.currentTimeMillis();
        } while (query(true, "last", 1, now - hour, now).isEmpty() || query(false, "last", 1, now - hour, now).isEmpty());
        ask("order, at most 2", "order", 2, now - hour, now);
        ask("order, the last 7 days", "order", 9, now - 7 * 24 * hour, now);
        ask("order, the last 8 days", "order", 9, now - 8 * 24 * hour, now);
        ask("sensor", "sensor", 9, now - hour, now);
        ask("sensor, at most 1", "sensor", 1, now - hour, now);
        ask("without a unique key", "plain", 9, now - hour, now);
        ask("from its store time on", "timed", 9, itsTime, now);
        Runtime.getRuntime().halt(0);
    }
}
JAVA
jars_of org.apache.rocketmq:rocketmq-store:5.5.0
java -Duser.home="$work" -cp "5.5.0/*" Index.java 2>java.log | grep 'RocksDB \[' | seen 'order, at most 2: files [order 4, order 5], RocksDB [order 1, order 2]
order, the last 7 days: files [order 1, order 2, order 3, order 4, order 5], RocksDB [order 1, order 2, order 3, order 4, order 5]
order, the last 8 days: files [order 1, order 2, order 3, order 4, order 5], RocksDB []
sensor: files [sensor], RocksDB [sensor@-5, sensor]
sensor, at most 1: files [sensor], RocksDB [sensor@-5]
without a unique key: files [plain], RocksDB []
from its store time on: files [], RocksDB [timed]'

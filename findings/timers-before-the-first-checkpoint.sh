#!/usr/bin/env bash
# rocketmq-store 5.5.0 with `timerRocksDBEnable`: RocksDB has no checkpoint of the timeline until the first timer message
# is sent. A start without one begins ten seconds before now. So after a clean stop, timer messages that were due earlier
# are never sent: they stay in RocksDB, and later ones are sent. In the store "used", one was sent before the stop.
# Seen on 2026-11-29. Needs Java 17 and Maven.
source "$(dirname "$0")/expect.sh"

cat >FirstCheckpoint.java <<'JAVA'
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageArrivingListener;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;
import org.apache.rocketmq.store.timer.TimerCheckpoint;
import org.apache.rocketmq.store.timer.TimerMessageStore;
import org.apache.rocketmq.store.timer.TimerMetrics;
import org.apache.rocketmq.store.timer.rocksdb.TimerMessageRocksDBStore;

public class FirstCheckpoint {
    private static final InetSocketAddress HOST = new InetSocketAddress("127.0.0.1", 1);

    /** A store with its timers, which are made and started as BrokerController does. */
    private static DefaultMessageStore open(String root) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root);
        config.setStorePathCommitLog(root + "/commitlog");
        config.setMappedFileSizeCommitLog(1 << 20);
        config.setMappedFileSizeTimerLog(1 << 20);
        config.setHaListenPort(0);
        config.setTimerRocksDBEnable(true);
        MessageArrivingListener nobody = (topic, queueId, offset, code, time, bitMap, properties) -> { };
        BrokerStatsManager stats = new BrokerStatsManager("finding", false);
        DefaultMessageStore store =
            new DefaultMessageStore(config, stats, nobody, new BrokerConfig(), new ConcurrentHashMap<>());
        TimerMetrics metrics = new TimerMetrics(root + "/config/timermetrics");
        TimerCheckpoint checkpoint = new TimerCheckpoint(root + "/config/timercheck");
        TimerMessageStore wheel = new TimerMessageStore(store, config, checkpoint, metrics, stats);
        store.setTimerMessageStore(wheel);
        TimerMessageRocksDBStore timers = new TimerMessageRocksDBStore(store, metrics, stats);
        store.setTimerMessageRocksDBStore(timers);
        if (!store.load() || !wheel.load() || !timers.load()) {
            throw new IllegalStateException("not loaded");
        }
        store.start();
        wheel.start(true);
        timers.start();
        return store;
    }

    private static void close(DefaultMessageStore store) {
        store.getTimerMessageRocksDBStore().shutdown();
        store.getTimerMessageStore().shutdown();
        store.shutdown();
    }

    /** What a broker makes of a message with TIMER_DELIVER_MS. */
    private static void put(DefaultMessageStore store, String key, long dueMs) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(TimerMessageStore.TIMER_TOPIC);
        message.setBody(key.getBytes(StandardCharsets.UTF_8));
        message.setBornHost(HOST);
        message.setStoreHost(HOST);
        message.setBornTimestamp(System.currentTimeMillis());
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, key);
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_REAL_TOPIC, "T");
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_REAL_QUEUE_ID, "0");
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_TIMER_OUT_MS, String.valueOf(dueMs));
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        store.putMessage(message);
    }

    private static List<String> sent(DefaultMessageStore store) throws Exception {
        List<String> keys = new ArrayList<>();
        for (long at = 0; at < store.getMaxOffsetInQueue("T", 0); at++) {
            long offset = store.getCommitLogOffsetInQueue("T", 0, at);
            keys.add(new String(store.lookMessageByOffset(offset).getBody(), StandardCharsets.UTF_8));
        }
        return keys;
    }

    private static void waitFor(DefaultMessageStore store, String key) throws Exception {
        while (!sent(store).contains(key)) {
            Thread.sleep(100);
        }
        // RocksDB has the checkpoint a little later.
        Thread.sleep(2000);
    }

    public static void main(String[] args) throws Exception {
        String[] names = {"new", "used"};
        long lastDueMs = 0;
        for (String name : names) {
            DefaultMessageStore store = open(name);
            if (name.equals("used")) {
                put(store, "first", System.currentTimeMillis() + 3000);
                waitFor(store, "first");
            }
            lastDueMs = System.currentTimeMillis() + 10_000;
            put(store, "due while stopped", lastDueMs);
            Thread.sleep(3000);
            System.out.println(name + ": before the stop " + sent(store));
            close(store);
        }
        Thread.sleep(Math.max(0, lastDueMs + 13_000 - System.currentTimeMillis()));
        for (String name : names) {
            DefaultMessageStore store = open(name);
            put(store, "later", System.currentTimeMillis() + 4000);
            waitFor(store, "later");
            System.out.println(name + ": after the start " + sent(store));
            close(store);
        }
        System.exit(0);
    }
}
JAVA
jars_of org.apache.rocketmq:rocketmq-store:5.5.0
java -Duser.home="$work" -cp "5.5.0/*" FirstCheckpoint.java 2>java.log | grep -E "^(new|used|.*Exception)" | seen 'new: before the stop []
used: before the stop [first]
new: after the start [later]
used: after the start [first, due while stopped, later]'

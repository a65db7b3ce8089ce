#!/usr/bin/env bash
# rocketmq-store 5.5.0 with timerRocksDBEnable=true notes how far it has sent timer messages only when it sends some
# (`TimerMessageRocksDBStore`, TIMELINE_CHECK_POINT). A start without this note sends what was due in the last ten seconds
# and later (`MessageRocksDBStorage#getCheckpointForTimer`). So the first timer messages of a broker that was down at their
# time, and for ten seconds more, are never sent. The same start with timers in files sends them.
# Seen on 2026-11-29. Needs Java 17 and Maven.
source "$(dirname "$0")/expect.sh"

cat >Timers.java <<'JAVA'
import java.net.InetSocketAddress;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageArrivingListener;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;
import org.apache.rocketmq.store.timer.TimerCheckpoint;
import org.apache.rocketmq.store.timer.TimerMessageStore;
import org.apache.rocketmq.store.timer.TimerMetrics;
import org.apache.rocketmq.store.timer.rocksdb.TimerMessageRocksDBStore;

public class Timers {
    private final DefaultMessageStore store;
    private final TimerMessageStore timers;
    private final TimerMessageRocksDBStore inRocksDB;

    private Timers(String root, boolean usesRocksDB) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root);
        config.setStorePathCommitLog(root + "/commitlog");
        config.setMappedFileSizeCommitLog(1 << 20);
        config.setMappedFileSizeTimerLog(1 << 20);
        config.setHaListenPort(0);
        config.setTimerRocksDBEnable(usesRocksDB);
        BrokerStatsManager stats = new BrokerStatsManager("finding", false);
        MessageArrivingListener nobody = (topic, queueId, offset, code, time, bitMap, properties) -> { };
        store = new DefaultMessageStore(config, stats, nobody, new BrokerConfig(), new ConcurrentHashMap<>());
        TimerMetrics metrics = new TimerMetrics(root + "/config/timermetrics");
        timers = new TimerMessageStore(store, config, new TimerCheckpoint(root + "/config/timercheck"), metrics, stats);
        store.setTimerMessageStore(timers);
        inRocksDB = usesRocksDB ? new TimerMessageRocksDBStore(store, metrics, stats) : null;
        store.setTimerMessageRocksDBStore(inRocksDB);
        store.load();
        timers.load();
        store.start();
        timers.start(true);
        if (usesRocksDB) {
            inRocksDB.load();
            inRocksDB.start();
        }
    }

    private void put(String key, long deliverMs) {
        InetSocketAddress host = new InetSocketAddress("127.0.0.1", 1);
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(TimerMessageStore.TIMER_TOPIC);
        message.setBody(new byte[10]);
        message.setBornHost(host);
        message.setStoreHost(host);
        MessageAccessor.putProperty(message, "UNIQ_KEY", key);
        MessageAccessor.putProperty(message, "TIMER_OUT_MS", String.valueOf(deliverMs));
        MessageAccessor.putProperty(message, "REAL_TOPIC", "T");
        MessageAccessor.putProperty(message, "REAL_QID", "0");
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        store.putMessage(message);
    }

    /** Stops after a while, and says which messages have been sent. */
    private void close(String name) throws Exception {
        Thread.sleep(8000);
        TreeSet<String> sent = new TreeSet<>();
        var found = store.getMessage("g", "T", 0, 0, 32, null);
        for (var buffer : found.getMessageBufferList()) {
            MessageExt message = MessageDecoder.decode(buffer);
            sent.add(message.getProperty("UNIQ_KEY"));
        }
        found.release();
        System.out.println(name + ": sent " + sent);
        if (inRocksDB != null) {
            inRocksDB.shutdown();
        }
        timers.shutdown();
        store.shutdown();
    }

    public static void main(String[] args) throws Exception {
        boolean usesRocksDB = args[0].equals("RocksDB");
        Timers first = new Timers(args[0], usesRocksDB);
        long dueMs = System.currentTimeMillis() / 1000 * 1000 + 12_000;
        first.put("early", dueMs);
        first.put("late", dueMs + 22_000);
        first.close(args[0] + ", before the time of any");
        Thread.sleep(dueMs + 15_000 - System.currentTimeMillis());
        Timers second = new Timers(args[0], usesRocksDB);
        Thread.sleep(dueMs + 20_000 - System.currentTimeMillis());
        second.close(args[0] + ", started 15 s after the time of the early one");
        System.exit(0);
    }
}
JAVA
jars_of org.apache.rocketmq:rocketmq-store:5.5.0
for kind in files RocksDB; do
    java -Duser.home="$work" -cp "5.5.0/*" Timers.java "$kind" 2>"$kind.log" >"$kind.txt" &
done
wait
grep -hE "^(files|RocksDB)," files.txt RocksDB.txt | seen 'files, before the time of any: sent []
files, started 15 s after the time of the early one: sent [early, late]
RocksDB, before the time of any: sent []
RocksDB, started 15 s after the time of the early one: sent [late]'

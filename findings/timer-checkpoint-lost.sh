#!/usr/bin/env bash
# rocketmq-store 5.5.0: a start without config/timercheck reads all timer messages of the log again. Those whose time is
# over are sent again, though they were delivered; and those that were recalled are sent, too: a recall only works on a
# message that still waits in the wheel. A producer that recalled a message gets it delivered.
# Seen on 2026-11-29. Needs Java 17 and Maven.
source "$(dirname "$0")/expect.sh"

cat >Timers.java <<'JAVA'
import java.io.File;
import java.net.InetSocketAddress;
import java.util.TreeMap;
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

public class Timers {
    private final DefaultMessageStore store;
    private final TimerMessageStore timers;

    private Timers() throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir("store");
        config.setStorePathCommitLog("store/commitlog");
        config.setMappedFileSizeCommitLog(1 << 20);
        config.setMappedFileSizeTimerLog(1 << 20);
        config.setHaListenPort(0);
        BrokerStatsManager stats = new BrokerStatsManager("finding", false);
        MessageArrivingListener nobody = (topic, queueId, offset, code, time, bitMap, properties) -> { };
        store = new DefaultMessageStore(config, stats, nobody, new BrokerConfig(), new ConcurrentHashMap<>());
        timers = new TimerMessageStore(store, config, new TimerCheckpoint("store/config/timercheck"),
            new TimerMetrics("store/config/timermetrics"), stats);
        store.setTimerMessageStore(timers);
        store.load();
        timers.load();
        store.start();
        timers.start(true);
    }

    private void put(String key, long deliverMs, String recalls) {
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
        if (recalls != null) {
            MessageAccessor.putProperty(message, "TIMER_DEL_UNIQKEY", recalls);
        }
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        store.putMessage(message);
    }

    /** Waits until a time is over, and says how often each message has been sent by then. */
    private void close(String name, long untilMs) throws Exception {
        while (timers.getCurrReadTimeMs() < untilMs || System.currentTimeMillis() < untilMs) {
            Thread.sleep(100);
        }
        Thread.sleep(3000);
        TreeMap<String, Integer> sent = new TreeMap<>();
        var found = store.getMessage("g", "T", 0, 0, 32, null);
        for (var buffer : found.getMessageBufferList()) {
            MessageExt message = MessageDecoder.decode(buffer);
            sent.merge(message.getProperty("UNIQ_KEY"), 1, Integer::sum);
        }
        found.release();
        sent.replaceAll((key, count) -> Math.min(count, 2));
        System.out.println(name + " (2: twice or more): " + sent);
        timers.shutdown();
        store.shutdown();
    }

    public static void main(String[] args) throws Exception {
        Timers first = new Timers();
        long dueMs = System.currentTimeMillis() / 1000 * 1000 + 15_000;
        first.put("wanted", dueMs, null);
        first.put("recalled", dueMs, null);
        first.put("recall", dueMs, "recalled");
        first.close("sent at their time", dueMs + 2000);
        new Timers().close("sent after another start", System.currentTimeMillis());
        new File("store/config/timercheck").delete();
        new Timers().close("sent after a start without timercheck", System.currentTimeMillis());
        System.exit(0);
    }
}
JAVA
jars_of org.apache.rocketmq:rocketmq-store:5.5.0
java -Duser.home="$work" -cp "5.5.0/*" Timers.java 2>java.log | grep -E "^sent" | seen 'sent at their time (2: twice or more): {wanted=1}
sent after another start (2: twice or more): {wanted=1}
sent after a start without timercheck (2: twice or more): {recalled=1, wanted=2}'

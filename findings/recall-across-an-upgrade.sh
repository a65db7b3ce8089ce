#!/usr/bin/env bash
# rocketmq-store 5.3.2 and 5.5.0: what recalls a timer message names its topic and its unique key in 5.3.2, and from
# 5.4.0 on the unique key alone. So a message that was recalled on 5.3.2 is sent all the same, if 5.5.0 is started before
# it is due. With `appendTopicForTimerDeleteKey`, which is off by default, 5.5.0 does not send it.
# Seen on 2026-11-29. Needs Java 17 and Maven.
source "$(dirname "$0")/expect.sh"

cat >Recall.java <<'JAVA'
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
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

public class Recall {
    private static final InetSocketAddress HOST = new InetSocketAddress("127.0.0.1", 1);

    private static DefaultMessageStore open(String root, boolean appendTopic) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root);
        config.setStorePathCommitLog(root + "/commitlog");
        config.setMappedFileSizeCommitLog(1 << 20);
        config.setMappedFileSizeTimerLog(1 << 20);
        config.setHaListenPort(0);
        if (appendTopic) {
            config.getClass().getMethod("setAppendTopicForTimerDeleteKey", boolean.class).invoke(config, true);
        }
        MessageArrivingListener nobody = (topic, queueId, offset, code, time, bitMap, properties) -> { };
        BrokerStatsManager stats = new BrokerStatsManager("finding", false);
        DefaultMessageStore store =
            new DefaultMessageStore(config, stats, nobody, new BrokerConfig(), new ConcurrentHashMap<>());
        TimerMessageStore timers = new TimerMessageStore(store, config,
            new TimerCheckpoint(root + "/config/timercheck"), new TimerMetrics(root + "/config/timermetrics"), stats);
        store.setTimerMessageStore(timers);
        if (!store.load() || !timers.load()) {
            throw new IllegalStateException("not loaded");
        }
        store.start();
        timers.start(true);
        return store;
    }

    private static void close(DefaultMessageStore store) {
        store.getTimerMessageStore().shutdown();
        store.shutdown();
    }

    /** What a broker makes of a message with TIMER_DELIVER_MS; with a `mark`, of one that recalls another. */
    private static void put(DefaultMessageStore store, String key, long dueMs, String mark) {
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
        if (mark != null) {
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_TIMER_DEL_UNIQKEY, mark);
        }
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        store.putMessage(message);
    }

    private static List<String> sent(DefaultMessageStore store) throws Exception {
        List<String> keys = new ArrayList<>();
        for (long at = 0; at < store.getMaxOffsetInQueue("T", 0); at++) {
            long offset = store.getCommitLogOffsetInQueue("T", 0, at);
            keys.add(new String(store.lookMessageByOffset(offset).getBody(), StandardCharsets.UTF_8));
        }
        Collections.sort(keys);
        return keys;
    }

    /** Puts messages and a recall into the wheel, and stops before they are due. */
    private static void put(String root) throws Exception {
        DefaultMessageStore store = open(root, false);
        long dueMs = System.currentTimeMillis() + 20_000;
        put(store, "kept", dueMs, null);
        put(store, "recalled", dueMs, null);
        // RecallMessageProcessor of 5.3.2 makes the mark by this method.
        Object mark = TimerMessageStore.class.getMethod("buildDeleteKey", String.class, String.class)
            .invoke(null, "T", "recalled");
        put(store, "recalled", dueMs, (String) mark);
        Thread.sleep(4000);
        System.out.println("before the stop " + sent(store));
        close(store);
        Files.writeString(Path.of("due"), String.valueOf(dueMs));
    }

    public static void main(String[] args) throws Exception {
        if (args[0].equals("put")) {
            put(args[1]);
        } else {
            DefaultMessageStore store = open(args[1], args.length > 2);
            long dueMs = Long.parseLong(Files.readString(Path.of("due")));
            while (store.getTimerMessageStore().getCurrReadTimeMs() < dueMs + 2000) {
                Thread.sleep(100);
            }
            Thread.sleep(4000);
            System.out.println(args[1] + " " + sent(store));
            close(store);
        }
        System.exit(0);
    }
}
JAVA
recall() {
    java -Duser.home="$work/$2" -cp "$1/*" Recall.java "${@:3}" 2>"$2.log" | grep -E "^(before|5\.|.*Exception)"
}
jars_of org.apache.rocketmq:rocketmq-store:5.3.2
jars_of org.apache.rocketmq:rocketmq-store:5.5.0
recall 5.3.2 put put store >before.txt
for name in 5.3.2-again 5.5.0-default 5.5.0-appends; do
    cp -a --sparse=always store "$name"
done
recall 5.3.2 again sends 5.3.2-again >again.txt &
recall 5.5.0 default sends 5.5.0-default >default.txt &
recall 5.5.0 appends sends 5.5.0-appends appends >appends.txt &
wait
cat before.txt again.txt default.txt appends.txt | seen 'before the stop []
5.3.2-again [kept]
5.5.0-default [kept, recalled]
5.5.0-appends [kept]'

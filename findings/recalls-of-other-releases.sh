#!/usr/bin/env bash
# rocketmq-store: a recall names a timer message by its topic and its unique key in 5.3.2, and by its unique key alone in
# 5.5.0 (`TimerMessageStore#buildDeleteKey`). A store takes only what its own release writes: messages that were recalled
# under the one are delivered if the other runs at their time, be it an upgrade or a way back.
# Seen on 2026-11-29. Needs Java 17 and Maven.
source "$(dirname "$0")/expect.sh"

cat >Timers.java <<'JAVA'
import java.lang.reflect.Method;
import java.net.InetSocketAddress;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
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

    private Timers(String root) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root);
        config.setStorePathCommitLog(root + "/commitlog");
        config.setMappedFileSizeCommitLog(1 << 20);
        config.setMappedFileSizeTimerLog(1 << 20);
        config.setHaListenPort(0);
        BrokerStatsManager stats = new BrokerStatsManager("finding", false);
        MessageArrivingListener nobody = (topic, queueId, offset, code, time, bitMap, properties) -> { };
        store = new DefaultMessageStore(config, stats, nobody, new BrokerConfig(), new ConcurrentHashMap<>());
        timers = new TimerMessageStore(store, config, new TimerCheckpoint(root + "/config/timercheck"),
            new TimerMetrics(root + "/config/timermetrics"), stats);
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

    /** What this release writes to recall a message of the topic T. */
    private static String recall(String key) throws Exception {
        for (Method method : TimerMessageStore.class.getMethods()) {
            if (method.getName().equals("buildDeleteKey")) {
                // 5.4.0 and later have appendTopicForTimerDeleteKey, which is off unless it is set.
                boolean isSettable = method.getParameterCount() == 3;
                return (String) (isSettable ? method.invoke(null, "T", key, false) : method.invoke(null, "T", key));
            }
        }
        throw new IllegalStateException("no buildDeleteKey");
    }

    public static void main(String[] args) throws Exception {
        Timers timers = new Timers(args[1]);
        if (args[0].equals("write")) {
            long dueMs = Long.parseLong(args[2]);
            timers.put("wanted", dueMs, null);
            timers.put("recalled", dueMs, null);
            timers.put("recall", dueMs, recall("recalled"));
            System.out.println("written: " + recall("recalled"));
            Thread.sleep(3000);
        } else {
            while (timers.timers.getCurrReadTimeMs() < Long.parseLong(args[2]) + 2000) {
                Thread.sleep(100);
            }
            Thread.sleep(3000);
            TreeSet<String> sent = new TreeSet<>();
            var found = timers.store.getMessage("g", "T", 0, 0, 32, null);
            for (var buffer : found.getMessageBufferList()) {
                sent.add(MessageDecoder.decode(buffer).getProperty("UNIQ_KEY"));
            }
            found.release();
            System.out.println("sent: " + sent);
        }
        timers.timers.shutdown();
        timers.store.shutdown();
        System.exit(0);
    }
}
JAVA
jars_of org.apache.rocketmq:rocketmq-store:5.3.2
jars_of org.apache.rocketmq:rocketmq-store:5.5.0
for release in 5.3.2 5.5.0; do
    javac -d "classes-$release" -cp "$release/*" Timers.java
done
# timers RELEASE ARGUMENT...: the lines that the program prints.
timers() {
    local release=$1
    shift
    java -Duser.home="$work" -cp "classes-$release:$release/*" Timers "$@" 2>>java.log | grep -E "^(written|sent):"
}
due=$((($(date +%s) + 25) * 1000))
for wrote in 5.3.2 5.5.0; do
    {
        echo "$wrote $(timers "$wrote" write "$wrote-store" "$due")" >"$wrote.txt"
        for runs in 5.3.2 5.5.0; do
            cp -r "$wrote-store" "$wrote-$runs"
            echo "recalled under $wrote, run by $runs: $(timers "$runs" run "$wrote-$runs" "$due")" >"$wrote-$runs.txt" &
        done
        wait
    } &
done
wait
cat 5.3.2.txt 5.5.0.txt ?.?.?-?.?.?.txt | seen '5.3.2 written: T+recalled
5.5.0 written: recalled
recalled under 5.3.2, run by 5.3.2: sent: [wanted]
recalled under 5.3.2, run by 5.5.0: sent: [recalled, wanted]
recalled under 5.5.0, run by 5.3.2: sent: [recalled, wanted]
recalled under 5.5.0, run by 5.5.0: sent: [wanted]'

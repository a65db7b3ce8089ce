#!/usr/bin/env bash
# rocketmq-store 5.5.0: a store that was kept in DLedger mode and is started without it, after a clean stop, serves none
# of its messages, and loses its queues: a start that finds no segment in `commitlog/` removes all queues
# (`CommitLog#recoverNormally`, "The commitlog files are deleted, and delete the consume queue files"). It says that all
# was loaded. The next message of a queue gets queue offset 0, and consumers go on after messages that are to come.
# Seen on 2026-11-28. Needs Java 17 and Maven.
source "$(dirname "$0")/expect.sh"

cat >SwitchedOff.java <<'JAVA'
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.nio.file.*;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Stream;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.MessageArrivingListener;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

public class SwitchedOff {
    private static final int MESSAGES = 30;

    private static DefaultMessageStore open(boolean dledger) throws Exception {
        int port;
        try (ServerSocket free = new ServerSocket(0)) {
            port = free.getLocalPort();
        }
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir("store");
        config.setStorePathCommitLog("store/commitlog");
        config.setMappedFileSizeCommitLog(1 << 20);
        config.setHaListenPort(0);
        config.setEnableDLegerCommitLog(dledger);
        config.setdLegerGroup("group");
        config.setdLegerSelfId("n0");
        config.setdLegerPeers("n0-127.0.0.1:" + port);
        MessageArrivingListener nobody = (topic, queueId, offset, code, time, bitMap, properties) -> { };
        DefaultMessageStore store = new DefaultMessageStore(
            config, new BrokerStatsManager("finding", false), nobody, new BrokerConfig(), new ConcurrentHashMap<>());
        System.out.println((dledger ? "in DLedger mode" : "without it") + ": loaded " + store.load());
        store.start();
        return store;
    }

    private static long put(DefaultMessageStore store) throws Exception {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        InetSocketAddress host = new InetSocketAddress("127.0.0.1", 1);
        message.setTopic("T");
        message.setTags("t");
        message.setBody(new byte[10]);
        message.setBornHost(host);
        message.setStoreHost(host);
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        PutMessageResult result = store.putMessage(message);
        return result.isOk() ? result.getAppendMessageResult().getLogicsOffset() : -1;
    }

    private static void report(DefaultMessageStore store) throws Exception {
        Thread.sleep(2000);
        int served = 0;
        for (int at = 0; at < MESSAGES; at++) {
            GetMessageResult found = store.getMessage("group", "T", 0, at, 1, null);
            if (found != null && found.getMessageCount() == 1) {
                served++;
                found.release();
            }
        }
        try (Stream<Path> below = Files.walk(Paths.get("store/consumequeue"))) {
            System.out.println(
                "serves " + served + " of " + MESSAGES + ", files of queues: " + below.filter(Files::isRegularFile).count());
        }
    }

    public static void main(String[] args) throws Exception {
        DefaultMessageStore store = open(true);
        long until = System.currentTimeMillis() + 60_000;
        while (put(store) < 0 && System.currentTimeMillis() < until) {
            Thread.sleep(200); // until the only node has elected itself
        }
        for (int number = 1; number < MESSAGES; number++) {
            put(store);
        }
        report(store);
        store.shutdown();
        store = open(false);
        report(store);
        System.out.println("the next message gets queue offset " + put(store));
        store.shutdown();
        System.exit(0);
    }
}
JAVA
jars_of org.apache.rocketmq:rocketmq-store:5.5.0
java -Duser.home="$work" -cp "5.5.0/*" SwitchedOff.java 2>java.log | grep -E "^(in DLedger|without|serves|the next)" | seen 'in DLedger mode: loaded true
serves 30 of 30, files of queues: 1
without it: loaded true
serves 0 of 30, files of queues: 0
the next message gets queue offset 0'

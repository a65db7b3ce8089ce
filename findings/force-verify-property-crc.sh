#!/usr/bin/env bash
# rocketmq-store 5.5.1: a store that is started once with forceVerifyPropCRC=true loses its log, though nothing in it is
# damaged. A broker writes a checksum into a message's properties only with enabledAppendPropCRC=true, which is off unless
# it is set. Recovery takes a record without one for the end of the log, and deletes every later segment
# (`CommitLog#checkMessageAndReturnSize`, `#recoverNormally`). The bytes of the segment where it ends stay until a message
# is written over them: a start without the setting finds them again.
# Seen on 2026-11-28. Needs Java 17 and Maven.
source "$(dirname "$0")/expect.sh"

cat >Verified.java <<'JAVA'
import java.net.InetSocketAddress;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageArrivingListener;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

public class Verified {
    private static DefaultMessageStore open(boolean verifies) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir("store");
        config.setStorePathCommitLog("store/commitlog");
        config.setMappedFileSizeCommitLog(2048);
        config.setHaListenPort(0);
        config.setForceVerifyPropCRC(verifies);
        BrokerStatsManager stats = new BrokerStatsManager("finding", false);
        MessageArrivingListener nobody = (topic, queueId, offset, code, time, bitMap, properties) -> { };
        DefaultMessageStore store =
            new DefaultMessageStore(config, stats, nobody, new BrokerConfig(), new ConcurrentHashMap<>());
        boolean loaded = store.load();
        store.start();
        System.out.println("forceVerifyPropCRC=" + verifies + ": loaded " + loaded + ", the log ends at "
            + store.getMaxPhyOffset() + ", " + store.getMaxOffsetInQueue("T", 0) + " messages");
        return store;
    }

    public static void main(String[] args) throws Exception {
        InetSocketAddress host = new InetSocketAddress("127.0.0.1", 1);
        DefaultMessageStore store = open(false);
        for (int number = 0; number < 30; number++) {
            MessageExtBrokerInner message = new MessageExtBrokerInner();
            message.setTopic("T");
            message.setBody(new byte[100]);
            message.setBornHost(host);
            message.setStoreHost(host);
            message.setTags("t");
            message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
            store.putMessage(message);
        }
        Thread.sleep(1000);
        store.shutdown();
        open(false).shutdown();
        open(true).shutdown();
        open(false).shutdown();
        System.exit(0);
    }
}
JAVA
jars_of org.apache.rocketmq:rocketmq-store:5.5.1
java -Duser.home="$work" -cp "5.5.1/*" Verified.java 2>java.log | grep -E "^forceVerifyPropCRC" | seen 'forceVerifyPropCRC=false: loaded true, the log ends at 0, 0 messages
forceVerifyPropCRC=false: loaded true, the log ends at 6086, 30 messages
forceVerifyPropCRC=true: loaded true, the log ends at 0, 0 messages
forceVerifyPropCRC=false: loaded true, the log ends at 1990, 10 messages'

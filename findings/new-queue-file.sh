#!/usr/bin/env bash
# rocketmq-store 5.4.0: a store does not load if the last file of a queue has no entry yet, and the log ends with a record
# that no queue has, such as a half message. A broker makes a queue's next file before it writes an entry into it, so one
# that is killed between leaves such a file. After recovery the search for the queue's last entry begins 20 bytes before
# the file (`ConsumeQueue#correctMinOffset`); the exception ends the load, and that of each later start. 5.0.0 to 5.3.3
# have the same lines, 4.9.3 has no such search, and 5.5.0 loads the store.
# Seen on 2026-11-28. Needs Java 17 and Maven.
source "$(dirname "$0")/expect.sh"

cat >NewFile.java <<'JAVA'
import java.net.InetSocketAddress;
import java.nio.file.*;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageArrivingListener;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

public class NewFile {
    private static DefaultMessageStore open() throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir("store");
        config.setStorePathCommitLog("store/commitlog");
        config.setMappedFileSizeCommitLog(65536);
        config.setMappedFileSizeConsumeQueue(100);
        config.setHaListenPort(0);
        BrokerStatsManager stats = new BrokerStatsManager("finding", false);
        MessageArrivingListener nobody = (topic, queueId, offset, code, time, bitMap, properties) -> { };
        return new DefaultMessageStore(config, stats, nobody, new BrokerConfig(), new ConcurrentHashMap<>());
    }

    public static void main(String[] args) throws Exception {
        InetSocketAddress host = new InetSocketAddress("127.0.0.1", 1);
        DefaultMessageStore store = open();
        System.out.println(args[0] + ": loaded " + store.load());
        store.start();
        // Five entries fill a file of 100 bytes; a half message, which no queue has, ends the log.
        for (int number = 0; number < 6; number++) {
            MessageExtBrokerInner message = new MessageExtBrokerInner();
            message.setTopic("T");
            message.setBody(new byte[100]);
            message.setBornHost(host);
            message.setStoreHost(host);
            message.setTags("t");
            message.setSysFlag(number < 5 ? 0 : MessageSysFlag.TRANSACTION_PREPARED_TYPE);
            message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
            store.putMessage(message);
        }
        Thread.sleep(1000);
        store.shutdown();
        System.out.println(args[0] + ": " + store.getMaxOffsetInQueue("T", 0) + " entries");
        Path next = Path.of("store/consumequeue/T/0/00000000000000000100");
        System.out.println(args[0] + ": the next file is there: " + Files.exists(next));
        Files.write(next, new byte[100]);
        System.out.println(args[0] + ": with the next file, loaded " + open().load());
        Runtime.getRuntime().halt(0);
    }
}
JAVA
for version in 5.4.0 5.5.0; do
    jars_of org.apache.rocketmq:rocketmq-store:$version
    rm -rf store
    java -Duser.home="$work" -cp "$version/*" NewFile.java $version 2>java.log | grep -E "^$version"
done | seen '5.4.0: loaded true
5.4.0: 5 entries
5.4.0: the next file is there: false
5.4.0: with the next file, loaded false
5.5.0: loaded true
5.5.0: 5 entries
5.5.0: the next file is there: false
5.5.0: with the next file, loaded true'

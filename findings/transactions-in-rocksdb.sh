#!/usr/bin/env bash
# rocketmq-broker 5.5.0: `transRocksDBEnable=true` alone keeps no transaction in RocksDB. Half messages go into the ordinary
# topic, as without it, until `transWriteOriginTransHalfEnable`, which is true by default, is false. Then they have a topic
# of their own, and only RocksDB says which are open: where `rocksdbstore` is lost after a clean stop, the next start
# dispatches none of them again, and no producer is ever asked about them.
# Seen on 2026-11-29. Needs Java 17 and Maven.
source "$(dirname "$0")/expect.sh"

cat >Transactions.java <<'JAVA'
import java.net.InetSocketAddress;
import java.util.List;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.MessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.rocksdb.MessageRocksDBStorage;

public class Transactions {
    public static void main(String[] args) throws Exception {
        String root = args[0];
        int halves = Integer.parseInt(args[2]);
        BrokerConfig broker = new BrokerConfig();
        broker.setBrokerIP1("127.0.0.1");
        broker.setTransactionMetricFlushInterval(200);
        NettyServerConfig server = new NettyServerConfig();
        server.setListenPort(0);
        MessageStoreConfig store = new MessageStoreConfig();
        store.setStorePathRootDir(root);
        store.setStorePathCommitLog(root + "/commitlog");
        store.setMappedFileSizeCommitLog(1 << 20);
        store.setHaListenPort(0);
        store.setTransRocksDBEnable(true);
        store.setTransWriteOriginTransHalfEnable(Boolean.parseBoolean(args[1]));
        BrokerController controller = new BrokerController(broker, server, new NettyClientConfig(), store);
        if (!controller.initialize()) {
            throw new IllegalStateException("not initialized");
        }
        controller.getMessageStore().start();
        InetSocketAddress host = new InetSocketAddress("127.0.0.1", 1);
        for (int number = 0; number < halves; number++) {
            MessageExtBrokerInner message = new MessageExtBrokerInner();
            message.setTopic("T");
            message.setBody(new byte[10]);
            message.setBornHost(host);
            message.setStoreHost(host);
            message.setBornTimestamp(System.currentTimeMillis());
            MessageAccessor.putProperty(message, "UNIQ_KEY", "U" + number);
            message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
            controller.getTransactionalMessageService().prepareMessage(message);
        }
        Thread.sleep(2000);
        MessageStore messages = controller.getMessageStore();
        List<?> open = messages.getMessageRocksDBStorage()
            .scanRecordsForTrans(MessageRocksDBStorage.TRANS_COLUMN_FAMILY, 100, null);
        System.out.printf("transWriteOriginTransHalfEnable=%s: %d in %s, %d in %s, %d open in RocksDB%n", args[1],
            messages.getMaxOffsetInQueue(TopicValidator.RMQ_SYS_TRANS_HALF_TOPIC, 0), "RMQ_SYS_TRANS_HALF_TOPIC",
            messages.getMaxOffsetInQueue(TopicValidator.RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC, 0),
            "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", open.size());
        messages.shutdown();
        Runtime.getRuntime().halt(0);
    }
}
JAVA
jars_of org.apache.rocketmq:rocketmq-broker:5.5.0
run() {
    java -Duser.home="$work" -cp "5.5.0/*" Transactions.java "$@" 2>java.log | grep "^transWrite"
}
{
    run default true 3
    run alone false 3
    echo "a clean stop, and $(test -e alone/abort && echo an || echo no) abort file; rocksdbstore is lost:"
    rm -r alone/rocksdbstore
    run alone false 0
} | seen 'transWriteOriginTransHalfEnable=true: 3 in RMQ_SYS_TRANS_HALF_TOPIC, 0 in RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC, 0 open in RocksDB
transWriteOriginTransHalfEnable=false: 0 in RMQ_SYS_TRANS_HALF_TOPIC, 3 in RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC, 3 open in RocksDB
a clean stop, and no abort file; rocksdbstore is lost:
transWriteOriginTransHalfEnable=false: 0 in RMQ_SYS_TRANS_HALF_TOPIC, 3 in RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC, 0 open in RocksDB'

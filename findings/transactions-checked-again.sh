#!/usr/bin/env bash
# rocketmq-broker 4.9.3 on the store of a killed 5.5.0 broker asks producers again about transactions that have ended. An op
# message of 5.5.0 names several half messages ("0,1,3,"), where 4.9.3 expects one number: it logs "GetLong error" and goes on
# as if none had ended (`TransactionalMessageServiceImpl`). 5.5.0 asks about the open one alone.
# Seen on 2026-11-29. Needs Java 17 and Maven.
source "$(dirname "$0")/expect.sh"

cat >Broker.java <<'JAVA'
import java.util.Properties;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** A broker's parts on a store, without its ports. */
final class Broker {
    static BrokerController open(String root) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root);
        config.setStorePathCommitLog(root + "/commitlog");
        config.setMappedFileSizeCommitLog(1 << 20);
        config.setMaxHashSlotNum(1000);
        config.setMaxIndexNum(4000);
        config.setHaListenPort(0);
        BrokerConfig broker = new BrokerConfig();
        broker.setRocketmqHome(".");
        // By its name, as 4.9.3 does not have it: with the default, 5.5.0 keeps a core busy for ten seconds.
        Properties properties = new Properties();
        properties.put("transactionMetricFlushInterval", "200");
        MixAll.properties2Object(properties, broker);
        BrokerController controller =
            new BrokerController(broker, new NettyServerConfig(), new NettyClientConfig(), config);
        if (!controller.initialize()) {
            throw new IllegalStateException("not initialized");
        }
        controller.getMessageStore().start();
        return controller;
    }
}
JAVA
cat >Write.java <<'JAVA'
import java.net.InetSocketAddress;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.transaction.TransactionalMessageService;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;

public class Write {
    public static void main(String[] args) throws Exception {
        BrokerController controller = Broker.open("store");
        TransactionalMessageService service = controller.getTransactionalMessageService();
        InetSocketAddress host = new InetSocketAddress("127.0.0.1", 1);
        for (String name : new String[] {"ended-1", "ended-2", "open", "ended-3"}) {
            MessageExtBrokerInner half = new MessageExtBrokerInner();
            half.setTopic("T");
            half.setBody(new byte[10]);
            half.setBornHost(host);
            half.setStoreHost(host);
            half.setBornTimestamp(System.currentTimeMillis());
            MessageAccessor.putProperty(half, "UNIQ_KEY", name);
            MessageAccessor.putProperty(half, "PGROUP", "producers");
            MessageAccessor.putProperty(half, "TRAN_MSG", "true");
            half.setPropertiesString(MessageDecoder.messageProperties2String(half.getProperties()));
            long at = service.prepareMessage(half).getAppendMessageResult().getWroteOffset();
            if (name.startsWith("ended")) {
                service.deletePrepareMessage(controller.getMessageStore().lookMessageByOffset(at));
            }
        }
        Thread.sleep(5000); // what ends transactions is written every three seconds
        System.out.println("written");
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
JAVA
cat >Check.java <<'JAVA'
import java.util.Set;
import java.util.concurrent.ConcurrentSkipListSet;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.transaction.AbstractTransactionalMessageCheckListener;
import org.apache.rocketmq.common.message.MessageExt;

public class Check {
    public static void main(String[] args) throws Exception {
        BrokerController controller = Broker.open(args[0]);
        Thread.sleep(2000);
        Set<String> asked = new ConcurrentSkipListSet<>();
        controller.getTransactionalMessageService().check(1, 15, new AbstractTransactionalMessageCheckListener(controller) {
            @Override
            public void resolveHalfMsg(MessageExt message) {
                asked.add(message.getProperty("UNIQ_KEY"));
            }

            @Override
            public void resolveDiscardMsg(MessageExt message) {
                asked.add("discarded " + message.getProperty("UNIQ_KEY"));
            }
        });
        Thread.sleep(1000);
        System.out.println("asked about: " + asked);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
JAVA
opens=()
for package in java.nio sun.nio.ch jdk.internal.ref; do
    opens+=("--add-opens=java.base/$package=ALL-UNNAMED")
done
jars_of org.apache.rocketmq:rocketmq-broker:4.9.3
jars_of org.apache.rocketmq:rocketmq-broker:5.5.0
javac -d classes-5.5.0 -cp "5.5.0/*" Broker.java Write.java Check.java
javac -d classes-4.9.3 -cp "4.9.3/*" Broker.java Check.java
java -Duser.home="$work" -cp "classes-5.5.0:5.5.0/*" Write >written.txt 2>java.log
grep -q "^written" written.txt
for release in 4.9.3 5.5.0; do
    cp -r store "store-$release"
    java "${opens[@]}" -Duser.home="$work" -cp "classes-$release:$release/*" Check "store-$release" >"$release.txt" 2>&1 &
done
wait
for release in 4.9.3 5.5.0; do
    echo "$release $(grep "^asked" "$release.txt")"
done | seen '4.9.3 asked about: [ended-1, ended-2, ended-3, open]
5.5.0 asked about: [open]'

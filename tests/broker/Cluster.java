import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** The name server's address, and what every subcommand does with it. */
final class Cluster {
    private static final int ROUTE_WAIT_MS_MAX = 30_000;
    private static final int ROUTE_POLL_MS = 50;
    private final String nameServer;

    Cluster(Arguments arguments) {
        nameServer = arguments.text("namesrv");
    }

    /** Settings of every client: no address but loopback, and a broker that came back is seen within a second. */
    <T extends ClientConfig> T configure(T client) {
        client.setNamesrvAddr(nameServer);
        client.setClientIP("127.0.0.1");
        client.setPollNameServerInterval(1000);
        client.setVipChannelEnabled(false);
        return client;
    }

    /** A producer that never sends a message twice on its own, so that counts are exact. */
    <T extends DefaultMQProducer> T configureProducer(T producer, Arguments arguments) {
        configure(producer);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.setSendMsgTimeout(arguments.number("sendTimeoutMs", 10_000));
        producer.setCompressMsgBodyOverHowmuch(arguments.number("compressOver", 4096));
        return producer;
    }

    /** Makes the topics on every master broker. */
    void createTopics(List<Arguments.Topic> topics) throws Exception {
        createTopics(topics, Map.of());
    }

    /** Makes the topics with attributes, which only 5.x knows: {@code +queue.type=BatchCQ}. */
    void createTopics(List<Arguments.Topic> topics, Map<String, String> attributes) throws Exception {
        DefaultMQAdminExt admin = configure(new DefaultMQAdminExt());
        admin.start();
        try {
            for (var broker : admin.examineBrokerClusterInfo().getBrokerAddrTable().values()) {
                String address = broker.getBrokerAddrs().get(0L);
                for (Arguments.Topic topic : topics) {
                    TopicConfig config = new TopicConfig(topic.name);
                    config.setReadQueueNums(topic.queues);
                    config.setWriteQueueNums(topic.queues);
                    if (!attributes.isEmpty()) {
                        // By its name, so that this compiles against 4.9.3.
                        TopicConfig.class.getMethod("setAttributes", Map.class).invoke(config, attributes);
                    }
                    admin.createAndUpdateTopicConfig(address, config);
                }
            }
        } finally {
            admin.shutdown();
        }
    }

    /** Every queue of each topic, in order, once the name server knows the route. */
    static List<List<MessageQueue>> queues(DefaultMQProducer producer, List<Arguments.Topic> topics)
        throws Exception {
        List<List<MessageQueue>> result = new ArrayList<>();
        for (Arguments.Topic topic : topics) {
            long deadline = System.currentTimeMillis() + ROUTE_WAIT_MS_MAX;
            List<MessageQueue> queues = queuesNow(producer, topic.name);
            while (queues.size() < topic.queues) {
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException("no route to " + topic.name + ", only " + queues);
                }
                Thread.sleep(ROUTE_POLL_MS);
                queues = queuesNow(producer, topic.name);
            }
            queues.sort(Comparator.naturalOrder());
            result.add(queues);
        }
        return result;
    }

    private static List<MessageQueue> queuesNow(DefaultMQProducer producer, String topic) {
        try {
            return new ArrayList<>(producer.fetchPublishMessageQueues(topic));
        } catch (MQClientException e) {
            // What a topic without a route answers; the caller asks again and gives up in time.
            return new ArrayList<>();
        }
    }

    /** Has the broker serve the group by POP; by names, so that this compiles against 4.9.3. */
    void popMode(DefaultMQPushConsumer consumer, String group, String topic) throws Exception {
        DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
        Class<?> mode = Class.forName("org.apache.rocketmq.common.message.MessageRequestMode");
        DefaultMQAdminExt admin = configure(new DefaultMQAdminExt());
        admin.start();
        try {
            for (var broker : admin.examineBrokerClusterInfo().getBrokerAddrTable().values()) {
                DefaultMQAdminExt.class
                    .getMethod("setMessageRequestMode", String.class, String.class, String.class, mode, int.class, long.class)
                    .invoke(admin, broker.getBrokerAddrs().get(0L), topic, group, mode.getField("POP").get(null), 8, 5000L);
            }
        } finally {
            admin.shutdown();
        }
    }

    /** Has each consumer of the group get all messages; by names, because 4.9.3 and 5.x have the type in other packages. */
    static void broadcasting(DefaultMQPushConsumer consumer) throws Exception {
        for (Method method : DefaultMQPushConsumer.class.getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                method.invoke(consumer, method.getParameterTypes()[0].getField("BROADCASTING").get(null));
            }
        }
    }
}

import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The subcommand "retry": messages whose consumer fails, so that they go through the delay topic and the %RETRY% topic of the
 * group, and after {@code reconsumeTimes} into its %DLQ% topic.
 */
final class Retry {
    private static final int POLL_MS = 100;

    private final Cluster cluster;
    private final List<Arguments.Topic> topics;
    private final int count;
    private final String group;
    private final int reconsumeTimes;
    private final long timeoutMs;
    private final MessageMaker maker;
    private final Acks acks;
    private final DefaultMQProducer producer;
    private final DefaultMQPushConsumer consumer;
    private final AtomicLong failures = new AtomicLong();
    private final AtomicLong last = new AtomicLong();

    Retry(Cluster cluster, Arguments arguments) throws Exception {
        this.cluster = cluster;
        topics = arguments.topics();
        count = arguments.number("count", 50);
        group = arguments.text("group", "reput-retry");
        reconsumeTimes = arguments.number("reconsumeTimes", 2);
        timeoutMs = 1000L * arguments.number("timeoutSeconds", 60);
        long seed = arguments.longNumber("seed", 1);
        maker = new MessageMaker(new MessageMaker.Shape(arguments), seed, "r" + seed);
        acks = new Acks(arguments);
        producer = cluster.configureProducer(new DefaultMQProducer("reput-retry-send"), arguments);
        consumer = cluster.configure(new DefaultMQPushConsumer(group));
        arguments.refuseUnread();
    }

    /** "failures" counts what the consumer refused, "dead" the messages that it refused for the last time. */
    Map<String, Object> run() throws Exception {
        cluster.createTopics(topics);
        producer.start();
        List<List<MessageQueue>> queues = Cluster.queues(producer, topics);
        startConsumer();
        for (int i = 0; i < count; i++) {
            List<MessageQueue> choice = queues.get(maker.below(queues.size()));
            MessageQueue queue = choice.get(maker.below(choice.size()));
            Message message = maker.make(queue.getTopic());
            try {
                acks.answered(List.of(message), producer.send(message, queue));
            } catch (Exception e) {
                acks.failed(1, e);
            }
        }
        long deadline = System.currentTimeMillis() + timeoutMs;
        while (last.get() < count && System.currentTimeMillis() < deadline) {
            Thread.sleep(POLL_MS);
        }
        consumer.shutdown();
        producer.shutdown();
        acks.close();
        Map<String, Object> report = acks.report();
        report.put("failures", failures.get());
        report.put("dead", last.get());
        return report;
    }

    private void startConsumer() throws Exception {
        for (Arguments.Topic topic : topics) {
            consumer.subscribe(topic.name, "*");
        }
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(reconsumeTimes);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            // The first delay level: a second, instead of ten and more.
            context.setDelayLevelWhenNextConsume(1);
            for (MessageExt message : messages) {
                failures.incrementAndGet();
                if (message.getReconsumeTimes() >= reconsumeTimes) {
                    last.incrementAndGet();
                }
            }
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
    }
}

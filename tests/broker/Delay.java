import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** The subcommand "delay": {@code count} messages over the delay levels in turn. */
final class Delay {
    private final Cluster cluster;
    private final List<Arguments.Topic> topics;
    private final int count;
    private final int levelMin;
    private final int levelMax;
    private final MessageMaker maker;
    private final DefaultMQProducer producer;
    private final Acks acks;

    Delay(Cluster cluster, Arguments arguments) throws Exception {
        this.cluster = cluster;
        topics = arguments.topics();
        count = arguments.number("count", 36);
        levelMin = arguments.number("levelMin", 1);
        levelMax = arguments.number("levelMax", 18);
        long seed = arguments.longNumber("seed", 1);
        maker = new MessageMaker(new MessageMaker.Shape(arguments), seed, "d" + seed);
        producer = cluster.configureProducer(new DefaultMQProducer("reput-delay"), arguments);
        acks = new Acks(arguments);
        arguments.refuseUnread();
    }

    /** "topics" and "levels" count acknowledged messages; the offsets in "sample" are those of the delay topic. */
    Map<String, Object> run() throws Exception {
        cluster.createTopics(topics);
        producer.start();
        List<List<MessageQueue>> queues = Cluster.queues(producer, topics);
        Map<Integer, Long> levels = new TreeMap<>();
        for (int i = 0; i < count; i++) {
            List<MessageQueue> choice = queues.get(maker.below(queues.size()));
            MessageQueue queue = choice.get(maker.below(choice.size()));
            Message message = maker.make(queue.getTopic());
            int level = levelMin + i % (levelMax - levelMin + 1);
            message.setDelayTimeLevel(level);
            try {
                acks.answered(List.of(message), producer.send(message, queue));
                levels.merge(level, 1L, Long::sum);
            } catch (Exception e) {
                acks.failed(1, e);
            }
        }
        producer.shutdown();
        acks.close();
        Map<String, Object> report = acks.report();
        report.put("levels", levels);
        return report;
    }
}

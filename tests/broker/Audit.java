import java.io.BufferedWriter;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.MQAdminImpl;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * The subcommand "audit": many questions to one broker in one process.
 *
 * <p>{@code planFile=} holds a question a line, its words percent-encoded and separated by tabs;
 * {@code answersFile=} gets a line of JSON for each, in the same order, {"error": ...} where the question failed:
 *
 * <ul>
 *   <li>{@code status}: the broker's runtime figures by name.
 *   <li>{@code bounds topic queueId}: "min" and "max".
 *   <li>{@code units topic queueId}: "units", each [offset, size, tagsCode, unit of ConsumeQueueExt or null], as the
 *       broker itself reads its queue.
 *   <li>{@code pull topic queueId TAG|SQL92 expression}: "messages", each [queueOffset, physicalOffset, uniqKey].
 *   <li>{@code push group topic expression [topic expression ...]}: "found" physical offsets that a push consumer of that
 *       group with these SQL92 subscriptions got, and "expected" ones: those for which RocketMQ's own evaluator says true.
 *   <li>{@code key|uniq topic key}: "found" physical offsets, from the index.
 * </ul>
 */
@SuppressWarnings("deprecation")
final class Audit {
    private static final int PULL_MAX = 1000;
    private static final int QUERY_MAX = 64;
    private static final int NO_MESSAGE = 208;
    private static final long QUESTION_MS_MAX = 60_000;

    private final Path plan;
    private final Path answers;
    private final DefaultMQPullConsumer consumer;
    private final DefaultMQAdminExt admin;
    private final Cluster cluster;
    private String brokerName;
    private String brokerAddress;

    Audit(Cluster cluster, Arguments arguments) {
        this.cluster = cluster;
        plan = Path.of(arguments.text("planFile"));
        answers = Path.of(arguments.text("answersFile"));
        arguments.refuseUnread();
        consumer = cluster.configure(new DefaultMQPullConsumer("reput-audit"));
        admin = cluster.configure(new DefaultMQAdminExt());
    }

    Map<String, Object> run() throws Exception {
        List<String[]> questions = new ArrayList<>();
        for (String line : Files.readAllLines(plan, StandardCharsets.US_ASCII)) {
            String[] words = line.split("\t", -1);
            for (int i = 0; i < words.length; i++) {
                words[i] = URLDecoder.decode(words[i], StandardCharsets.UTF_8);
            }
            questions.add(words);
        }
        consumer.start();
        admin.start();
        findBroker(questions);
        List<String> lines = questions.parallelStream().map(this::answer).map(Json::write).collect(Collectors.toList());
        try (BufferedWriter file = Files.newBufferedWriter(answers, StandardCharsets.US_ASCII)) {
            for (String line : lines) {
                file.write(line);
                file.newLine();
            }
        }
        consumer.shutdown();
        admin.shutdown();
        return Json.object("questions", questions.size());
    }

    private MQClientInstance factory() {
        return consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory();
    }

    /** Lets the client know the broker's address and, by a heartbeat, its version: without it SQL92 is refused. */
    private void findBroker(List<String[]> questions) throws Exception {
        var broker = admin.examineBrokerClusterInfo().getBrokerAddrTable().values().iterator().next();
        brokerName = broker.getBrokerName();
        brokerAddress = broker.getBrokerAddrs().get(0L);
        Set<String> topics = new HashSet<>();
        topics.add(brokerName);
        for (String[] words : questions) {
            if (words.length > 1) {
                topics.add(words[1]);
            }
        }
        topics.forEach(factory()::updateTopicRouteInfoFromNameServer);
        factory().sendHeartbeatToAllBrokerWithLock();
    }

    private Map<String, Object> answer(String[] words) {
        try {
            switch (words[0]) {
                case "status":
                    return new HashMap<>(admin.fetchBrokerRuntimeStats(brokerAddress).getTable());
                case "bounds":
                    MessageQueue queue = queue(words);
                    return Json.object("min", consumer.minOffset(queue), "max", consumer.maxOffset(queue));
                case "units":
                    return units(queue(words));
                case "pull":
                    return Json.object("messages", pull(queue(words), selector(words[3], words[4])).stream()
                        .map(Audit::place).collect(Collectors.toList()));
                case "push":
                    return push(words[1], List.of(words).subList(2, words.length));
                case "key":
                case "uniq":
                    return Json.object("found", find(words[1], words[2], words[0].equals("uniq")));
                default:
                    throw new IllegalArgumentException("unknown question " + words[0]);
            }
        } catch (Exception e) {
            return Json.object("error", e.toString());
        }
    }

    private MessageQueue queue(String[] words) {
        return new MessageQueue(words[1], brokerName, Integer.parseInt(words[2]));
    }

    private static MessageSelector selector(String type, String expression) {
        return type.equals("TAG") ? MessageSelector.byTag(expression) : MessageSelector.bySql(expression);
    }

    private static List<Object> place(MessageExt message) {
        return Arrays.asList(message.getQueueOffset(), message.getCommitLogOffset(), message.getProperty("UNIQ_KEY"));
    }

    private Map<String, Object> units(MessageQueue queue) throws Exception {
        List<Object> units = new ArrayList<>();
        long index = consumer.minOffset(queue);
        long max = consumer.maxOffset(queue);
        while (index < max) {
            var data = admin.queryConsumeQueue(
                brokerAddress, queue.getTopic(), queue.getQueueId(), index, PULL_MAX, null).getQueueData();
            if (data == null || data.isEmpty()) {
                throw new IllegalStateException("no unit at " + index + " of " + max);
            }
            for (var unit : data) {
                units.add(Arrays.asList(
                    unit.getPhysicOffset(), unit.getPhysicSize(), unit.getTagsCode(), unit.getExtendDataJson()));
            }
            index += data.size();
        }
        return Json.object("units", units);
    }

    /** Everything in a queue from its first offset; ends when the broker has no more or moves no further. */
    private List<MessageExt> pull(MessageQueue queue, MessageSelector selector) throws Exception {
        List<MessageExt> messages = new ArrayList<>();
        long deadline = System.currentTimeMillis() + QUESTION_MS_MAX;
        long next = consumer.minOffset(queue);
        while (true) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("not done in " + QUESTION_MS_MAX + " ms, at offset " + next);
            }
            PullResult result = consumer.pull(queue, selector, next, PULL_MAX);
            if (result.getPullStatus() == PullStatus.FOUND) {
                messages.addAll(result.getMsgFoundList());
            }
            if (result.getPullStatus() == PullStatus.NO_NEW_MSG || result.getNextBeginOffset() <= next) {
                return messages;
            }
            next = result.getNextBeginOffset();
        }
    }

    private Map<String, Object> push(String group, List<String> topicsAndExpressions) throws Exception {
        List<Long> expected = new ArrayList<>();
        Map<String, String> subscriptions = new LinkedHashMap<>();
        for (int i = 0; i < topicsAndExpressions.size(); i += 2) {
            subscriptions.put(topicsAndExpressions.get(i), topicsAndExpressions.get(i + 1));
        }
        for (Map.Entry<String, String> subscription : subscriptions.entrySet()) {
            expected.addAll(matching(subscription.getKey(), subscription.getValue()));
        }
        // 5.x refuses offsets of a group that it does not know.
        var config = admin.examineSubscriptionGroupConfig(brokerAddress, "TOOLS_CONSUMER");
        config.setGroupName(group);
        admin.createAndUpdateSubscriptionGroupConfig(brokerAddress, config);
        for (String topic : subscriptions.keySet()) {
            for (MessageQueue queue : queues(topic)) {
                // A pull below the queue's first offset makes the broker put an OFFSET_MOVED_EVENT into the log.
                admin.updateConsumeOffset(brokerAddress, group, queue, consumer.minOffset(queue));
            }
        }
        SqlConsumer pushed = new SqlConsumer(cluster, group, subscriptions);
        try {
            return Json.object("expected", expected, "found", pushed.await(expected.size(), QUESTION_MS_MAX));
        } finally {
            pushed.shutdown();
        }
    }

    private List<Long> matching(String topic, String sql) throws Exception {
        List<Long> offsets = new ArrayList<>();
        Expression expression = FilterFactory.INSTANCE.get("SQL92").compile(sql);
        for (MessageQueue queue : queues(topic)) {
            for (MessageExt message : pull(queue, MessageSelector.byTag("*"))) {
                if (isTrue(expression, message.getProperties())) {
                    offsets.add(message.getCommitLogOffset());
                }
            }
        }
        return offsets;
    }

    private List<MessageQueue> queues(String topic) throws Exception {
        List<MessageQueue> queues = new ArrayList<>();
        int count = admin.examineTopicConfig(brokerAddress, topic).getReadQueueNums();
        for (int i = 0; i < count; i++) {
            queues.add(new MessageQueue(topic, brokerName, i));
        }
        return queues;
    }

    /** What the broker calls a match; an evaluation that throws is none. */
    private static boolean isTrue(Expression expression, Map<String, String> properties) {
        try {
            return Boolean.TRUE.equals(expression.evaluate(new EvaluationContext() {
                @Override
                public Object get(String name) {
                    return properties.get(name);
                }

                @Override
                public Map<String, Object> keyValues() {
                    return new HashMap<>(properties);
                }
            }));
        } catch (Exception e) {
            return false;
        }
    }

    private List<Long> find(String topic, String key, boolean unique) throws Exception {
        MQAdminImpl index = factory().getMQAdminImpl();
        try {
            var result = unique
                ? index.queryMessageByUniqKey(topic, key, QUERY_MAX, 0, Long.MAX_VALUE)
                : index.queryMessage(topic, key, QUERY_MAX, 0, Long.MAX_VALUE);
            return result.getMessageList().stream().map(MessageExt::getCommitLogOffset).collect(Collectors.toList());
        } catch (MQClientException e) {
            if (e.getResponseCode() != NO_MESSAGE) {
                throw e;
            }
            return List.of();
        }
    }
}

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.MQAdminImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;

/** The subcommand "query": messages by topic and key, or by unique key, from the broker's index. */
final class Query {
    private static final int NO_MESSAGE = 208;

    private final String topic;
    private final List<String> keys;
    private final boolean unique;
    private final int max;
    private final long begin;
    private final long end;
    private final DefaultMQProducer producer;

    /** {@code key=} one key or {@code keysFile=} a file of UTF-8 lines; {@code kind=key} or {@code kind=uniq}. */
    Query(Cluster cluster, Arguments arguments) throws Exception {
        topic = arguments.text("topic");
        String path = arguments.text("keysFile", "");
        keys = path.isEmpty() ? List.of(arguments.text("key")) : Files.readAllLines(Path.of(path), StandardCharsets.UTF_8);
        String kind = arguments.text("kind", "key");
        unique = kind.equals("uniq");
        max = arguments.number("max", 64);
        begin = arguments.longNumber("begin", 0);
        end = arguments.longNumber("end", Long.MAX_VALUE);
        producer = cluster.configure(new DefaultMQProducer("reput-query"));
        arguments.refuseUnread();
        if (!unique && !kind.equals("key")) {
            throw new IllegalArgumentException("kind is key or uniq, found " + kind);
        }
    }

    Map<String, Object> run() throws Exception {
        producer.start();
        producer.fetchPublishMessageQueues(topic);
        Map<String, Object> results = new LinkedHashMap<>();
        for (String key : keys) {
            results.put(key, find(key));
        }
        producer.shutdown();
        return Json.object("topic", topic, "results", results);
    }

    /** The messages found, by physical offset; none is an empty list. */
    private List<Object> find(String key) throws Exception {
        List<MessageExt> found;
        try {
            found = new ArrayList<>(ask(key).getMessageList());
        } catch (MQClientException e) {
            if (e.getResponseCode() != NO_MESSAGE) {
                throw e;
            }
            found = List.of();
        }
        List<Object> result = new ArrayList<>();
        found.stream()
            .sorted(Comparator.comparingLong(MessageExt::getCommitLogOffset))
            .forEach(message -> result.add(Messages.describe(message)));
        return result;
    }

    private QueryResult ask(String key) throws Exception {
        // The one public way that asks the index for a unique key in both 4.9.3 and 5.5.0.
        MQAdminImpl admin = producer.getDefaultMQProducerImpl().getmQClientFactory().getMQAdminImpl();
        return unique
            ? admin.queryMessageByUniqKey(topic, key, max, begin, end)
            : admin.queryMessage(topic, key, max, begin, end);
    }
}

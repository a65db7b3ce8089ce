import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The subcommand "subscribe": SQL92 push consumers, group {@code GROUP-i} with the i-th of {@code expressions=} (separated by
 * "|") on every topic. {@code readyFile=} is made when the broker knows them all; they stay for {@code seconds=}.
 */
final class Subscribe {
    private static final int HEARTBEAT_MS = 1500;

    private final Cluster cluster;
    private final List<Arguments.Topic> topics;
    private final String group;
    private final String[] expressions;
    private final Path readyFile;
    private final long stayMs;

    Subscribe(Cluster cluster, Arguments arguments) {
        this.cluster = cluster;
        topics = arguments.topics();
        group = arguments.text("group", "reput-sql");
        expressions = arguments.text("expressions").split("\\|");
        readyFile = Path.of(arguments.text("readyFile"));
        stayMs = 1000L * arguments.number("seconds", 10);
        arguments.refuseUnread();
    }

    /** "delivered" counts messages by group. */
    Map<String, Object> run() throws Exception {
        cluster.createTopics(topics);
        List<SqlConsumer> consumers = new ArrayList<>();
        for (int i = 0; i < expressions.length; i++) {
            Map<String, String> subscriptions = new LinkedHashMap<>();
            for (Arguments.Topic topic : topics) {
                subscriptions.put(topic.name, expressions[i]);
            }
            consumers.add(new SqlConsumer(cluster, group + "-" + i, subscriptions));
        }
        // start() has sent a heartbeat; another one goes out every second, should the route have been late.
        Thread.sleep(HEARTBEAT_MS);
        Files.createFile(readyFile);
        Thread.sleep(stayMs);
        Map<String, Object> delivered = new LinkedHashMap<>();
        for (int i = 0; i < expressions.length; i++) {
            delivered.put(group + "-" + i, consumers.get(i).size());
            consumers.get(i).shutdown();
        }
        return Json.object("delivered", delivered);
    }
}

import java.io.BufferedOutputStream;
import java.io.BufferedWriter;
import java.io.DataOutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The subcommand "consume": everything in the topics, from each queue's first offset. */
@SuppressWarnings("deprecation")
final class Consumer {
    private static final int PULL_MAX = 1000;
    private static final int IDLE_MS = 100;

    /** How far one queue has been read, and what was in it. */
    private static final class Progress {
        final MessageQueue queue;
        final long minOffset;
        final BitSet seen = new BitSet();
        final MessageDigest digest;
        long next;
        long count;

        Progress(MessageQueue queue, long minOffset) throws Exception {
            this.queue = queue;
            this.minOffset = minOffset;
            this.next = minOffset;
            this.digest = MessageDigest.getInstance("SHA-256");
        }
    }

    private final Cluster cluster;
    private final List<Arguments.Topic> topics;
    private final long count;
    private final long deadline;
    private final MessageSelector selector;
    private final String path;
    private final String offsetsPath;
    private final DefaultMQPullConsumer client;
    private BufferedWriter file;
    private DataOutputStream offsets;
    private long total;

    /**
     * {@code count=0}: until each queue's end, as it is when reached; else until so many messages or
     * {@code timeoutSeconds}. {@code tags=} or {@code sql=} let the broker filter. {@code messagesFile=}
     * gets a line of JSON for each message, {@code offsetsFile=} eight bytes, the physical offset; then there are no
     * digests.
     */
    Consumer(Cluster cluster, Arguments arguments) {
        this.cluster = cluster;
        topics = arguments.topics();
        count = arguments.longNumber("count", 0);
        deadline = System.currentTimeMillis() + 1000L * arguments.number("timeoutSeconds", 60);
        String sql = arguments.text("sql", "");
        String tags = arguments.text("tags", "*");
        selector = sql.isEmpty() ? MessageSelector.byTag(tags) : MessageSelector.bySql(sql);
        path = arguments.text("messagesFile", "");
        offsetsPath = arguments.text("offsetsFile", "");
        client = cluster.configure(new DefaultMQPullConsumer("reput-consume"));
        arguments.refuseUnread();
    }

    Map<String, Object> run() throws Exception {
        client.start();
        List<Progress> queues = new ArrayList<>();
        for (Arguments.Topic topic : topics) {
            for (MessageQueue queue : client.fetchSubscribeMessageQueues(topic.name)) {
                queues.add(new Progress(queue, client.minOffset(queue)));
            }
        }
        if (!selector.getExpressionType().equals("TAG")) {
            learnBrokerVersions();
        }
        file = path.isEmpty() ? null : Files.newBufferedWriter(Path.of(path), StandardCharsets.UTF_8);
        offsets = offsetsPath.isEmpty()
            ? null : new DataOutputStream(new BufferedOutputStream(Files.newOutputStream(Path.of(offsetsPath))));
        boolean more = true;
        while (more) {
            boolean found = false;
            for (Progress progress : queues) {
                found |= pullToEnd(progress);
            }
            more = count > 0 && total < count && System.currentTimeMillis() < deadline;
            if (more && !found) {
                Thread.sleep(IDLE_MS);
            }
        }
        if (file != null) {
            file.close();
        }
        if (offsets != null) {
            offsets.close();
        }
        Map<String, Object> report = report(queues);
        client.shutdown();
        return report;
    }

    /** The client refuses to filter by SQL92 before a heartbeat told it the broker's version. */
    private void learnBrokerVersions() {
        MQClientInstance factory = client.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory();
        for (Arguments.Topic topic : topics) {
            factory.updateTopicRouteInfoFromNameServer(topic.name);
        }
        factory.sendHeartbeatToAllBrokerWithLock();
    }

    /** Pulls what the queue holds now; true if there was any. */
    private boolean pullToEnd(Progress progress) throws Exception {
        boolean found = false;
        while (System.currentTimeMillis() < deadline && (count == 0 || total < count)) {
            PullResult result = client.pull(progress.queue, selector, progress.next, PULL_MAX);
            boolean advanced = result.getNextBeginOffset() > progress.next;
            progress.next = Math.max(progress.next, result.getNextBeginOffset());
            if (result.getPullStatus() == PullStatus.FOUND) {
                for (MessageExt message : result.getMsgFoundList()) {
                    add(progress, message);
                }
                found = true;
            } else if (result.getPullStatus() == PullStatus.NO_NEW_MSG || !advanced) {
                return found;
            }
        }
        return found;
    }

    private void add(Progress progress, MessageExt message) throws Exception {
        total++;
        progress.count++;
        progress.seen.set((int) (message.getQueueOffset() - progress.minOffset));
        if (offsets != null) {
            offsets.writeLong(message.getCommitLogOffset());
            return;
        }
        String line = Json.write(Messages.describe(message));
        progress.digest.update(line.getBytes(StandardCharsets.US_ASCII));
        if (file != null) {
            file.write(line);
            file.newLine();
        }
    }

    private Map<String, Object> report(List<Progress> queues) throws Exception {
        Map<String, Map<Integer, Object>> byTopic = new TreeMap<>();
        Map<String, Long> counts = new TreeMap<>();
        long distinct = 0;
        boolean complete = true;
        for (Progress progress : queues) {
            long maxOffset = client.maxOffset(progress.queue);
            distinct += progress.seen.cardinality();
            complete &= progress.next >= maxOffset;
            counts.merge(progress.queue.getTopic(), progress.count, Long::sum);
            byTopic.computeIfAbsent(progress.queue.getTopic(), topic -> new TreeMap<>()).put(
                progress.queue.getQueueId(),
                Json.object(
                    "count", progress.count,
                    "distinct", progress.seen.cardinality(),
                    "min_offset", progress.minOffset,
                    "max_offset", maxOffset,
                    "digest", hex(progress.digest.digest())));
        }
        return Json.object(
            "count", total,
            "distinct", distinct,
            "complete", complete,
            "topics", counts,
            "queues", byTopic);
    }

    private static String hex(byte[] bytes) {
        StringBuilder out = new StringBuilder();
        for (byte b : bytes) {
            out.append(String.format("%02x", b));
        }
        return out.toString();
    }
}

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** A push consumer with SQL92 subscriptions (expression by topic), from the first message; the broker filters by the group's bitmaps. */
final class SqlConsumer {
    private static final int POLL_MS = 50;
    private static final int LATE_MS = 500;

    private final DefaultMQPushConsumer client;
    private final List<Long> offsets = new ArrayList<>();

    SqlConsumer(Cluster cluster, String group, Map<String, String> subscriptions) throws Exception {
        client = cluster.configure(new DefaultMQPushConsumer(group));
        client.setInstanceName(group);
        client.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        for (Map.Entry<String, String> subscription : subscriptions.entrySet()) {
            client.subscribe(subscription.getKey(), MessageSelector.bySql(subscription.getValue()));
        }
        client.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            synchronized (offsets) {
                messages.stream().map(MessageExt::getCommitLogOffset).forEach(offsets::add);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        client.start();
    }

    /** What has come once there is {@code count}, and a moment later; or when the time is over. */
    List<Long> await(int count, long timeoutMs) throws InterruptedException {
        long deadline = System.currentTimeMillis() + timeoutMs;
        while (size() < count && System.currentTimeMillis() < deadline) {
            Thread.sleep(POLL_MS);
        }
        // One message too many would come late.
        Thread.sleep(LATE_MS);
        synchronized (offsets) {
            return new ArrayList<>(offsets);
        }
    }

    int size() {
        synchronized (offsets) {
            return offsets.size();
        }
    }

    void shutdown() {
        client.shutdown();
    }
}

import java.lang.reflect.Constructor;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * The subcommand "traces": messages with the keys {@code KEY-0} to {@code KEY-3} and one without keys, sent and consumed by clients that
 * write message traces to {@code traceTopic=} (empty: RMQ_SYS_TRACE_TOPIC). A consumer fails KEY-1 once by its result, and KEY-2 once by
 * an exception; KEY-4 is a transaction that is committed, KEY-5 one that is rolled back.
 *
 * <p>The groups are {@code traced} (concurrently), {@code traced-orderly}, {@code untraced}, and with {@code pop=true} {@code popped},
 * which the broker serves by POP and which writes no traces.
 */
final class Traces {
    private static final int POLL_MS = 50;
    private static final String NO_TRACE = "-";

    private final Cluster cluster;
    private final Arguments arguments;
    private final Arguments.Topic topic;
    private final String traceTopic;
    private final boolean pop;
    private final long timeoutMs;
    private final List<Object> deliveries = new ArrayList<>();
    private final List<DefaultMQPushConsumer> consumers = new ArrayList<>();
    private final List<Object> sent = new ArrayList<>();

    Traces(Cluster cluster, Arguments arguments) {
        this.cluster = cluster;
        this.arguments = arguments;
        topic = arguments.topics().get(0);
        traceTopic = arguments.text("traceTopic", "");
        pop = Boolean.parseBoolean(arguments.text("pop", "false"));
        timeoutMs = 1000L * arguments.number("timeoutSeconds", 60);
        arguments.number("sendTimeoutMs", 10_000);
        arguments.number("compressOver", 4096);
        arguments.refuseUnread();
    }

    /** "sent" are the messages; "deliveries" what each consumer got, when its listener began and ended, and what that said. */
    Map<String, Object> run() throws Exception {
        cluster.createTopics(List.of(topic));
        DefaultMQProducer producer = cluster.configureProducer(new DefaultMQProducer("traced-producer", true, customTopic()), arguments);
        producer.start();
        Cluster.queues(producer, List.of(topic));
        consume("traced", customTopic(), false, false);
        consume("traced-orderly", customTopic(), true, false);
        consume("untraced", NO_TRACE, false, false);
        if (pop) {
            consume("popped", NO_TRACE, false, true);
        }
        for (String key : new String[] {"KEY-0", "KEY-1 second", "KEY-2", "KEY-3", null}) {
            Message message = new Message(topic.name, "tag", "body".getBytes());
            if (key != null) {
                message.setKeys(key);
            }
            note(key, producer.send(message));
        }
        transactions();
        // Six messages are to be consumed, two of them twice.
        int expected = 8 * consumers.size();
        long deadline = System.currentTimeMillis() + timeoutMs;
        while (count() < expected && System.currentTimeMillis() < deadline) {
            Thread.sleep(POLL_MS);
        }
        // A trace and an acknowledgement leave the client after this time at most.
        Thread.sleep(6000);
        consumers.forEach(DefaultMQPushConsumer::shutdown);
        producer.shutdown();
        synchronized (deliveries) {
            return Json.object("sent", sent, "deliveries", new ArrayList<>(deliveries));
        }
    }

    private String customTopic() {
        return traceTopic.isEmpty() ? null : traceTopic;
    }

    private void note(String key, SendResult result) {
        sent.add(Json.object("keys", key, "uniq_key", result.getMsgId(), "queue_id", result.getMessageQueue().getQueueId()));
    }

    private int count() {
        synchronized (deliveries) {
            return deliveries.size();
        }
    }

    private void transactions() throws Exception {
        TransactionMQProducer producer = cluster.configureProducer(transactionProducer(), arguments);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                return (LocalTransactionState) state;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.UNKNOW;
            }
        });
        producer.start();
        Cluster.queues(producer, List.of(topic));
        Message kept = new Message(topic.name, "tag", "KEY-4", "body".getBytes());
        note("KEY-4", producer.sendMessageInTransaction(kept, LocalTransactionState.COMMIT_MESSAGE));
        Message dropped = new Message(topic.name, "tag", "KEY-5", "body".getBytes());
        note("KEY-5", producer.sendMessageInTransaction(dropped, LocalTransactionState.ROLLBACK_MESSAGE));
        producer.shutdown();
    }

    /** A producer with traces; 4.9.3 and 5.x have other constructors. */
    private TransactionMQProducer transactionProducer() throws Exception {
        for (Constructor<?> each : TransactionMQProducer.class.getConstructors()) {
            Class<?>[] types = each.getParameterTypes();
            if (types.length == 5 && types[2] == RPCHook.class && types[3] == boolean.class) {
                return (TransactionMQProducer) each.newInstance(null, "traced-transactions", null, true, customTopic());
            }
        }
        Class<?>[] types = {String.class, RPCHook.class, boolean.class, String.class};
        return TransactionMQProducer.class.getConstructor(types).newInstance("traced-transactions", null, true, customTopic());
    }

    private void consume(String group, String customTopic, boolean orderly, boolean byPop) throws Exception {
        boolean traces = !NO_TRACE.equals(customTopic);
        DefaultMQPushConsumer consumer = traces ? new DefaultMQPushConsumer(group, true, customTopic) : new DefaultMQPushConsumer(group);
        cluster.configure(consumer);
        consumer.setInstanceName(group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setSuspendCurrentQueueTimeMillis(1000);
        consumer.subscribe(topic.name, "*");
        if (byPop) {
            cluster.popMode(consumer, group, topic.name);
        }
        if (orderly) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                handle(group, messages.get(0)) ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                context.setDelayLevelWhenNextConsume(1);
                return handle(group, messages.get(0)) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
        }
        consumer.start();
        consumers.add(consumer);
    }

    private boolean handle(String group, MessageExt message) {
        long began = System.currentTimeMillis();
        String keys = message.getKeys();
        boolean first = message.getReconsumeTimes() == 0 && firstTime(group, message);
        boolean fails = first && keys != null && keys.startsWith("KEY-1");
        boolean raises = first && keys != null && keys.startsWith("KEY-2");
        try {
            Thread.sleep(20);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        synchronized (deliveries) {
            deliveries.add(Json.object(
                "group", group,
                "keys", keys,
                "uniq_key", message.getMsgId(),
                "reconsume_times", message.getReconsumeTimes(),
                "began_ms", began,
                "ended_ms", System.currentTimeMillis(),
                "success", !fails && !raises));
        }
        if (raises) {
            throw new IllegalStateException("refused");
        }
        return !fails;
    }

    private final java.util.Set<String> seen = new java.util.HashSet<>();

    private boolean firstTime(String group, MessageExt message) {
        synchronized (seen) {
            return seen.add(group + message.getMsgId());
        }
    }
}

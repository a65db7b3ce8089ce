import java.io.BufferedWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * The subcommand "groups": consumer groups that start, stop, are reset and are deleted by a {@code planFile=}, while messages are sent at
 * {@code rate=} a second for {@code seconds=} from {@code startMs=} on. A message has the keys {@code K<number>} and {@code B<number / batch>}.
 *
 * <p>A line of the plan is {@code <seconds> <what> <group>} and more words: {@code start} with a mode (concurrent, orderly, broadcast, traced
 * broadcast, pop), the number of threads and the milliseconds that a message takes; {@code stop}; {@code reset} with how many seconds
 * back; {@code delete}. Lines are in the order of their times. A retry of one message in {@code failsEvery=} is wanted, of concurrent groups
 * alone. {@code deliveriesFile=} gets a line of JSON for each delivery, when it ended, and {@code sentFile=} one for each message.
 */
final class Groups {
    private static final long PAUSE_AFTER_FAILURE_MS = 100;
    private static final long BROKER_WAIT_MS_MAX = 60_000;

    private final Cluster cluster;
    private final Arguments.Topic topic;
    private final Path plan;
    private final double rate;
    private final double seconds;
    private final int batch;
    private final int failsEvery;
    private final BufferedWriter deliveries;
    private final BufferedWriter sent;
    private final DefaultMQProducer producer;
    private final List<Object> events = new ArrayList<>();
    private final Map<String, DefaultMQPushConsumer> running = new HashMap<>();
    private final long start;

    Groups(Cluster cluster, Arguments arguments) throws Exception {
        this.cluster = cluster;
        topic = arguments.topics().get(0);
        start = arguments.longNumber("startMs", System.currentTimeMillis());
        plan = Path.of(arguments.text("planFile"));
        rate = Double.parseDouble(arguments.text("rate"));
        seconds = Double.parseDouble(arguments.text("seconds"));
        batch = arguments.number("batch", 100);
        failsEvery = arguments.number("failsEvery", 50);
        deliveries = Files.newBufferedWriter(Path.of(arguments.text("deliveriesFile")), StandardCharsets.UTF_8);
        sent = Files.newBufferedWriter(Path.of(arguments.text("sentFile")), StandardCharsets.UTF_8);
        producer = cluster.configureProducer(new DefaultMQProducer("reput-groups"), arguments);
        producer.setSendMsgTimeout(2000);
        arguments.refuseUnread();
    }

    /** "events" are the lines of the plan, each with when it began and ended. */
    Map<String, Object> run() throws Exception {
        cluster.createTopics(List.of(topic));
        producer.start();
        List<MessageQueue> queues = Cluster.queues(producer, List.of(topic)).get(0);
        Thread sender = new Thread(() -> send(queues), "send");
        sender.start();
        for (String line : Files.readAllLines(plan)) {
            String[] words = line.split(" ");
            sleepUntil(Double.parseDouble(words[0]));
            happenAtLast(words);
        }
        sender.join();
        sleepUntil(seconds);
        for (String group : new ArrayList<>(running.keySet())) {
            happenAtLast(new String[] {"", "stop", group});
        }
        producer.shutdown();
        deliveries.close();
        sent.close();
        return Json.object("events", events);
    }

    private void sleepUntil(double second) {
        long left;
        while ((left = start + (long) (second * 1000) - System.currentTimeMillis()) > 0) {
            LockSupport.parkNanos(left * 1_000_000);
        }
    }

    /** Sends until a while before the end, so that each consumer that is fast enough gets the last message. */
    private void send(List<MessageQueue> queues) {
        for (int number = 0; number < rate * (seconds - 20); number++) {
            sleepUntil(number / rate);
            Message message = new Message(topic.name, "tag", "K" + number + " B" + number / batch, "body".getBytes());
            try {
                SendResult result = producer.send(message, queues.get(number % queues.size()));
                String id = result.getOffsetMsgId();
                note(sent, Json.object(
                    "batch", number / batch,
                    "queue_id", result.getMessageQueue().getQueueId(),
                    "queue_offset", result.getQueueOffset(),
                    "physical_offset", Long.parseUnsignedLong(id.substring(id.length() - 16), 16)));
            } catch (Exception e) {
                // The broker is away, or was killed before it answered: the message is there, or is not.
                LockSupport.parkNanos(PAUSE_AFTER_FAILURE_MS * 1_000_000);
            }
        }
    }

    private static void note(BufferedWriter file, Map<String, Object> row) {
        synchronized (file) {
            try {
                file.write(Json.write(row));
                file.newLine();
            } catch (java.io.IOException e) {
                throw new java.io.UncheckedIOException(e);
            }
        }
    }

    /** Does what a line says, again and again while its broker is away. */
    private void happenAtLast(String[] words) throws Exception {
        long began = System.currentTimeMillis();
        long deadline = began + BROKER_WAIT_MS_MAX;
        while (true) {
            try {
                happen(words);
                events.add(Json.object("what", words[1], "group", words[2], "began_ms", began, "ended_ms", System.currentTimeMillis()));
                return;
            } catch (Exception e) {
                if (System.currentTimeMillis() > deadline) {
                    throw e;
                }
                Thread.sleep(PAUSE_AFTER_FAILURE_MS);
            }
        }
    }

    private void happen(String[] words) throws Exception {
        String group = words[2];
        switch (words[1]) {
            case "start":
                running.put(group, consumer(group, words[3], Integer.parseInt(words[4]), Long.parseLong(words[5])));
                break;
            case "stop":
                stop(group);
                break;
            case "reset":
                long time = System.currentTimeMillis() - (long) (Double.parseDouble(words[3]) * 1000);
                administer((admin, address) -> admin.resetOffsetByTimestamp(topic.name, group, time, true));
                break;
            case "delete":
                administer((admin, address) -> admin.deleteSubscriptionGroup(address, group, true));
                break;
            default:
                throw new IllegalArgumentException(words[1]);
        }
    }

    private void stop(String group) {
        running.remove(group).shutdown();
    }

    private interface Step {
        void run(DefaultMQAdminExt admin, String address) throws Exception;
    }

    private void administer(Step step) throws Exception {
        DefaultMQAdminExt admin = cluster.configure(new DefaultMQAdminExt());
        admin.setInstanceName("admin-" + System.nanoTime());
        admin.start();
        try {
            for (var broker : admin.examineBrokerClusterInfo().getBrokerAddrTable().values()) {
                step.run(admin, broker.getBrokerAddrs().get(0L));
            }
        } finally {
            admin.shutdown();
        }
    }

    private DefaultMQPushConsumer consumer(String group, String mode, int threads, long millis) throws Exception {
        DefaultMQPushConsumer consumer = mode.equals("traced") ? new DefaultMQPushConsumer(group, true, null) : new DefaultMQPushConsumer(group);
        cluster.configure(consumer);
        consumer.setInstanceName(group + "-" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(threads);
        consumer.setConsumeThreadMax(threads);
        consumer.subscribe(topic.name, "*");
        if (mode.equals("traced") || mode.equals("broadcast")) {
            Cluster.broadcasting(consumer);
        }
        if (mode.equals("pop")) {
            cluster.popMode(consumer, group, topic.name);
        }
        if (mode.equals("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                handle(group, messages.get(0), millis, true);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            boolean canFail = mode.equals("concurrent");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                MessageExt message = messages.get(0);
                context.setDelayLevelWhenNextConsume(2);
                boolean fails = canFail && message.getReconsumeTimes() == 0 && message.getCommitLogOffset() % failsEvery == 0;
                handle(group, message, millis, !fails);
                return fails ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        return consumer;
    }

    private void handle(String group, MessageExt message, long millis, boolean success) {
        long began = System.currentTimeMillis();
        LockSupport.parkNanos(millis * 1_000_000);
        note(deliveries, Json.object(
            "group", group,
            "queue_id", message.getQueueId(),
            "queue_offset", message.getQueueOffset(),
            "physical_offset", message.getCommitLogOffset(),
            "reconsume_times", message.getReconsumeTimes(),
            "began_ms", began,
            "ended_ms", System.currentTimeMillis(),
            "success", success));
    }
}

import java.util.ArrayList;
import java.util.Collections;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** The subcommand "transactions": half messages that are committed, rolled back or left open. */
final class Transactions implements TransactionListener {
    private static final int SAMPLE_MAX = 20;
    private static final int HEARTBEAT_MS = 2000;

    private final Cluster cluster;
    private final List<Arguments.Topic> topics;
    private final List<LocalTransactionState> plan = new ArrayList<>();
    private final LocalTransactionState resolve;
    private final double waitSeconds;
    private final MessageMaker maker;
    private final TransactionMQProducer producer;
    private final Map<LocalTransactionState, List<String>> samples = new EnumMap<>(LocalTransactionState.class);
    private final Map<LocalTransactionState, Long> counts = new EnumMap<>(LocalTransactionState.class);
    private final Map<String, Long> committed = new TreeMap<>();
    private final Set<String> checked = ConcurrentHashMap.newKeySet();
    private long failed;

    Transactions(Cluster cluster, Arguments arguments) {
        this.cluster = cluster;
        topics = arguments.topics();
        plan.addAll(Collections.nCopies(arguments.number("commit", 20), LocalTransactionState.COMMIT_MESSAGE));
        plan.addAll(Collections.nCopies(arguments.number("rollback", 10), LocalTransactionState.ROLLBACK_MESSAGE));
        plan.addAll(Collections.nCopies(arguments.number("unknown", 5), LocalTransactionState.UNKNOW));
        // The answer when the broker asks again, and how long this client stays to be asked.
        resolve = state(arguments.text("resolve", "unknown"));
        waitSeconds = Double.parseDouble(arguments.text("waitSeconds", "0"));
        long seed = arguments.longNumber("seed", 1);
        maker = new MessageMaker(new MessageMaker.Shape(arguments), seed, "t" + seed);
        Collections.shuffle(plan, new Random(seed));
        producer = cluster.configureProducer(new TransactionMQProducer("reput-transactions"), arguments);
        producer.setTransactionListener(this);
        // A broker asks a producer that it knows by a heartbeat; the first one comes after as long, and after a message.
        producer.setHeartbeatBrokerInterval(HEARTBEAT_MS);
        arguments.refuseUnread();
        for (LocalTransactionState state : LocalTransactionState.values()) {
            counts.put(state, 0L);
            samples.put(state, new ArrayList<>());
        }
    }

    private static LocalTransactionState state(String name) {
        switch (name) {
            case "commit":
                return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback":
                return LocalTransactionState.ROLLBACK_MESSAGE;
            case "unknown":
                return LocalTransactionState.UNKNOW;
            default:
                throw new IllegalArgumentException("resolve is commit, rollback or unknown, found " + name);
        }
    }

    Map<String, Object> run() throws Exception {
        cluster.createTopics(topics);
        producer.start();
        Cluster.queues(producer, topics);
        for (LocalTransactionState state : plan) {
            sendOne(state);
        }
        Thread.sleep((long) (waitSeconds * 1000));
        producer.shutdown();
        return Json.object(
            "committed", counts.get(LocalTransactionState.COMMIT_MESSAGE),
            "rolled_back", counts.get(LocalTransactionState.ROLLBACK_MESSAGE),
            "unknown", counts.get(LocalTransactionState.UNKNOW),
            "failed", failed,
            "checked", checked.size(),
            "topics", committed,
            "sample", Json.object(
                "committed", samples.get(LocalTransactionState.COMMIT_MESSAGE),
                "rolled_back", samples.get(LocalTransactionState.ROLLBACK_MESSAGE),
                "unknown", samples.get(LocalTransactionState.UNKNOW)));
    }

    private void sendOne(LocalTransactionState state) {
        Message message = maker.make(topics.get(maker.below(topics.size())).name);
        try {
            TransactionSendResult result = producer.sendMessageInTransaction(message, state);
            counts.merge(result.getLocalTransactionState(), 1L, Long::sum);
            List<String> sample = samples.get(state);
            if (sample.size() < SAMPLE_MAX) {
                sample.add(result.getMsgId());
            }
            if (result.getLocalTransactionState() == LocalTransactionState.COMMIT_MESSAGE) {
                committed.merge(message.getTopic(), 1L, Long::sum);
            }
        } catch (Exception e) {
            failed++;
            e.printStackTrace();
        }
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object state) {
        return (LocalTransactionState) state;
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        checked.add(String.valueOf(message.getTransactionId()));
        return resolve;
    }
}

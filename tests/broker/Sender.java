import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** The subcommand "send": random messages to random queues, as many and as fast as told. */
final class Sender {
    private static final int IN_FLIGHT_MAX = 4096;
    private static final int ANSWERS_WAIT_SECONDS_MAX = 60;
    private static final int ONEWAY_WAIT_MS = 2000;
    private static final long PAUSE_AFTER_FAILURE_NANOS = 10_000_000L;

    private final Cluster cluster;
    private final Arguments arguments;
    private final List<Arguments.Topic> topics;
    private final MessageMaker.Shape shape;
    private final String mode;
    private final long seed;
    private final long count;
    private final double seconds;
    private final double rate;
    private final int threads;
    private final double batch;
    private final int batchMax;
    private final boolean inner;
    private final Acks acks;
    private final Semaphore inFlight = new Semaphore(IN_FLIGHT_MAX);
    private final AtomicLong sent = new AtomicLong();
    private final Latencies latencies = new Latencies();
    private final DefaultMQProducer producer;
    private List<List<MessageQueue>> queues;

    Sender(Cluster cluster, Arguments arguments) throws Exception {
        this.cluster = cluster;
        this.arguments = arguments;
        topics = arguments.topics();
        shape = new MessageMaker.Shape(arguments);
        mode = arguments.text("mode", "async");
        seed = arguments.longNumber("seed", 1);
        seconds = Double.parseDouble(arguments.text("seconds", "0"));
        count = arguments.longNumber("count", seconds > 0 ? Long.MAX_VALUE : 1000);
        rate = Double.parseDouble(arguments.text("rate", "0"));
        threads = arguments.number("threads", 2);
        // Topics whose queues hold inner batches, in 5.x: everything is sent in batches, even one message.
        inner = arguments.text("queueType", "SimpleCQ").equals("BatchCQ");
        batch = mode.equals("oneway") ? 0 : arguments.fraction("batch", 0.1);
        batchMax = arguments.number("batchMax", 8);
        producer = cluster.configureProducer(new DefaultMQProducer("reput-send"), arguments);
        acks = new Acks(arguments);
        arguments.refuseUnread();
        if (!List.of("sync", "async", "oneway").contains(mode)) {
            throw new IllegalArgumentException("mode is sync, async or oneway, found " + mode);
        }
    }

    Map<String, Object> run() throws Exception {
        cluster.createTopics(topics, inner ? Map.of("+queue.type", "BatchCQ") : Map.of());
        producer.start();
        queues = Cluster.queues(producer, topics);
        acks.start();
        long start = System.nanoTime();
        List<Thread> running = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            int index = i;
            Thread thread = new Thread(() -> sendAll(index, start), "send-" + i);
            thread.start();
            running.add(thread);
        }
        for (Thread thread : running) {
            thread.join();
        }
        double sending = (System.nanoTime() - start) / 1e9;
        if (mode.equals("oneway")) {
            // Nothing tells when the last has arrived, and closing the connection would lose it.
            Thread.sleep(ONEWAY_WAIT_MS);
        }
        inFlight.tryAcquire(IN_FLIGHT_MAX, ANSWERS_WAIT_SECONDS_MAX, TimeUnit.SECONDS);
        acks.close();
        Map<String, Object> report = acks.report();
        report.put("sent", sent.get());
        report.put("sent_per_second", Math.round(sent.get() / Math.max(sending, 1e-9)));
        report.put("answered_within_us", latencies.report());
        producer.shutdown();
        return report;
    }

    /** One thread's share, each message no earlier than its place in the schedule. */
    private void sendAll(int index, long start) {
        MessageMaker maker = new MessageMaker(shape, seed * 1_000_003 + index, seed + "." + index);
        long share = count == Long.MAX_VALUE ? count : count / threads + (index < count % threads ? 1 : 0);
        long end = seconds > 0 ? start + (long) (seconds * 1e9) : Long.MAX_VALUE;
        double nanosEach = rate > 0 ? threads * 1e9 / rate : 0;
        long made = 0;
        while (made < share) {
            long due = start + (long) (made * nanosEach);
            long now = System.nanoTime();
            if (Math.max(due, now) >= end) {
                return;
            }
            if (due > now) {
                LockSupport.parkNanos(due - now);
                continue;
            }
            int size = maker.chance(batch) ? 2 + maker.below(Math.max(1, batchMax - 1)) : 1;
            made += send(maker, (int) Math.min(size, share - made));
        }
    }

    private int send(MessageMaker maker, int size) {
        int topic = maker.below(topics.size());
        List<MessageQueue> choice = queues.get(topic);
        MessageQueue queue = choice.get(maker.below(choice.size()));
        List<Message> messages = new ArrayList<>(size);
        for (int i = 0; i < size; i++) {
            messages.add(maker.make(queue.getTopic()));
        }
        sent.addAndGet(size);
        long began = System.nanoTime();
        try {
            if (mode.equals("sync")) {
                SendResult result =
                    size > 1 || inner ? producer.send(messages, queue) : producer.send(messages.get(0), queue);
                latencies.add(began);
                acks.answered(messages, result);
            } else if (mode.equals("oneway")) {
                producer.sendOneway(messages.get(0), queue);
            } else {
                sendAsync(messages, queue);
            }
        } catch (Exception e) {
            acks.failed(size, e);
            LockSupport.parkNanos(PAUSE_AFTER_FAILURE_NANOS);
        }
        return size;
    }

    private void sendAsync(List<Message> messages, MessageQueue queue) throws Exception {
        inFlight.acquire();
        Answer answer = new Answer(messages);
        try {
            if (messages.size() > 1 || inner) {
                producer.send(messages, queue, answer);
            } else {
                producer.send(messages.get(0), queue, answer);
            }
        } catch (Exception e) {
            answer.onException(e);
        }
    }

    /** How long answers took. */
    private static final class Latencies {
        private int[] micros = new int[1 << 16];
        private int count;

        synchronized void add(long beganNanos) {
            if (count == micros.length) {
                micros = Arrays.copyOf(micros, 2 * count);
            }
            micros[count++] = (int) ((System.nanoTime() - beganNanos) / 1000);
        }

        /** Percentiles in microseconds by name; nothing without an answer. */
        synchronized Map<String, Object> report() {
            if (count == 0) {
                return Json.object();
            }
            int[] sorted = Arrays.copyOf(micros, count);
            Arrays.sort(sorted);
            return Json.object("p50", sorted[count / 2], "p99", sorted[(int) (count * 0.99)]);
        }
    }

    /** The answer to one asynchronous send; counted once, whatever the client calls. */
    private final class Answer implements SendCallback {
        private final long began = System.nanoTime();
        private List<Message> messages;

        Answer(List<Message> messages) {
            this.messages = messages;
        }

        private synchronized List<Message> take() {
            List<Message> taken = messages;
            messages = null;
            return taken;
        }

        @Override
        public void onSuccess(SendResult result) {
            List<Message> taken = take();
            if (taken == null) {
                return;
            }
            latencies.add(began);
            try {
                acks.answered(taken, result);
            } catch (Exception e) {
                acks.failed(taken.size(), e);
            } finally {
                inFlight.release();
            }
        }

        @Override
        public void onException(Throwable cause) {
            List<Message> taken = take();
            if (taken != null) {
                acks.failed(taken.size(), cause);
                inFlight.release();
            }
        }
    }
}

import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/** Counts what the broker acknowledged; safe for many threads. */
final class Acks implements AutoCloseable {
    private long startNanos = System.nanoTime();
    private final Map<String, Long> topics = new TreeMap<>();
    private final Map<String, Map<String, Long>> tags = new TreeMap<>();
    private final List<Long> bySecond = new ArrayList<>();
    private final List<Map<String, Object>> sample = new ArrayList<>();
    private final Random random;
    private final int sampleMax;
    private final BufferedWriter file;
    private long acknowledged;
    private long failed;
    private String firstFailure;

    /** {@code acksFile=} gets one line of JSON for each acknowledged message. */
    Acks(Arguments arguments) throws IOException {
        random = new Random(arguments.longNumber("seed", 1));
        sampleMax = arguments.number("sample", 20);
        String path = arguments.text("acksFile", "");
        file = path.isEmpty() ? null : Files.newBufferedWriter(Path.of(path), StandardCharsets.UTF_8);
    }

    /** Seconds count from here. */
    synchronized void start() {
        startNanos = System.nanoTime();
    }

    /** One answer of the broker to a send of these messages (several: a batch). */
    synchronized void answered(List<Message> messages, SendResult result) throws IOException {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            failed(messages.size(), new IllegalStateException(result.getSendStatus().name()));
            return;
        }
        String[] ids = result.getOffsetMsgId().split(",");
        String[] uniqKeys = result.getMsgId().split(",");
        // An inner batch is one record: one id and one unique key for all its messages.
        boolean inner = ids.length < messages.size();
        for (int i = 0; i < messages.size(); i++) {
            count(messages.get(i));
            int place = placeInSample();
            if (place < 0 && file == null) {
                continue;
            }
            Map<String, Object> ack = ack(messages.get(i), uniqKeys[inner ? 0 : i], ids[inner ? 0 : i], result, i);
            if (place >= sample.size()) {
                sample.add(ack);
            } else if (place >= 0) {
                sample.set(place, ack);
            }
            if (file != null) {
                file.write(Json.write(ack));
                file.newLine();
            }
        }
    }

    private static Map<String, Object> ack(Message message, String uniqKey, String id, SendResult result, int index) {
        return Json.object(
            "topic", message.getTopic(),
            "queue_id", result.getMessageQueue().getQueueId(),
            "queue_offset", result.getQueueOffset() + index,
            // The id ends with the physical offset, as 16 hexadecimal digits.
            "physical_offset", Long.parseUnsignedLong(id.substring(id.length() - 16), 16),
            "uniq_key", uniqKey,
            "keys", message.getKeys(),
            "tags", message.getTags());
    }

    private void count(Message message) {
        acknowledged++;
        topics.merge(message.getTopic(), 1L, Long::sum);
        String tag = message.getTags() == null ? "" : message.getTags();
        tags.computeIfAbsent(message.getTopic(), topic -> new TreeMap<>()).merge(tag, 1L, Long::sum);
        int second = (int) ((System.nanoTime() - startNanos) / 1_000_000_000L);
        while (bySecond.size() <= second) {
            bySecond.add(0L);
        }
        bySecond.set(second, bySecond.get(second) + 1);
    }

    /** Where the message just counted goes in a fair sample of all; -1 is nowhere. */
    private int placeInSample() {
        if (sample.size() < sampleMax) {
            return sample.size();
        }
        long place = (long) (random.nextDouble() * acknowledged);
        return place < sampleMax ? (int) place : -1;
    }

    synchronized void failed(int messages, Throwable cause) {
        failed += messages;
        if (firstFailure == null) {
            firstFailure = cause.toString();
            cause.printStackTrace();
        }
    }

    /** The counts so far; "tags" counts messages without a tag under "". */
    synchronized Map<String, Object> report() {
        double seconds = (System.nanoTime() - startNanos) / 1e9;
        return Json.object(
            "acknowledged", acknowledged,
            "failed", failed,
            "first_failure", firstFailure,
            "seconds", Math.round(seconds * 1000) / 1000.0,
            "topics", topics,
            "tags", tags,
            "by_second", bySecond,
            "sample", sample);
    }

    @Override
    public synchronized void close() throws IOException {
        if (file != null) {
            file.close();
        }
    }
}

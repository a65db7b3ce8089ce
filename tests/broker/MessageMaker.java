import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;

/** Random messages; the same seed and arguments make the same messages in the same order. */
final class MessageMaker {
    private static final String[] NON_ASCII_TAGS = {"标签", "étiquette", "тег", "\uD83D\uDE80launch"};
    private static final String[] NON_ASCII_WORDS = {"客户", "clé", "ключ", "\uD83D\uDE00"};
    private static final int SHARED_KEYS = 500;

    /** What the messages may look like; read once, shared by all threads. */
    static final class Shape {
        final int bodyMin;
        final int bodyMax;
        final int keysMax;
        final int propertiesMax;
        final double plain;
        final double nonAscii;
        final List<String> tags;
        final List<String> lmq;

        Shape(Arguments arguments) {
            bodyMin = arguments.number("bodyMin", 1);
            bodyMax = arguments.number("bodyMax", 1000);
            keysMax = arguments.number("keysMax", 3);
            propertiesMax = arguments.number("propertiesMax", 3);
            plain = arguments.fraction("plain", 0.1);
            nonAscii = arguments.fraction("nonAscii", 0.1);
            tags = arguments.list("tags", "TagA,TagB,TagC");
            lmq = arguments.list("lmq", "");
            if (bodyMin < 1 || bodyMax < bodyMin) {
                throw new IllegalArgumentException("bodyMin is at least 1, bodyMax at least bodyMin");
            }
        }
    }

    private final Shape shape;
    private final Random random;
    private final String name;
    private final byte[] noise;
    private long made;

    /** Messages of one thread; {@code name} keeps its unique keys apart from those of other threads. */
    MessageMaker(Shape shape, long seed, String name) {
        this.shape = shape;
        this.random = new Random(seed);
        this.name = name;
        byte[] text = "all work and no play makes a dull message; ".getBytes(StandardCharsets.US_ASCII);
        noise = new byte[2 * shape.bodyMax];
        random.nextBytes(noise);
        for (int i = 0; i < shape.bodyMax; i++) {
            noise[i] = text[i % text.length];
        }
    }

    int below(int bound) {
        return random.nextInt(bound);
    }

    boolean chance(double fraction) {
        return random.nextDouble() < fraction;
    }

    Message make(String topic) {
        Message message = new Message(topic, body());
        made++;
        if (!chance(shape.plain)) {
            boolean nonAscii = chance(shape.nonAscii);
            message.setTags(tag(nonAscii));
            List<String> keys = keys(nonAscii);
            if (!keys.isEmpty()) {
                message.setKeys(keys);
            }
            putProperties(message, nonAscii);
        }
        if (!shape.lmq.isEmpty()) {
            String queues = String.join(",", shape.lmq.subList(0, 1 + below(shape.lmq.size())));
            MessageAccessor.putProperty(message, "INNER_MULTI_DISPATCH", queues);
        }
        return message;
    }

    private byte[] body() {
        int size = shape.bodyMin + below(shape.bodyMax - shape.bodyMin + 1);
        int start = below(noise.length - size + 1);
        return Arrays.copyOfRange(noise, start, start + size);
    }

    private String tag(boolean nonAscii) {
        return nonAscii
            ? NON_ASCII_TAGS[below(NON_ASCII_TAGS.length)]
            : shape.tags.get(below(shape.tags.size()));
    }

    /** None, or one that no other message has and then some that many have. */
    private List<String> keys(boolean nonAscii) {
        int count = below(shape.keysMax + 1);
        List<String> keys = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            String word = nonAscii ? NON_ASCII_WORDS[below(NON_ASCII_WORDS.length)] : i == 0 ? "order" : "customer";
            keys.add(i == 0 ? word + "-" + name + "-" + made : word + "-" + below(SHARED_KEYS));
        }
        return keys;
    }

    private void putProperties(Message message, boolean nonAscii) {
        int count = below(shape.propertiesMax + 1);
        for (int i = 0; i < count; i++) {
            if (i == 0) {
                message.putUserProperty("amount", Integer.toString(below(1000)));
            } else if (nonAscii) {
                message.putUserProperty("région" + i, NON_ASCII_WORDS[below(NON_ASCII_WORDS.length)]);
            } else {
                message.putUserProperty("property" + i, "value " + below(100));
            }
        }
    }
}

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** Arguments as name=value; a name that nobody asked for is refused by {@link #refuseUnread}. */
final class Arguments {
    /** One topic and how many queues it has. */
    static final class Topic {
        final String name;
        final int queues;

        Topic(String name, int queues) {
            this.name = name;
            this.queues = queues;
        }
    }

    private final Map<String, String> values = new HashMap<>();
    private final Set<String> read = new HashSet<>();

    Arguments(String[] args, int from) {
        for (int i = from; i < args.length; i++) {
            int equals = args[i].indexOf('=');
            if (equals < 1) {
                throw new IllegalArgumentException("not name=value: " + args[i]);
            }
            values.put(args[i].substring(0, equals), args[i].substring(equals + 1));
        }
    }

    String text(String name, String fallback) {
        read.add(name);
        return values.getOrDefault(name, fallback);
    }

    String text(String name) {
        String value = text(name, null);
        if (value == null) {
            throw new IllegalArgumentException("missing argument " + name + "=");
        }
        return value;
    }

    int number(String name, int fallback) {
        return Integer.parseInt(text(name, Integer.toString(fallback)));
    }

    long longNumber(String name, long fallback) {
        return Long.parseLong(text(name, Long.toString(fallback)));
    }

    double fraction(String name, double fallback) {
        double value = Double.parseDouble(text(name, Double.toString(fallback)));
        if (!(value >= 0 && value <= 1)) {
            throw new IllegalArgumentException(name + " must be from 0 to 1, found " + value);
        }
        return value;
    }

    List<String> list(String name, String fallback) {
        List<String> result = new ArrayList<>();
        for (String part : text(name, fallback).split(",")) {
            if (!part.isBlank()) {
                result.add(part.trim());
            }
        }
        return result;
    }

    /** "A:4,B" is topic A with 4 queues and topic B with {@code queues} (4 unless told). */
    List<Topic> topics() {
        int queues = number("queues", 4);
        List<Topic> result = new ArrayList<>();
        for (String part : list("topics", "TopicTest")) {
            int colon = part.lastIndexOf(':');
            result.add(colon < 0
                ? new Topic(part, queues)
                : new Topic(part.substring(0, colon), Integer.parseInt(part.substring(colon + 1))));
        }
        return result;
    }

    void refuseUnread() {
        Set<String> unknown = new HashSet<>(values.keySet());
        unknown.removeAll(read);
        if (!unknown.isEmpty()) {
            throw new IllegalArgumentException("unknown arguments " + unknown + "; known are " + read);
        }
    }
}

import java.io.BufferedInputStream;
import java.io.ByteArrayInputStream;
import java.io.InputStream;
import java.io.PrintWriter;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentSkipListMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.store.MultiPathMappedFileQueue;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * Says what the release on the class path reads in each of many files broker.conf.
 *
 * <p>Arguments: a file with the bytes of one broker.conf a line, in hexadecimal; a file for the answers; names of
 * settings. An answer is one line: {@code refused}, where the properties do not load, or {@code name=value;} for each
 * name, {@code delays} and {@code paths}, with the UTF-16 units of values in hexadecimal.
 */
public final class Settings {
    private static final sun.misc.Unsafe UNSAFE = unsafe();

    private Settings() {}

    public static void main(String[] args) throws Exception {
        try (PrintWriter out = new PrintWriter(args[1], "US-ASCII")) {
            for (String line : Files.readAllLines(Paths.get(args[0]))) {
                out.println(answer(bytes(line), args));
            }
        }
        System.exit(0);
    }

    private static String answer(byte[] file, String[] args) throws Exception {
        Properties properties = new Properties();
        try (InputStream in = new BufferedInputStream(new ByteArrayInputStream(file))) {
            properties.load(in);
        } catch (IllegalArgumentException e) {
            return "refused";
        }
        BrokerConfig broker = new BrokerConfig();
        MessageStoreConfig store = new MessageStoreConfig();
        MixAll.properties2Object(properties, broker);
        MixAll.properties2Object(properties, store);
        StringBuilder text = new StringBuilder();
        for (int i = 2; i < args.length; i++) {
            Object value = value(store, args[i]);
            text.append(args[i]).append('=').append(hex(value != null ? value : value(broker, args[i]))).append(';');
        }
        return text.append("delays=").append(delays(store)).append(";paths=").append(paths(store)).append(';').toString();
    }

    /** The field of that name, in the object's class or above it; null without one, and for null. */
    private static Object value(Object config, String name) throws Exception {
        for (Class<?> type = config.getClass(); type != null; type = type.getSuperclass()) {
            for (Field field : type.getDeclaredFields()) {
                if (field.getName().equals(name)) {
                    field.setAccessible(true);
                    return field.get(config);
                }
            }
        }
        return null;
    }

    /** What the release's own parseDelayLevel makes of the levels. */
    private static String delays(MessageStoreConfig store) throws Exception {
        boolean old = exists("org.apache.rocketmq.store.schedule.ScheduleMessageService");
        String home = old ? "org.apache.rocketmq.store." : "org.apache.rocketmq.broker.";
        Object owner = bare(Class.forName(home + (old ? "DefaultMessageStore" : "BrokerController")));
        set(owner, "messageStoreConfig", store);
        Object service = bare(Class.forName(home + "schedule.ScheduleMessageService"));
        set(service, old ? "defaultMessageStore" : "brokerController", owner);
        Map<Integer, Long> levels = old ? new ConcurrentHashMap<>() : new ConcurrentSkipListMap<>();
        set(service, "delayLevelTable", levels);
        Method parse = service.getClass().getMethod("parseDelayLevel");
        return (Boolean) parse.invoke(service) ? new TreeMap<>(levels).values().toString() : "refused";
    }

    /** The directories of the log, as CommitLog and MultiPathMappedFileQueue take them. */
    private static String paths(MessageStoreConfig store) throws Exception {
        Set<String> found = new TreeSet<>();
        String path = store.getStorePathCommitLog();
        if (path.contains(",")) {
            Object queue = bare(MultiPathMappedFileQueue.class);
            set(queue, "config", store);
            for (String name : new String[] {"getPaths", "getReadonlyPaths"}) {
                Method method = MultiPathMappedFileQueue.class.getDeclaredMethod(name);
                method.setAccessible(true);
                for (Object each : (Set<?>) method.invoke(queue)) {
                    found.add(hex(each));
                }
            }
        } else {
            found.add(hex(path));
        }
        return String.join(",", found);
    }

    private static boolean exists(String name) {
        return Settings.class.getResource("/" + name.replace('.', '/') + ".class") != null;
    }

    /** An object whose constructor has not run: one that had would start threads and make files. */
    private static Object bare(Class<?> type) throws Exception {
        return UNSAFE.allocateInstance(type);
    }

    private static void set(Object object, String name, Object value) throws Exception {
        UNSAFE.putObject(object, UNSAFE.objectFieldOffset(object.getClass().getDeclaredField(name)), value);
    }

    private static sun.misc.Unsafe unsafe() {
        try {
            Field field = sun.misc.Unsafe.class.getDeclaredField("theUnsafe");
            field.setAccessible(true);
            return (sun.misc.Unsafe) field.get(null);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    private static byte[] bytes(String hex) {
        byte[] found = new byte[hex.length() / 2];
        for (int i = 0; i < found.length; i++) {
            found[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
        }
        return found;
    }

    private static String hex(Object value) {
        StringBuilder text = new StringBuilder();
        for (char unit : String.valueOf(value).toCharArray()) {
            text.append(String.format("%04x", (int) unit));
        }
        return text.toString();
    }
}

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.lang.reflect.Field;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.ServiceThread;
import org.apache.rocketmq.store.CommitLogDispatcher;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * Opens a store that has a commitlog and nothing else, and times the broker's own reput from its thread's start to the
 * moment when nothing is left to dispatch. Arguments are settings of MessageStoreConfig as name=value.
 *
 * <p>Recovery must not do what is timed: 5.3.2 and later dispatch in it. So the dispatchers are away while the store is
 * loaded, and 5.x is told to begin where its queues end (recheckReputOffsetFromCq), as 4.9.3 always does.
 */
public final class BrokerReput {
    private static final int POLL_MS = 10;
    private static final int START_POLL_MS = 1;

    private BrokerReput() {}

    public static void main(String[] args) throws Exception {
        DefaultMessageStore store = MessageStores.open(settings(args));
        long opened = System.nanoTime();
        List<CommitLogDispatcher> dispatchers = new ArrayList<>(store.getDispatcherList());
        store.getDispatcherList().clear();
        if (!store.load()) {
            throw new IllegalStateException("the store does not load; see the log");
        }
        store.getDispatcherList().addAll(dispatchers);
        long loaded = System.nanoTime();
        if (messages(store) != 0) {
            throw new IllegalStateException("recovery has dispatched already");
        }
        long end = store.getMaxPhyOffset();
        // It returns once nothing is behind, looking every second: too coarse to time anything.
        Starter starter = new Starter(store);
        starter.start();
        Thread reput = reputThread(store);
        while (!isStarted(reput, store)) {
            starter.check();
            Thread.sleep(START_POLL_MS);
            reput = reputThread(store);
        }
        long cpuBefore = cpuNanos();
        long began = System.nanoTime();
        while (store.dispatchBehindBytes() != 0 || dispatchedTo(store) != end) {
            starter.check();
            Thread.sleep(POLL_MS);
        }
        long done = System.nanoTime();
        double jvmSeconds = ManagementFactory.getRuntimeMXBean().getUptime() / 1e3;
        long cpuAfter = cpuNanos();
        starter.join();
        starter.check();
        long messages = messages(store);
        long closing = System.nanoTime();
        store.shutdown();
        System.out.println(Json.write(Json.object(
            "messages", messages,
            "seconds", seconds(done - began),
            "cpu_seconds", seconds(cpuAfter - cpuBefore),
            "load_seconds", seconds(loaded - opened),
            "jvm_seconds", jvmSeconds,
            "close_seconds", seconds(System.nanoTime() - closing),
            "end_offset", end,
            "memory", memory())));
        System.out.flush();
        // Pools of 5.x keep the JVM alive.
        Runtime.getRuntime().halt(0);
    }

    private static MessageStoreConfig settings(String[] args) {
        Properties given = new Properties();
        for (String argument : args) {
            int equals = argument.indexOf('=');
            given.setProperty(argument.substring(0, equals), argument.substring(equals + 1));
        }
        // Known to 5.x only; 4.9.3 passes over what it does not know.
        given.setProperty("recheckReputOffsetFromCq", "true");
        MessageStoreConfig config = new MessageStoreConfig();
        MixAll.properties2Object(given, config);
        return config;
    }

    private static Thread reputThread(DefaultMessageStore store) throws Exception {
        Field service = DefaultMessageStore.class.getDeclaredField("reputMessageService");
        service.setAccessible(true);
        Field thread = ServiceThread.class.getDeclaredField("thread");
        thread.setAccessible(true);
        return (Thread) thread.get(service.get(store));
    }

    private static boolean isStarted(Thread reput, DefaultMessageStore store) {
        // 4.9.3 makes the thread with the service, 5.x when the service starts.
        return reput != null && (reput.isAlive() || dispatchedTo(store) > 0);
    }

    /** The end of the last record in any queue; asked only when nothing is behind, for it looks at every queue. */
    private static long dispatchedTo(DefaultMessageStore store) {
        return store.getConsumeQueueTable().values().stream()
            .flatMap(queues -> queues.values().stream())
            .mapToLong(queue -> queue.getMaxPhysicOffset())
            .max().orElse(0);
    }

    private static long messages(DefaultMessageStore store) {
        return store.getConsumeQueueTable().values().stream()
            .flatMap(queues -> queues.values().stream())
            .mapToLong(queue -> queue.getMaxOffsetInQueue())
            .sum();
    }

    private static long cpuNanos() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    private static double seconds(long nanos) {
        return nanos / 1e9;
    }

    /** Bytes as Linux counts them for this process: peak in all, and now its own and mapped files. */
    private static Map<String, Object> memory() throws Exception {
        Map<String, Object> result = Json.object();
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            String[] words = line.split("\\s+");
            if (List.of("VmHWM:", "RssAnon:", "RssFile:").contains(words[0])) {
                result.put(words[0].replace(":", ""), Long.parseLong(words[1]) * 1024);
            }
        }
        return result;
    }

    /** Starts the store, and keeps what went wrong. */
    private static final class Starter extends Thread {
        private final DefaultMessageStore store;
        private volatile Exception failure;

        Starter(DefaultMessageStore store) {
            super("starter");
            this.store = store;
        }

        @Override
        public void run() {
            try {
                store.start();
            } catch (Exception e) {
                failure = e;
            }
        }

        void check() throws Exception {
            if (failure != null) {
                throw failure;
            }
        }
    }
}

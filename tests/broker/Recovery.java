import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.ServiceThread;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.store.CommitLogDispatcher;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * Starts a real message store on each of many directories, one after the other, and says what it made of it.
 *
 * <p>{@code stores} is a file whose lines are files of properties, one a store; each answer is one line of JSON. {@code
 * startMs} is how long a store may take to start; one that dispatches without an end is stuck. A store's {@code
 * batchTopics} are those whose queues hold inner batches, with commas between them. A store with a {@code plan} is
 * asked for the messages of the queues and keys in that file, and for the queue offsets at its times, and closed before
 * the next one starts. A store with {@code
 * timers} sends what is due, and is closed, too.
 */
public final class Recovery {
    private static final int POLL_MS = 5;
    private static final int MAX_FOUND = 64;
    /** Where a record names its own offset. */
    private static final int PHYSICAL_OFFSET_AT = 28;
    private static final ExecutorService CLOSERS = Executors.newCachedThreadPool();

    private Recovery() {}

    public static void main(String[] args) throws Exception {
        Arguments arguments = new Arguments(args, 0);
        int startMs = arguments.number("startMs", 5000);
        Path list = Path.of(arguments.text("stores"));
        arguments.refuseUnread();
        for (String line : Files.readAllLines(list)) {
            System.out.println(Json.write(answer(Path.of(line), startMs)));
            System.out.flush();
        }
        // Nobody waits for stores to be closed: what they have written is in their files.
        Runtime.getRuntime().halt(0);
    }

    private static Object answer(Path properties, int startMs) throws Exception {
        Properties settings = settings(properties);
        MessageStoreConfig config = new MessageStoreConfig();
        MixAll.properties2Object(settings, config);
        String batchTopics = settings.getProperty("batchTopics", "");
        DefaultMessageStore store =
            MessageStores.open(config, batchTopics.isEmpty() ? List.of() : List.of(batchTopics.split(",")));
        Dispatched dispatched = new Dispatched();
        store.getDispatcherList().addFirst(dispatched);
        boolean loaded = false;
        long began = System.nanoTime();
        String error = "";
        try {
            loaded = store.load();
        } catch (Throwable e) {
            error = e.toString();
        }
        if (!loaded) {
            return Json.object("loaded", false, "started", false, "error", error, "files", files(config));
        }
        long recovered = dispatched.count;
        double loadSeconds = (System.nanoTime() - began) / 1e9;
        Thread starter = new Thread(() -> {
            try {
                store.start();
            } catch (Throwable e) {
                dispatched.failure = e.toString();
            }
        });
        starter.setDaemon(true);
        starter.start();
        // Counted, not measured: a process that stands still for a while has not waited.
        for (int waited = 0; starter.isAlive() && waited < startMs; waited += POLL_MS) {
            starter.join(POLL_MS);
        }
        boolean started = !starter.isAlive() && dispatched.failure == null;
        for (int waited = 0; started && store.dispatchBehindBytes() > 0 && waited < startMs; waited += POLL_MS) {
            Thread.sleep(POLL_MS);
        }
        if (started && "defaultRocksDB".equals(MessageStores.storeType(config))) {
            awaitQueues(store, dispatched.queuedTo, startMs);
        }
        Object timers = started && settings.containsKey("timers") ? Timers.run(store, config, startMs) : "";
        String plan = settings.getProperty("plan", "");
        List<Object> served = started && !plan.isEmpty() ? served(store, Path.of(plan)) : List.of();
        Map<String, Object> facts = Json.object(
            "loaded", true,
            "started", started,
            "error", String.valueOf(dispatched.failure),
            "load_seconds", loadSeconds,
            "max_offset", store.getMaxPhyOffset(),
            "min_offset", store.getMinPhyOffset(),
            "dispatched_by_recovery", recovered,
            "dispatched", dispatched.count,
            "first_dispatched", dispatched.first,
            "last_dispatched", dispatched.last,
            "queues", queues(store),
            "served", served,
            "timers", timers,
            "files", files(config));
        if (started && (!plan.isEmpty() || settings.containsKey("timers"))) {
            store.shutdown();
        } else if (started) {
            CLOSERS.submit(store::shutdown);
        } else {
            stopReput(store);
        }
        return facts;
    }

    /** Waits until RocksDB has the entries up to an offset: they are put after their dispatch. */
    private static void awaitQueues(DefaultMessageStore store, long end, int startMs) throws Exception {
        Object queues = DefaultMessageStore.class.getMethod("getQueueStore").invoke(store);
        Method reached = queues.getClass().getMethod("getMaxPhyOffsetInConsumeQueue");
        for (int waited = 0; (long) reached.invoke(queues) < end && waited < startMs; waited += POLL_MS) {
            Thread.sleep(POLL_MS);
        }
    }

    private static Properties settings(Path file) throws Exception {
        Properties properties = new Properties();
        try (var reader = Files.newBufferedReader(file)) {
            properties.load(reader);
        }
        return properties;
    }

    /** The next queue offset of each queue that has files or entries, by topic and id. */
    private static TreeMap<String, Object> queues(DefaultMessageStore store) {
        TreeMap<String, Object> found = new TreeMap<>();
        store.getConsumeQueueTable().forEach((topic, queues) ->
            queues.forEach((id, queue) -> found.put(topic + "-" + id, queue.getMaxOffsetInQueue())));
        return found;
    }

    private static List<String> files(MessageStoreConfig config) throws Exception {
        List<String> found = new ArrayList<>();
        Path root = Path.of(config.getStorePathRootDir());
        for (String name : List.of("commitlog", "consumequeue", "batchconsumequeue", "index")) {
            if (Files.isDirectory(root.resolve(name))) {
                try (Stream<Path> paths = Files.walk(root.resolve(name))) {
                    found.addAll(paths.filter(Files::isRegularFile).map(root::relativize).map(Path::toString)
                        .sorted().collect(Collectors.toList()));
                }
            }
        }
        return found;
    }

    /** The physical offsets of the messages that the store gives for each line of the plan, parts divided by tabs. */
    private static List<Object> served(DefaultMessageStore store, Path plan) throws Exception {
        List<Object> answers = new ArrayList<>();
        for (String line : Files.readAllLines(plan)) {
            String[] words = line.split("\t");
            switch (words[0]) {
                case "queue":
                    answers.add(consumed(store, words[1], Integer.parseInt(words[2])));
                    break;
                case "time":
                    answers.add(List.of(store.getOffsetInQueueByTime(
                        words[1], Integer.parseInt(words[2]), Long.parseLong(words[3]))));
                    break;
                default:
                    answers.add(found(store, words[1], words[2], Long.parseLong(words[3]), Long.parseLong(words[4])));
            }
        }
        return answers;
    }

    private static List<Long> consumed(DefaultMessageStore store, String topic, int queueId) throws Exception {
        List<Long> offsets = new ArrayList<>();
        long end = store.getMaxOffsetInQueue(topic, queueId);
        for (long at = store.getMinOffsetInQueue(topic, queueId); at < end; ) {
            GetMessageResult result;
            try {
                result = store.getMessage("harness", topic, queueId, at, 32, null);
            } catch (NullPointerException e) {
                // 5.5.0 fails at a queue offset that a queue in RocksDB has no entry of.
                break;
            }
            result.getMessageBufferList().forEach(buffer -> offsets.add(physicalOffset(buffer)));
            long next = result.getNextBeginOffset();
            result.release();
            if (next <= at) {
                break;
            }
            at = next;
        }
        return offsets;
    }

    private static List<Long> found(DefaultMessageStore store, String topic, String key, long begin, long end) {
        QueryMessageResult result = store.queryMessage(topic, key, MAX_FOUND, begin, end);
        List<Long> offsets = result.getMessageBufferList().stream().map(Recovery::physicalOffset).sorted()
            .collect(Collectors.toList());
        result.release();
        return offsets;
    }

    private static long physicalOffset(ByteBuffer record) {
        return record.getLong(record.position() + PHYSICAL_OFFSET_AT);
    }

    private static void stopReput(DefaultMessageStore store) throws Exception {
        Field service = DefaultMessageStore.class.getDeclaredField("reputMessageService");
        service.setAccessible(true);
        ((ServiceThread) service.get(store)).makeStop();
    }

    /** Stands before the store's own dispatchers and counts. */
    private static final class Dispatched implements CommitLogDispatcher {
        private volatile long count;
        private volatile long first = -1;
        private volatile long last = -1;
        private volatile long queuedTo;
        private volatile String failure;

        @Override
        public void dispatch(org.apache.rocketmq.store.DispatchRequest request) {
            if (count++ == 0) {
                first = request.getCommitLogOffset();
            }
            last = request.getCommitLogOffset();
            int type = MessageSysFlag.getTransactionValue(request.getSysFlag());
            if (type == MessageSysFlag.TRANSACTION_NOT_TYPE || type == MessageSysFlag.TRANSACTION_COMMIT_TYPE) {
                queuedTo = last + request.getMsgSize();
            }
        }
    }
}

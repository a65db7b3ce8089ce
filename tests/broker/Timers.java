import java.lang.reflect.Constructor;
import java.util.Map;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** Runs the timers of a store of 5.x beside it, as a broker does, until all that is due is sent; 4.9.3 has none. */
final class Timers {
    private static final String PACKAGE = "org.apache.rocketmq.store.timer.";
    private static final String TOPIC = "rmq_sys_wheel_timer";
    private static final int POLL_MS = 20;
    /** The wheel is read second by second, and never up to now. */
    private static final int BEHIND_MS = 2500;
    /** What was taken from the wheel is put into the log by other threads. */
    private static final int SETTLES_MS = 1500;

    private Timers() {}

    /** Where the timers' queue is read from, and whether they had caught up with their queue and with the time. */
    static Map<String, Object> run(DefaultMessageStore store, MessageStoreConfig config, int startMs) throws Exception {
        String root = config.getStorePathRootDir();
        Object checkpoint = made("TimerCheckpoint", root + "/config/timercheck");
        Object metrics = made("TimerMetrics", root + "/config/timermetrics");
        Object timers = null;
        for (Constructor<?> each : Class.forName(PACKAGE + "TimerMessageStore").getConstructors()) {
            timers = each.newInstance(store, config, checkpoint, metrics, store.getBrokerStatsManager());
        }
        Class<?> interfaceOfStore = Class.forName("org.apache.rocketmq.store.MessageStore");
        interfaceOfStore.getMethod("setTimerMessageStore", timers.getClass()).invoke(store, timers);
        Object inRocksDB = null;
        if (isOn(config, "isTimerRocksDBEnable")) {
            Constructor<?> maker = Class.forName(PACKAGE + "rocksdb.TimerMessageRocksDBStore").getConstructors()[0];
            inRocksDB = maker.newInstance(store, metrics, store.getBrokerStatsManager());
            interfaceOfStore.getMethod("setTimerMessageRocksDBStore", inRocksDB.getClass()).invoke(store, inRocksDB);
        }
        boolean loaded = (boolean) timers.getClass().getMethod("load").invoke(timers);
        Object readsFrom = call(timers, "getQueueOffset");
        timers.getClass().getMethod("start", boolean.class).invoke(timers, true);
        if (inRocksDB != null) {
            inRocksDB.getClass().getMethod("load").invoke(inRocksDB);
            inRocksDB.getClass().getMethod("start").invoke(inRocksDB);
            readsFrom = ((Number) call(inRocksDB, "getReadOffset")).longValue();
        }
        boolean caughtUp = false;
        for (int waited = 0; !caughtUp && waited < startMs; waited += POLL_MS) {
            Thread.sleep(POLL_MS);
            boolean isRead = inRocksDB != null || number(timers, "getQueueOffset") >= store.getMaxOffsetInQueue(TOPIC, 0);
            caughtUp = isRead && System.currentTimeMillis() - number(timers, "getCurrReadTimeMs") < BEHIND_MS;
        }
        Thread.sleep(SETTLES_MS);
        if (inRocksDB != null) {
            call(inRocksDB, "shutdown");
        }
        call(timers, "shutdown");
        return Json.object("loaded", loaded, "reads_from", readsFrom, "caught_up", caughtUp);
    }

    private static boolean isOn(MessageStoreConfig config, String name) throws Exception {
        try {
            return (boolean) MessageStoreConfig.class.getMethod(name).invoke(config);
        } catch (NoSuchMethodException e) {
            return false;
        }
    }

    private static Object made(String name, String path) throws Exception {
        return Class.forName(PACKAGE + name).getConstructor(String.class).newInstance(path);
    }

    private static Object call(Object target, String name) throws Exception {
        return target.getClass().getMethod(name).invoke(target);
    }

    private static long number(Object target, String name) throws Exception {
        return ((Number) call(target, name)).longValue();
    }
}

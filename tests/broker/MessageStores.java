import java.lang.reflect.Constructor;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageArrivingListener;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** Makes a release's message store outside a broker; nothing is loaded yet. */
final class MessageStores {
    private MessageStores() {}

    static DefaultMessageStore open(MessageStoreConfig config) throws Exception {
        return open(config, List.of());
    }

    /** The same, with topics whose queues hold inner batches; only 5.x asks. */
    static DefaultMessageStore open(MessageStoreConfig config, List<String> batchTopics) throws Exception {
        BrokerStatsManager stats = new BrokerStatsManager("harness", false);
        MessageArrivingListener nobody = (topic, queueId, offset, tagsCode, time, bitMap, properties) -> { };
        Class<?> kind = DefaultMessageStore.class;
        if ("defaultRocksDB".equals(storeType(config))) {
            kind = Class.forName("org.apache.rocketmq.store.RocksDBMessageStore");
        }
        for (Constructor<?> constructor : kind.getConstructors()) {
            switch (constructor.getParameterCount()) {
                case 4:
                    return (DefaultMessageStore) constructor.newInstance(config, stats, nobody, new BrokerConfig());
                case 5:
                    return (DefaultMessageStore) constructor.newInstance(
                        config, stats, nobody, new BrokerConfig(), configs(batchTopics));
                default:
            }
        }
        throw new IllegalStateException("a DefaultMessageStore of another shape than 4.9.3's and 5.5.0's");
    }

    /** The setting {@code storeType}, which 4.9.3 does not have. */
    static Object storeType(MessageStoreConfig config) throws Exception {
        try {
            return MessageStoreConfig.class.getMethod("getStoreType").invoke(config);
        } catch (NoSuchMethodException e) {
            return null;
        }
    }

    private static Map<String, TopicConfig> configs(List<String> batchTopics) throws Exception {
        Map<String, TopicConfig> found = new ConcurrentHashMap<>();
        for (String topic : batchTopics) {
            TopicConfig config = new TopicConfig(topic);
            TopicConfig.class.getMethod("setAttributes", Map.class).invoke(config, Map.of("queue.type", "BatchCQ"));
            found.put(topic, config);
        }
        return found;
    }
}

import java.lang.reflect.Constructor;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageArrivingListener;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** Makes a release's message store outside a broker; nothing is loaded yet. */
final class MessageStores {
    private MessageStores() {}

    static DefaultMessageStore open(MessageStoreConfig config) throws Exception {
        BrokerStatsManager stats = new BrokerStatsManager("harness", false);
        MessageArrivingListener nobody = (topic, queueId, offset, tagsCode, time, bitMap, properties) -> { };
        for (Constructor<?> constructor : DefaultMessageStore.class.getConstructors()) {
            switch (constructor.getParameterCount()) {
                case 4:
                    return (DefaultMessageStore) constructor.newInstance(config, stats, nobody, new BrokerConfig());
                case 5:
                    return (DefaultMessageStore) constructor.newInstance(
                        config, stats, nobody, new BrokerConfig(), new ConcurrentHashMap<>());
                default:
            }
        }
        throw new IllegalStateException("a DefaultMessageStore of another shape than 4.9.3's and 5.5.0's");
    }
}

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.ConfigManager;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * Lets a broker load each of many stores with its configuration, and says what it has then; no port is opened.
 *
 * <p>{@code stores} is a file whose lines are files of properties, one a store. Each answer is one line of JSON: whether
 * the broker would start, and what it would save as each of four files.
 */
public final class Configs {
    private Configs() {}

    public static void main(String[] args) throws Exception {
        Arguments arguments = new Arguments(args, 0);
        Path list = Path.of(arguments.text("stores"));
        arguments.refuseUnread();
        for (String line : Files.readAllLines(list)) {
            System.out.println(Json.write(answer(Path.of(line))));
            System.out.flush();
        }
        // What the controllers have scheduled would change the stores.
        Runtime.getRuntime().halt(0);
    }

    private static Object answer(Path file) throws Exception {
        Properties settings = new Properties();
        try (var reader = Files.newBufferedReader(file)) {
            settings.load(reader);
        }
        BrokerConfig broker = new BrokerConfig();
        MessageStoreConfig store = new MessageStoreConfig();
        MixAll.properties2Object(settings, broker);
        MixAll.properties2Object(settings, store);
        BrokerController controller = new BrokerController(broker, new NettyServerConfig(), new NettyClientConfig(), store);
        boolean loads;
        String error = "";
        try {
            loads = controller.initialize();
        } catch (Throwable e) {
            loads = false;
            error = e.toString();
        }
        if (!loads) {
            return Json.object("starts", false, "error", error);
        }
        return Json.object(
            "starts", true,
            "topics.json", controller.getTopicConfigManager().encode(),
            "subscriptionGroup.json", controller.getSubscriptionGroupManager().encode(),
            "consumerOffset.json", controller.getConsumerOffsetManager().encode(),
            "delayOffset.json", delays(controller).encode());
    }

    /** The service for delayed messages is the controller's in 5.x, and the message store's in 4.9.3. */
    private static ConfigManager delays(BrokerController controller) throws Exception {
        try {
            return (ConfigManager) BrokerController.class.getMethod("getScheduleMessageService").invoke(controller);
        } catch (NoSuchMethodException e) {
            Object store = controller.getMessageStore();
            return (ConfigManager) store.getClass().getMethod("getScheduleMessageService").invoke(store);
        }
    }
}

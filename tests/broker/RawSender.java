import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Map;
import org.apache.rocketmq.client.impl.CommunicationMode;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * The subcommand "raw": messages to a topic whose name the client would refuse, below its checks. The broker makes the topic
 * itself where it begins with %RETRY% and it knows the group; from 128 characters on its records are of version 2 (5.1.0 and later).
 */
final class RawSender {
    private static final String[] HEADERS = {
        "org.apache.rocketmq.remoting.protocol.header.SendMessageRequestHeader",
        "org.apache.rocketmq.common.protocol.header.SendMessageRequestHeader",
    };
    private static final int TIMEOUT_MS = 10_000;

    private final String topic;
    private final int count;
    private final MessageMaker maker;
    private final DefaultMQProducer producer;
    private final DefaultMQAdminExt admin;

    RawSender(Cluster cluster, Arguments arguments) {
        topic = arguments.text("topic");
        count = arguments.number("count", 50);
        long seed = arguments.longNumber("seed", 1);
        maker = new MessageMaker(new MessageMaker.Shape(arguments), seed, "w" + seed);
        producer = cluster.configureProducer(new DefaultMQProducer("reput-raw"), arguments);
        admin = cluster.configure(new DefaultMQAdminExt());
        arguments.refuseUnread();
    }

    Map<String, Object> run() throws Exception {
        producer.start();
        admin.start();
        var broker = admin.examineBrokerClusterInfo().getBrokerAddrTable().values().iterator().next();
        MQClientInstance factory = producer.getDefaultMQProducerImpl().getmQClientFactory();
        Object api = factory.getMQClientAPIImpl();
        // The header's package differs between 4.x and 5.x; everything else of the call is the same.
        Method send = Arrays.stream(api.getClass().getMethods())
            .filter(method -> method.getName().equals("sendMessage") && method.getParameterCount() == 8)
            .findFirst().orElseThrow();
        int acknowledged = 0;
        for (int i = 0; i < count; i++) {
            Message message = maker.make(topic);
            SendResult result = (SendResult) send.invoke(api, broker.getBrokerAddrs().get(0L), broker.getBrokerName(), message,
                header(message), (long) TIMEOUT_MS, CommunicationMode.SYNC, null, producer.getDefaultMQProducerImpl());
            acknowledged += result.getOffsetMsgId() == null ? 0 : 1;
        }
        producer.shutdown();
        admin.shutdown();
        return Json.object("acknowledged", acknowledged, "failed", count - acknowledged, "first_failure", null);
    }

    private Object header(Message message) throws Exception {
        Object header = headerClass().getConstructor().newInstance();
        set(header, "setProducerGroup", producer.getProducerGroup());
        set(header, "setTopic", topic);
        set(header, "setDefaultTopic", producer.getCreateTopicKey());
        set(header, "setDefaultTopicQueueNums", 1);
        set(header, "setQueueId", 0);
        set(header, "setSysFlag", 0);
        set(header, "setBornTimestamp", System.currentTimeMillis());
        set(header, "setFlag", 0);
        set(header, "setProperties", MessageDecoder.messageProperties2String(message.getProperties()));
        set(header, "setReconsumeTimes", 0);
        set(header, "setUnitMode", false);
        set(header, "setBatch", false);
        return header;
    }

    private static Class<?> headerClass() throws ClassNotFoundException {
        for (String name : HEADERS) {
            try {
                return Class.forName(name);
            } catch (ClassNotFoundException e) {
                // The other version's name.
            }
        }
        throw new ClassNotFoundException(HEADERS[0]);
    }

    private static void set(Object header, String setter, Object value) throws Exception {
        for (Method method : header.getClass().getMethods()) {
            if (method.getName().equals(setter)) {
                method.invoke(header, value);
                return;
            }
        }
        throw new NoSuchMethodException(setter);
    }
}

import java.io.BufferedReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/**
 * Sends the messages of a file of `reput ask ... --plan --bodies FILE` again, one after the other.
 *
 * <pre>java -cp "ROCKETMQ_HOME/lib/*" Resend.java FILE NAMESRV [LINES]</pre>
 *
 * Each goes to the topic that its producer sent it to, at once, with its body, tags, keys, flag and the producer's own
 * properties, and with a property RESENT_FROM, the offset message id of the record it is made from. It gets a unique key
 * of its own, so to a consumer it is another message: only its keys and RESENT_FROM tell. LINES are left out at the
 * file's beginning: what a run that ended early said it had sent.
 */
public final class Resend {
    private Resend() {}

    public static void main(String[] words) throws Exception {
        if (words.length < 2) {
            System.err.println("usage: java -cp \"ROCKETMQ_HOME/lib/*\" Resend.java FILE NAMESRV [LINES]");
            System.exit(2);
        }
        long leftOut = words.length > 2 ? Long.parseLong(words[2]) : 0;
        DefaultMQProducer producer = new DefaultMQProducer("reput-resend");
        producer.setNamesrvAddr(words[1]);
        producer.start();
        long done = 0;
        try (BufferedReader lines = Files.newBufferedReader(Path.of(words[0]), StandardCharsets.UTF_8)) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                if (done >= leftOut) {
                    send(producer, RemotingSerializable.fromJson(line, Map.class));
                }
                done++;
            }
            System.out.println(done - leftOut + " messages were sent");
        } catch (Exception e) {
            System.err.println(done + " lines of the file are done, the next one failed: " + e);
            System.exit(1);
        } finally {
            producer.shutdown();
        }
    }

    private static void send(DefaultMQProducer producer, Map<?, ?> line) throws Exception {
        Object topic = line.get("origin_topic");
        if (topic == null) {
            throw new IllegalArgumentException("the log does not say which topic " + line.get("msg_id") + " was sent to");
        }
        byte[] body = Base64.getDecoder().decode(line.get("body_base64").toString());
        Map<?, ?> properties = (Map<?, ?>) line.get("properties");
        Message message = new Message(topic.toString(), body);
        message.setFlag(((Number) line.get("flag")).intValue());
        for (Map.Entry<?, ?> each : properties.entrySet()) {
            String name = each.getKey().toString();
            if (name.equals(MessageConst.PROPERTY_TAGS)) {
                message.setTags(each.getValue().toString());
            } else if (name.equals(MessageConst.PROPERTY_KEYS)) {
                message.setKeys(each.getValue().toString());
            } else if (isOfTheProducer(name)) {
                message.putUserProperty(name, each.getValue().toString());
            }
        }
        message.putUserProperty("RESENT_FROM", line.get("msg_id").toString());
        SendResult result = producer.send(message);
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException("the broker answered " + result.getSendStatus());
        }
    }

    /** Whether a property is none that the client or the broker gave the message. */
    private static boolean isOfTheProducer(String name) {
        return !MessageConst.STRING_HASH_SET.contains(name) && !name.startsWith("__") && !name.equals("CLUSTER")
            && !name.equals("RESENT_FROM");
    }
}

import java.util.Map;
import org.apache.rocketmq.common.message.MessageExt;

/** What the client knows of a stored message, in the words of the message table. */
final class Messages {
    private Messages() {}

    static Map<String, Object> describe(MessageExt message) {
        return Json.object(
            "topic", message.getTopic(),
            "queue_id", message.getQueueId(),
            "queue_offset", message.getQueueOffset(),
            "physical_offset", message.getCommitLogOffset(),
            "msg_size", message.getStoreSize(),
            "tags", message.getTags(),
            "keys", message.getKeys(),
            "uniq_key", message.getProperty("UNIQ_KEY"),
            "store_time", message.getStoreTimestamp(),
            "born_time", message.getBornTimestamp(),
            "sys_flag", message.getSysFlag(),
            "reconsume_times", message.getReconsumeTimes(),
            "prepared_transaction_offset", message.getPreparedTransactionOffset(),
            "body_size", message.getBody() == null ? 0 : message.getBody().length);
    }
}

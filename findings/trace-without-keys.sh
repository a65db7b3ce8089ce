#!/usr/bin/env bash
# rocketmq-client 4.9.3 and 5.5.0: a message trace of a message without keys says that its key is the word "null", and so
# do its tags. `TraceDataEncoder` joins texts, and Java writes null as "null". Who looks a trace up by key finds all
# messages that have none. A message whose keys are set to an empty text is worse off: the trace that a consumer sends
# before it consumes ends with the empty field, and RocketMQ's own decoder ends with an
# ArrayIndexOutOfBoundsException, for all traces in the same body.
# Seen on 2026-11-27. Needs Java 17 and Maven.
source "$(dirname "$0")/expect.sh"

cat >Trace.java <<'JAVA'
import java.util.*;
import org.apache.rocketmq.client.AccessChannel;
import org.apache.rocketmq.client.trace.*;
import org.apache.rocketmq.common.message.MessageType;

public class Trace {
    static TraceContext context(TraceType type, String keys) {
        TraceBean bean = new TraceBean();
        bean.setTopic("Topic");
        bean.setMsgId("ID");
        bean.setTags(null);
        bean.setKeys(keys);
        bean.setMsgType(MessageType.Normal_Msg);
        TraceContext context = new TraceContext();
        context.setTraceType(type);
        context.setGroupName("group");
        context.setRegionId("region");
        context.setRequestId("request");
        try { // since 4.9.4; without it the trace after consumption cannot be encoded
            TraceContext.class.getMethod("setAccessChannel", AccessChannel.class).invoke(context, AccessChannel.LOCAL);
        } catch (ReflectiveOperationException error) {
            // 4.9.3
        }
        context.setTraceBeans(List.of(bean));
        return context;
    }

    public static void main(String[] args) {
        for (TraceType type : new TraceType[] {TraceType.Pub, TraceType.SubBefore, TraceType.SubAfter}) {
            for (String keys : new String[] {null, ""}) {
                String body = TraceDataEncoder.encoderFromContextBean(context(type, keys)).getTransData();
                String back;
                try {
                    TraceBean bean = TraceDataEncoder.decoderFromTraceDataString(body).get(0).getTraceBeans().get(0);
                    back = "keys '" + bean.getKeys() + "', tags '" + bean.getTags() + "'";
                } catch (RuntimeException error) {
                    back = error.getClass().getSimpleName();
                }
                System.out.println(type + " of a message with keys " + (keys == null ? "not set" : "''") + " is read as " + back);
            }
        }
    }
}
JAVA
for version in 4.9.3 5.5.0; do
    jars_of org.apache.rocketmq:rocketmq-client:$version
    echo "rocketmq-client $version"
    java -cp "$version/*" Trace.java 2>java.log
done | seen "$(for version in 4.9.3 5.5.0; do
    echo "rocketmq-client $version
Pub of a message with keys not set is read as keys 'null', tags 'null'
Pub of a message with keys '' is read as keys '', tags 'null'
SubBefore of a message with keys not set is read as keys 'null', tags ''
SubBefore of a message with keys '' is read as ArrayIndexOutOfBoundsException
SubAfter of a message with keys not set is read as keys 'null', tags ''
SubAfter of a message with keys '' is read as keys '', tags ''"
done)"

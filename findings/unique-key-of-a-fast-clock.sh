#!/usr/bin/env bash
# rocketmq-client 4.9.3 and 5.5.0: `MessageClientIDSetter.getNearlyTimeFromID` reads the time out of a unique key. A key
# from a producer whose clock is two seconds ahead of the reader's is read as about a month old. A key holds milliseconds
# since its month began; a time after "now" is taken for one of the month before. So of two keys made three seconds apart
# one is from today and one from last month, whenever clocks are a little apart.
# Seen on 2026-11-27. Needs Java 17 and Maven.
source "$(dirname "$0")/expect.sh"

cat >Ahead.java <<'JAVA'
import java.util.Calendar;
import org.apache.rocketmq.common.message.MessageClientIDSetter;

public class Ahead {
    public static void main(String[] args) {
        for (int ahead : new int[] {-3, -1, 2}) {
            Calendar month = Calendar.getInstance();
            long now = month.getTimeInMillis();
            month.set(Calendar.DAY_OF_MONTH, 1);
            for (int field : new int[] {Calendar.HOUR_OF_DAY, Calendar.MINUTE, Calendar.SECOND, Calendar.MILLISECOND}) {
                month.set(field, 0);
            }
            // An address, a process, a class loader, the milliseconds of the month, a counter.
            int span = (int) (now + ahead * 1000L - month.getTimeInMillis());
            String key = "C0000202" + "0001" + "1DBD16A6" + String.format("%08X", span) + "0001";
            long read = MessageClientIDSetter.getNearlyTimeFromID(key).getTime();
            double days = (now - read) / 86_400_000.0;
            String off = Math.abs(days) < 1 ? "read right" : days > 27 && days < 32 ? "read as a month old" : "read as " + days;
            System.out.println("made " + ahead + " s from now: " + off);
        }
    }
}
JAVA
for version in 4.9.3 5.5.0; do
    jars_of org.apache.rocketmq:rocketmq-client:$version
    echo "rocketmq-client $version"
    java -cp "$version/*" Ahead.java 2>java.log
done | seen 'rocketmq-client 4.9.3
made -3 s from now: read right
made -1 s from now: read right
made 2 s from now: read as a month old
rocketmq-client 5.5.0
made -3 s from now: read right
made -1 s from now: read right
made 2 s from now: read as a month old'

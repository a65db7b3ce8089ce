import java.io.BufferedReader;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.common.filter.ExpressionType;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.util.BitsArray;
import org.apache.rocketmq.filter.util.BloomFilter;

/**
 * Asks RocketMQ's own filter classes: a file of questions in, a file of answers out, one a line.
 *
 * <p>A question is its kind and its fields in Base64 of UTF-8, separated by blanks. "sql": an expression, then names and
 * values of properties in turn; the answer is true, false, null, throws or refused. "bloom": error rate, expected number,
 * text; the answer is k, m, the positions and the bits in hexadecimal.
 */
public final class Filters {
    private static final Map<String, Object> COMPILED = new HashMap<>();

    private Filters() {}

    public static void main(String[] arguments) throws Exception {
        try (BufferedReader questions = Files.newBufferedReader(Path.of(arguments[0]), StandardCharsets.UTF_8);
             PrintWriter answers = new PrintWriter(Files.newBufferedWriter(Path.of(arguments[1])))) {
            for (String line = questions.readLine(); line != null; line = questions.readLine()) {
                String[] fields = line.split(" ", -1);
                for (int i = 1; i < fields.length; i++) {
                    fields[i] = new String(Base64.getDecoder().decode(fields[i]), StandardCharsets.UTF_8);
                }
                answers.println(fields[0].equals("sql") ? match(fields) : positions(fields));
            }
        }
    }

    private static String match(String[] fields) {
        Object compiled = COMPILED.computeIfAbsent(fields[1], Filters::compile);
        if (compiled instanceof Throwable) {
            return "refused";
        }
        Map<String, Object> properties = new HashMap<>();
        for (int i = 2; i < fields.length; i += 2) {
            properties.put(fields[i], fields[i + 1]);
        }
        try {
            return String.valueOf(((Expression) compiled).evaluate(new EvaluationContext() {
                @Override
                public Object get(String name) {
                    return properties.get(name);
                }

                @Override
                public Map<String, Object> keyValues() {
                    return properties;
                }
            }));
        } catch (Throwable e) {
            return "throws";
        }
    }

    private static Object compile(String expression) {
        try {
            return FilterFactory.INSTANCE.get(ExpressionType.SQL92).compile(expression);
        } catch (Throwable e) {
            return e;
        }
    }

    private static String positions(String[] fields) {
        BloomFilter filter = BloomFilter.createByFn(Integer.parseInt(fields[1]), Integer.parseInt(fields[2]));
        BitsArray bits = BitsArray.create(filter.getM());
        filter.hashTo(fields[3], bits);
        StringBuilder hex = new StringBuilder();
        for (byte b : bits.bytes()) {
            hex.append(String.format("%02x", b));
        }
        return filter.getK() + " " + filter.getM() + " " + Arrays.toString(filter.calcBitPositions(fields[3])) + " " + hex;
    }
}

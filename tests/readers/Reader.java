// Read Parquet files with parquet-java, and print every row as a line of JSON, as by_python.py says.

import java.io.BufferedOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.parquet.conf.PlainParquetConfiguration;
import org.apache.parquet.example.data.Group;
import org.apache.parquet.hadoop.ParquetReader;
import org.apache.parquet.hadoop.api.ReadSupport;
import org.apache.parquet.hadoop.example.GroupReadSupport;
import org.apache.parquet.io.InputFile;
import org.apache.parquet.io.LocalInputFile;
import org.apache.parquet.schema.LogicalTypeAnnotation;
import org.apache.parquet.schema.Type;
import shaded.parquet.com.fasterxml.jackson.databind.ObjectMapper;

public class Reader {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] paths) throws Exception {
        PrintStream out = new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false, StandardCharsets.UTF_8);
        for (String path : paths) {
            out.println(JSON.writeValueAsString(path));
            try (ParquetReader<Group> reader = new Builder(new LocalInputFile(Path.of(path))).build()) {
                for (Group row = reader.read(); row != null; row = reader.read()) {
                    out.println(JSON.writeValueAsString(columns(row)));
                }
            }
        }
        out.flush();
    }

    private static Map<String, Object> columns(Group row) {
        Map<String, Object> columns = new LinkedHashMap<>();
        for (Type type : row.getType().getFields()) {
            if (row.getFieldRepetitionCount(type.getName()) > 0) {
                columns.put(type.getName(), type.isPrimitive() ? value(row, type) : items(row.getGroup(type.getName(), 0)));
            }
        }
        return columns;
    }

    /** The elements of a list, or the pairs of a map. */
    private static List<Object> items(Group group) {
        List<Object> items = new ArrayList<>();
        for (int at = 0; at < group.getFieldRepetitionCount(0); at++) {
            Group item = group.getGroup(0, at);
            List<Object> values = new ArrayList<>();
            item.getType().getFields().forEach(type -> values.add(value(item, type)));
            items.add(values.size() == 1 ? values.get(0) : values);
        }
        return items;
    }

    private static Object value(Group group, Type type) {
        String name = type.getName();
        return switch (type.asPrimitiveType().getPrimitiveTypeName()) {
            case INT32 -> group.getInteger(name, 0);
            case INT64 -> group.getLong(name, 0);
            case BINARY -> type.getLogicalTypeAnnotation() instanceof LogicalTypeAnnotation.StringLogicalTypeAnnotation
                ? group.getString(name, 0)
                : java.util.HexFormat.of().formatHex(group.getBinary(name, 0).getBytes());
            default -> throw new IllegalArgumentException(type.toString());
        };
    }

    private static final class Builder extends ParquetReader.Builder<Group> {
        Builder(InputFile file) {
            super(file, new PlainParquetConfiguration());
        }

        @Override
        protected ReadSupport<Group> getReadSupport() {
            return new GroupReadSupport();
        }
    }
}

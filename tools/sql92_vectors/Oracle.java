import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;

/**
 * What RocketMQ's own SQL92 makes of expressions and properties. Standard input has a line each, of hexadecimal UTF-8:
 * "r name value name value ..." is a record, "e expression" an expression. For each expression one line comes out:
 * "-" where it is refused, else T, F, N (null) or E (an exception) for each record.
 */
public class Oracle {
    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        List<Map<String, String>> records = new ArrayList<>();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ", -1);
            if (words[0].equals("r")) {
                Map<String, String> record = new HashMap<>();
                for (int i = 1; i + 1 < words.length; i += 2) {
                    record.put(text(words[i]), text(words[i + 1]));
                }
                records.add(record);
            } else {
                System.out.println(results(text(words[1]), records));
            }
        }
    }

    private static String results(String sql, List<Map<String, String>> records) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(sql);
        } catch (MQFilterException refused) {
            return "-";
        }
        StringBuilder found = new StringBuilder();
        for (Map<String, String> record : records) {
            found.append(result(expression, record));
        }
        return found.toString();
    }

    private static char result(Expression expression, Map<String, String> record) {
        try {
            Object value = expression.evaluate(new EvaluationContext() {
                @Override
                public Object get(String name) {
                    return record.get(name);
                }

                @Override
                public Map<String, Object> keyValues() {
                    return new HashMap<>(record);
                }
            });
            return value == null ? 'N' : (Boolean) value ? 'T' : 'F';
        } catch (Exception error) {
            return 'E';
        }
    }

    private static String text(String hexadecimal) {
        return new String(HexFormat.of().parseHex(hexadecimal), StandardCharsets.UTF_8);
    }
}

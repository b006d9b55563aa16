import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Prints what Kafka itself says of configurations, as JSON: tests/config/kafka_configs.json. */
public class Configs {
    static final List<String> NUMBERS = List.of(
        "-131073", "-131072", "-3", "-2", "-1", "0", "1", "2", "3", "4", "9", "10", "17", "18", "22", "23", "14",
        "1048575", "1048576", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "+5", "1.5",
        "0x10", "1_000", "", " 7 ", "-9223372036854775808");
    static final Map<ConfigDef.Type, List<String>> VALUES = Map.of(
        ConfigDef.Type.INT, NUMBERS,
        ConfigDef.Type.LONG, NUMBERS,
        ConfigDef.Type.DOUBLE, List.of("0", "1", "0.5", " .5 ", "1e-3", "-0.1", "1.1", "half", ""),
        ConfigDef.Type.BOOLEAN, List.of("true", "FALSE", " True ", "yes", "1", ""),
        ConfigDef.Type.STRING, List.of(
            "producer", "uncompressed", "gzip", "snappy", "lz4", "zstd", "none", "ZSTD", "", "CreateTime",
            "LogAppendTime", "createtime", " gzip "),
        ConfigDef.Type.LIST, List.of(
            "", "delete", "compact", "compact,delete", " delete , compact ", "delete,delete", "Delete",
            "compact;delete", "*", "0:1", "0:1,1:2", "0:1,", "x", "none", "0"));

    public static void main(String[] words) throws Exception {
        var field = LogConfig.class.getDeclaredField("CONFIG");
        field.setAccessible(true);
        var topics = new TreeMap<String, Object>();
        for (ConfigDef.ConfigKey key : ((ConfigDef) field.get(null)).configKeys().values()) {
            if (!key.internalConfig) {
                topics.put(key.name, topic(key));
            }
        }
        var found = new TreeMap<String, Object>();
        found.put("topics", topics);
        found.put("dynamic", new TreeSet<>(DynamicBrokerConfig.ALL_DYNAMIC_CONFIGS));
        System.out.println(new ObjectMapper().enable(SerializationFeature.INDENT_OUTPUT).writeValueAsString(found));
    }

    static Map<String, Object> topic(ConfigDef.ConfigKey key) {
        var accepted = new ArrayList<String>();
        var refused = new ArrayList<String>();
        for (String value : VALUES.get(key.type)) {
            (takes(key.name, value) ? accepted : refused).add(value);
        }
        var nodes = new ArrayList<String>();
        for (var synonym : ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.getOrDefault(key.name, List.of())) {
            nodes.add(synonym.name());
        }
        var row = new TreeMap<String, Object>();
        row.put("type", key.type.name());
        row.put("default", ConfigDef.convertToString(key.defaultValue, key.type));
        row.put("nodes", nodes);
        row.put("accepted", accepted);
        row.put("refused", refused);
        return row;
    }

    static boolean takes(String name, String value) {
        try {
            LogConfig.validate(Map.of(), new HashMap<>(Map.of(name, value)), Map.of("log.retention.ms", 1L), false);
            return true;
        } catch (RuntimeException refusal) {
            return false;
        }
    }
}

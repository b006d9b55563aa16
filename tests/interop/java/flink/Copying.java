import java.time.Duration;
import java.util.Properties;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.ExternalizedCheckpointRetention;
import org.apache.flink.configuration.RestartStrategyOptions;
import org.apache.flink.configuration.StateRecoveryOptions;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.CheckpointingMode;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * Copies a topic into another one, exactly once:
 * Copying HOST:PORT NAME INPUT OUTPUT CHECKPOINTS [CHECKPOINT-TO-GO-ON-FROM].
 *
 * Reads what is committed, for ever.
 */
public final class Copying {
    public static void main(String[] words) throws Exception {
        Configuration configuration = new Configuration();
        configuration.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, "file://" + words[4]);
        configuration.set(RestartStrategyOptions.RESTART_STRATEGY, "none");
        configuration.set(
            CheckpointingOptions.EXTERNALIZED_CHECKPOINT_RETENTION, ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION);
        if (words.length > 5) {
            configuration.set(StateRecoveryOptions.SAVEPOINT_PATH, words[5]);
        }
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(configuration);
        env.setParallelism(2);
        env.enableCheckpointing(500, CheckpointingMode.EXACTLY_ONCE);

        var source = KafkaSource.<String>builder()
            .setBootstrapServers(words[0]).setTopics(words[2]).setGroupId(words[1])
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setProperty("isolation.level", "read_committed")
            .setProperty("partition.discovery.interval.ms", "1000")
            .setValueOnlyDeserializer(new SimpleStringSchema());
        Properties producing = new Properties();
        producing.put("transaction.timeout.ms", "60000");
        var sink = KafkaSink.<String>builder()
            .setBootstrapServers(words[0])
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix(words[1])
            .setKafkaProducerConfig(producing)
            .setRecordSerializer(KafkaRecordSerializationSchema.builder()
                .setTopic(words[3]).setValueSerializationSchema(new SimpleStringSchema()).build())
            .build();
        env.fromSource(source.build(), WatermarkStrategy.noWatermarks(), "source").uid("source")
            .sinkTo(sink).uid("sink");
        System.out.println("STARTING");
        env.execute(words[1]);
    }
}

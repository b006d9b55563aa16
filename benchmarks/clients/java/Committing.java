import java.time.Duration;
import java.util.Arrays;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;

import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * How many transactions and offset commits a second, by Kafka's Java client: Committing HOST:PORT TOPIC SECONDS.
 *
 * Prints one line of JSON with the figures of benchmarks/clients/committing.py. Everything is warmed up for a third of its
 * time first: the JVM compiles what it runs often.
 */
public final class Committing {
    private static final byte[] VALUE = new byte[100];

    private final String topic;
    private final double seconds;
    private final StringBuilder figures = new StringBuilder();

    private Committing(String topic, double seconds) {
        this.topic = topic;
        this.seconds = seconds;
    }

    public static void main(String[] words) throws Exception {
        Committing load = new Committing(words[1], Double.parseDouble(words[2]));
        load.transactions(words[0]);
        load.offsets(words[0]);
        System.out.println("{" + load.figures.substring(2) + "}");
    }

    private interface Step {
        /** Returns what is to be timed, in ns; negative: the whole of it. */
        long run() throws Exception;
    }

    private void transactions(String servers) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("transactional.id", topic + "-java");
        try (KafkaProducer<byte[], byte[]> producer =
                 new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            measure("tx_1", "tx_s", () -> transaction(producer, 1, false));
            measure("tx_1000", "tx_s", () -> transaction(producer, 1_000, false));
            measure("commit", "s", () -> transaction(producer, 1, true));
        }
    }

    private long transaction(KafkaProducer<byte[], byte[]> producer, int records, boolean commitOnly) {
        producer.beginTransaction();
        for (int number = 0; number < records; number++) {
            producer.send(new ProducerRecord<>(topic, 0, null, VALUE));
        }
        if (!commitOnly) {
            producer.commitTransaction();
            return -1;
        }
        producer.flush();
        long begun = System.nanoTime();
        producer.commitTransaction();
        return System.nanoTime() - begun;
    }

    private void offsets(String servers) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("group.id", topic + "-java");
        settings.put("enable.auto.commit", "false");
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(Arrays.asList(partition));
            consumer.poll(Duration.ofMillis(100));
            // Paused, or the consumer's own fetches would be measured too.
            consumer.pause(Arrays.asList(partition));
            long[] next = {0};
            measure("offsets", "s", () -> {
                consumer.commitSync(Map.of(partition, new OffsetAndMetadata(++next[0])));
                return -1;
            });
        }
    }

    private void measure(String name, String rate, Step step) throws Exception {
        run(step, seconds / 3);
        long[] took = run(step, seconds);
        long last = took[took.length - 1];
        long[] sorted = Arrays.copyOf(took, took.length - 1);
        Arrays.sort(sorted);
        add(name + "_" + rate, sorted.length * 1e9 / last);
        add(name + "_p50_ms", at(sorted, 0.5));
        add(name + "_p99_ms", at(sorted, 0.99));
    }

    private static double at(long[] sorted, double fraction) {
        return sorted[Math.min(sorted.length - 1, (int) (sorted.length * fraction))] / 1e6;
    }

    /** What each step took, and at the end what all took together, in ns. */
    private static long[] run(Step step, double seconds) throws Exception {
        long[] took = new long[1 << 10];
        int count = 0;
        long begun = System.nanoTime();
        long now = begun;
        while (count == 0 || now - begun < seconds * 1e9) {
            long at = now;
            long own = step.run();
            now = System.nanoTime();
            if (count == took.length) {
                took = Arrays.copyOf(took, 2 * count);
            }
            took[count++] = own >= 0 ? own : now - at;
        }
        took = Arrays.copyOf(took, count + 1);
        took[count] = now - begun;
        return took;
    }

    private void add(String name, double value) {
        figures.append(String.format(Locale.ROOT, ", \"%s\": %.6g", name, value));
    }
}

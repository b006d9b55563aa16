import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Sending SERVERS TOPIC PARTITIONS PRODUCERS: 0, 1, 2, … by idempotent producers until SIGTERM; then `sent N failed M`. */
public class Sending {
    private static volatile boolean ending = false;

    public static void main(String[] args) throws Exception {
        int partitions = Integer.parseInt(args[2]);
        Map<String, Object> config = Map.of(
            "bootstrap.servers", args[0], "enable.idempotence", true, "batch.size", 200, "linger.ms", 0,
            "retry.backoff.ms", 10, "retry.backoff.max.ms", 20, "reconnect.backoff.ms", 10, "reconnect.backoff.max.ms", 50,
            "key.serializer", StringSerializer.class, "value.serializer", StringSerializer.class);
        List<KafkaProducer<String, String>> producers = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(args[3]); i++) {
            producers.add(new KafkaProducer<>(config));
        }
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            ending = true;
            try {
                main.join();
            } catch (InterruptedException e) {
                throw new RuntimeException(e);
            }
        }));
        AtomicInteger failed = new AtomicInteger();
        int number = 0;
        System.out.println("sending");
        while (!ending) {
            for (KafkaProducer<String, String> producer : producers) {
                ProducerRecord<String, String> record =
                    new ProducerRecord<>(args[1], number % partitions, null, Integer.toString(number));
                number++;
                producer.send(record, (metadata, error) -> {
                    if (error != null) {
                        System.err.println(error);
                        failed.incrementAndGet();
                    }
                });
            }
            Thread.sleep(2);
        }
        producers.forEach(KafkaProducer::close);
        System.out.println("sent " + number + " failed " + failed);
    }
}

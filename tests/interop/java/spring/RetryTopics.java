import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.DltHandler;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.EnableKafkaRetryTopic;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.annotation.RetryableTopic;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.ConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaAdmin;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.core.ProducerFactory;
import org.springframework.kafka.support.KafkaHeaders;
import org.springframework.messaging.handler.annotation.Header;
import org.springframework.kafka.annotation.BackOff;
import org.springframework.scheduling.TaskScheduler;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;

/**
 * spring-kafka's retry topics, which it creates itself: a listener refuses "bad" for good and "slow" twice.
 *
 * <p>java RetryTopics.java HOST:PORT TOPIC GROUP
 *
 * <p>A line "TOPIC VALUE" for each attempt, "dead VALUE" for what ended in the dead-letter topic. It ends with its stdin's
 * owner.
 */
public class RetryTopics {
    static String servers, topic, group;

    static synchronized void say(String line) {
        System.out.println(line);
    }

    public static class Listener {
        private final Map<String, Integer> tries = new HashMap<>();

        @RetryableTopic(attempts = "4", backOff = @BackOff(delay = 300, multiplier = 2.0))
        @KafkaListener(topics = "#{@place}", groupId = "#{@crowd}")
        public void take(String value, @Header(KafkaHeaders.RECEIVED_TOPIC) String from) {
            say(from + " " + value);
            int before;
            synchronized (tries) {
                before = tries.merge(value, 1, Integer::sum);
            }
            if (value.equals("bad") || (value.equals("slow") && before <= 2)) {
                throw new IllegalStateException("not now");
            }
        }

        @DltHandler
        public void dead(String value) {
            say("dead " + value);
        }
    }

    @Configuration
    @EnableKafka
    @EnableKafkaRetryTopic
    public static class Beans {
        @Bean
        public String place() {
            return topic;
        }

        @Bean
        public String crowd() {
            return group;
        }

        @Bean
        public Listener listener() {
            return new Listener();
        }

        @Bean
        public TaskScheduler scheduler() {
            return new ThreadPoolTaskScheduler();
        }

        @Bean
        public KafkaAdmin admin() {
            return new KafkaAdmin(Map.of("bootstrap.servers", servers));
        }

        @Bean
        public ProducerFactory<String, String> producers() {
            return new DefaultKafkaProducerFactory<>(Map.of(
                    ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, servers,
                    ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, StringSerializer.class,
                    ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, StringSerializer.class));
        }

        @Bean
        public KafkaTemplate<String, String> defaultRetryTopicKafkaTemplate(ProducerFactory<String, String> producers) {
            return new KafkaTemplate<>(producers);
        }

        @Bean
        public ConsumerFactory<String, String> consumers() {
            return new DefaultKafkaConsumerFactory<>(Map.of(
                    ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, servers,
                    ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest",
                    ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class,
                    ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class));
        }

        @Bean
        public ConcurrentKafkaListenerContainerFactory<String, String> kafkaListenerContainerFactory(
                ConsumerFactory<String, String> consumers) {
            var factory = new ConcurrentKafkaListenerContainerFactory<String, String>();
            factory.setConsumerFactory(consumers);
            return factory;
        }
    }

    public static void main(String[] words) throws Exception {
        servers = words[0];
        topic = words[1];
        group = words[2];
        try (var context = new AnnotationConfigApplicationContext(Beans.class)) {
            var template = context.getBean(KafkaTemplate.class);
            for (String value : new String[] {"good", "slow", "bad", "last"}) {
                template.send(topic, value).get();
            }
            say("sent");
            Thread.sleep(Long.MAX_VALUE);
        }
    }
}

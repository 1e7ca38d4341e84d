package compat;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.*;

/**
 * Stories with the Java client, run in one JVM since it starts slowly.
 *
 *   java -cp … compat.Story BOOTSTRAP IS_KAFKA CLASS.STORY…
 *
 * Each method `static void …(Story s)` of DataStories and AdminStories is a story; test_java.py finds
 * their names in the sources, asks for those that pytest selected, and reads one line for each:
 * "PASS name", or "FAIL name" and a stack trace up to a line "END". What is here is what the stories
 * are told with.
 */
public class Story {
    static final Duration DEADLINE = Duration.ofSeconds(90);
    static final long T0 = System.currentTimeMillis() - 60_000;
    static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");

    final String bootstrap;
    final boolean isKafka;
    final String prefix;
    final Admin admin;
    int topics = 0;

    Story(String bootstrap, boolean isKafka, String name) {
        this.bootstrap = bootstrap;
        this.isKafka = isKafka;
        this.prefix = "java-" + name + "-" + Long.toHexString(System.nanoTime());
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    public static void main(String[] arguments) throws Exception {
        for (String name : Arrays.asList(arguments).subList(2, arguments.length)) {
            Story story = new Story(arguments[0], Boolean.parseBoolean(arguments[1]), name);
            String[] parts = name.split("\\.");
            Class<?> stories = Class.forName("compat." + parts[0]);
            try {
                stories.getDeclaredMethod(parts[1], Story.class).invoke(null, story);
                System.out.println("PASS " + name);
            } catch (java.lang.reflect.InvocationTargetException failed) {
                System.out.println("FAIL " + name);
                failed.getCause().printStackTrace(System.out);
                System.out.println("END");
            } finally {
                story.admin.close(Duration.ofSeconds(5));
            }
        }
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static void equal(Object wanted, Object found) {
        if (!wanted.equals(found)) throw new AssertionError("wanted " + wanted + ", found " + found);
    }

    static void check(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
    }

    interface Act { void run() throws Exception; }

    /** The act fails with this exception, thrown as it is or inside an ExecutionException. */
    static <E extends Throwable> E fails(Class<E> wanted, Act act) {
        try {
            act.run();
        } catch (Throwable thrown) {
            Throwable cause = thrown instanceof ExecutionException ? thrown.getCause() : thrown;
            if (wanted.isInstance(cause)) return wanted.cast(cause);
            throw new AssertionError("wanted " + wanted.getSimpleName(), thrown);
        }
        throw new AssertionError("wanted " + wanted.getSimpleName() + ", nothing was thrown");
    }

    /** Kafka applies what its controller decided a little later. */
    static void eventually(Callable<Boolean> condition, String what) throws Exception {
        long deadline = System.nanoTime() + DEADLINE.toNanos();
        while (!condition.call()) {
            check(System.nanoTime() < deadline, "not in time: " + what);
            TimeUnit.MILLISECONDS.sleep(20);
        }
    }

    static <T> T get(KafkaFuture<T> future) throws Exception {
        return future.get(DEADLINE.toSeconds(), TimeUnit.SECONDS);
    }

    static <T> T get(Future<T> future) throws Exception {
        return future.get(DEADLINE.toSeconds(), TimeUnit.SECONDS);
    }

    String name() {
        return prefix + "-" + topics++;
    }

    String topic(Map<String, String> configs) throws Exception {
        String name = name();
        get(admin.createTopics(List.of(new NewTopic(name, 1, (short) 1).configs(configs))).all());
        eventually(() -> exists(name), name + " is served");
        return name;
    }

    String topic() throws Exception {
        return topic(Map.of());
    }

    boolean exists(String name) throws Exception {
        return get(admin.listTopics().names()).contains(name);
    }

    Producer<byte[], byte[]> producer(String... settings) {
        Map<String, Object> all = settings(settings);
        all.putIfAbsent("linger.ms", "5");
        return new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
    }

    /** Assigned to partition 0 of the topics, at the beginning. */
    Consumer<byte[], byte[]> consumer(Collection<String> topics, String... settings) {
        Map<String, Object> all = settings(settings);
        all.putIfAbsent("auto.offset.reset", "earliest");
        Consumer<byte[], byte[]> made =
            new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        made.assign(topics.stream().map(topic -> new TopicPartition(topic, 0)).toList());
        return made;
    }

    Map<String, Object> settings(String... pairs) {
        Map<String, Object> all = new java.util.HashMap<>();
        all.put("bootstrap.servers", bootstrap);
        for (int i = 0; i < pairs.length; i += 2) all.put(pairs[i], pairs[i + 1]);
        return all;
    }

    static List<ConsumerRecord<byte[], byte[]>> take(Consumer<byte[], byte[]> reader, int count) {
        List<ConsumerRecord<byte[], byte[]>> got = new ArrayList<>();
        long deadline = System.nanoTime() + DEADLINE.toNanos();
        while (got.size() < count && System.nanoTime() < deadline)
            reader.poll(Duration.ofSeconds(1)).forEach(got::add);
        check(got.size() >= count, "only " + got.size() + " of " + count + " came");
        return got.subList(0, count);
    }

    static List<String> values(List<ConsumerRecord<byte[], byte[]>> records) {
        return records.stream().map(each -> new String(each.value(), StandardCharsets.UTF_8)).toList();
    }

    static List<Long> offsets(List<ConsumerRecord<byte[], byte[]>> records) {
        return records.stream().map(ConsumerRecord::offset).toList();
    }

    /** One batch: values "0", "1", …, timestamps T0, T0 + 10, … */
    void fill(String topic, int count, String... settings) throws Exception {
        String[] all = Arrays.copyOf(settings, settings.length + 2);
        all[settings.length] = "linger.ms";
        all[settings.length + 1] = "100";
        try (var writer = producer(all)) {
            for (int i = 0; i < count; i++)
                writer.send(new ProducerRecord<>(topic, 0, T0 + 10L * i, null, bytes("" + i)));
            writer.flush();
        }
    }

    Config configs(String topic) throws Exception {
        var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        var options = new DescribeConfigsOptions().includeDocumentation(true).includeSynonyms(true);
        return get(admin.describeConfigs(List.of(resource), options).all()).get(resource);
    }

    void alter(String topic, String name, String value, AlterConfigOp.OpType type) throws Exception {
        var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        var change = new AlterConfigOp(new ConfigEntry(name, value), type);
        get(admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all());
    }
}

package compat;

import static compat.Story.*;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Function;

import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * What the stories of share groups are told with.
 *
 * Kumquat waits before a message comes again (retry.backoff.ms, 1000); a story that does not speak of that
 * sets it to 0, which is what Kafka does. Nothing sleeps to see that a message does not come: another one is
 * written behind it, and when that has come, what was available before it has come too. How many messages a
 * poll gives is the broker's to decide: Kafka gives what there is, Kumquat leaves some for other members.
 *
 *   java -cp … compat.Shares BOOTSTRAP GROUP TOPIC    takes what it is given, says "held", and keeps it
 */
public class Shares {
    static final Duration POLL = Duration.ofMillis(200);

    /** A group that begins with the first message. */
    static String group(Story s, String... configs) throws Exception {
        String group = s.name();
        List<String> all = new ArrayList<>(List.of("share.auto.offset.reset", "earliest"));
        if (!s.isKafka) all.addAll(List.of("retry.backoff.ms", "0"));
        all.addAll(Arrays.asList(configs));
        configure(s, group, all.toArray(String[]::new));
        return group;
    }

    static void configure(Story s, String group, String... configs) throws Exception {
        var resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        Map<String, String> wanted = new java.util.LinkedHashMap<>();
        for (int i = 0; i < configs.length; i += 2) wanted.put(configs[i], configs[i + 1]);
        List<AlterConfigOp> changes = wanted.entrySet().stream()
            .map(each -> new AlterConfigOp(new ConfigEntry(each.getKey(), each.getValue()), AlterConfigOp.OpType.SET))
            .toList();
        get(s.admin.incrementalAlterConfigs(Map.of(resource, changes)).all());
        for (var each : wanted.entrySet())
            eventually(() -> {
                var found = config(s, group, each.getKey());
                return found != null && each.getValue().equals(found.value());
            }, each + " is set");
    }

    static ConfigEntry config(Story s, String group, String name) throws Exception {
        var resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        return get(s.admin.describeConfigs(List.of(resource)).all()).get(resource).get(name);
    }

    static KafkaShareConsumer<byte[], byte[]> member(Story s, String group, String topic, String... settings) {
        return member(s, group, List.of(topic), settings);
    }

    static KafkaShareConsumer<byte[], byte[]> member(
            Story s, String group, List<String> topics, String... settings) {
        Map<String, Object> all = s.settings(settings);
        all.put("group.id", group);
        var made = new KafkaShareConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        made.subscribe(topics);
        return made;
    }

    /** One that says what becomes of each message, and takes at most so many at a time. */
    static KafkaShareConsumer<byte[], byte[]> explicit(Story s, String group, String topic, int atOnce) {
        return member(s, group, topic, "share.acknowledgement.mode", "explicit",
            "share.acquire.mode", "record_limit", "max.poll.records", "" + atOnce);
    }

    /** What the first poll gives that gives something. */
    static List<ConsumerRecord<byte[], byte[]>> some(KafkaShareConsumer<byte[], byte[]> reader) {
        List<ConsumerRecord<byte[], byte[]>> got = new ArrayList<>();
        long deadline = System.nanoTime() + DEADLINE.toNanos();
        while (got.isEmpty()) {
            check(System.nanoTime() < deadline, "nothing came");
            reader.poll(POLL).forEach(got::add);
        }
        return got;
    }

    /** So many, with as many polls as it takes; each poll accepts what the one before gave. */
    static List<ConsumerRecord<byte[], byte[]>> take(KafkaShareConsumer<byte[], byte[]> reader, int count) {
        List<ConsumerRecord<byte[], byte[]>> got = new ArrayList<>();
        while (got.size() < count) got.addAll(some(reader));
        return got;
    }

    /** So many deliveries, with as many polls as it takes; each is settled as `verdict` says. */
    static List<ConsumerRecord<byte[], byte[]>> handle(KafkaShareConsumer<byte[], byte[]> reader, int count,
            Function<ConsumerRecord<byte[], byte[]>, AcknowledgeType> verdict) {
        List<ConsumerRecord<byte[], byte[]>> got = new ArrayList<>();
        while (got.size() < count) {
            var some = some(reader);
            some.forEach(each -> reader.acknowledge(each, verdict.apply(each)));
            succeeds(reader);
            got.addAll(some);
        }
        return got;
    }

    /** "value count" of each, sorted. */
    static List<String> deliveries(List<ConsumerRecord<byte[], byte[]>> records) {
        return records.stream().map(each -> value(each) + " " + count(each)).sorted().toList();
    }

    /** The only record that the next poll gives. */
    static ConsumerRecord<byte[], byte[]> one(KafkaShareConsumer<byte[], byte[]> reader) {
        var got = some(reader);
        equal(1, got.size());
        return got.get(0);
    }

    static String value(ConsumerRecord<byte[], byte[]> record) {
        return new String(record.value(), StandardCharsets.UTF_8);
    }

    static int count(ConsumerRecord<byte[], byte[]> record) {
        return record.deliveryCount().orElseThrow();
    }

    /** Acknowledges them all, and waits for the answer, which has no error. */
    static void settle(KafkaShareConsumer<byte[], byte[]> reader,
            List<ConsumerRecord<byte[], byte[]>> records, AcknowledgeType type) {
        records.forEach(each -> reader.acknowledge(each, type));
        succeeds(reader);
    }

    static void succeeds(KafkaShareConsumer<byte[], byte[]> reader) {
        var results = reader.commitSync(DEADLINE);
        check(!results.isEmpty(), "something was acknowledged");
        results.forEach((partition, error) -> equal(Optional.empty(), error));
    }

    static void write(Story s, String topic, String... values) throws Exception {
        try (var writer = s.producer()) {
            for (String value : values) get(writer.send(new ProducerRecord<>(topic, bytes(value))));
        }
    }

    /** What comes to the group up to a message that is written now: nothing else was available. */
    static void onlyNewComes(Story s, String group, String topic) throws Exception {
        try (var reader = member(s, group, topic)) {
            onlyNewComes(s, reader, topic);
        }
    }

    static void onlyNewComes(Story s, KafkaShareConsumer<byte[], byte[]> reader, String topic) throws Exception {
        write(s, topic, "new");
        var got = some(reader);
        equal(List.of("new"), values(got));
        equal(1, count(got.get(0)));
        succeeds(reader);
    }

    public static void main(String[] arguments) throws Exception {
        Story s = new Story(arguments[0], false, "holder");
        var reader = member(s, arguments[1], arguments[2]);
        System.out.println("held " + some(reader).size());
        Thread.sleep(DEADLINE.toMillis() * 10);
    }
}

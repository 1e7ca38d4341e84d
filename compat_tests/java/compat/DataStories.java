package compat;

import static compat.Story.*;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.IntStream;

import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;

/** Producing and reading. */
class DataStories {
    static void acks_0_1_and_all(Story s) throws Exception {
        for (String acks : List.of("0", "1", "all")) {
            String topic = s.topic();
            String idempotence = String.valueOf(acks.equals("all"));
            try (var writer = s.producer("acks", acks, "enable.idempotence", idempotence)) {
                for (int i = 0; i < 20; i++)
                    writer.send(new ProducerRecord<>(topic, bytes("k"), bytes("v" + i)));
                writer.flush();
            }
            try (var reader = s.consumer(List.of(topic))) {
                var got = take(reader, 20);
                equal(IntStream.range(0, 20).mapToObj(i -> "v" + i).toList(), values(got));
                equal(IntStream.range(0, 20).mapToObj(Long::valueOf).toList(), offsets(got));
            }
        }
    }

    /** Fatal, at once, and with the broker's own text. */
    static void a_transactional_id_is_refused_with_what_to_do_instead(Story s) throws Exception {
        if (s.isKafka) return;
        String id = s.name();
        try (var writer = s.producer("transactional.id", id, "max.block.ms", "900000")) {
            var thrown = fails(KafkaException.class, writer::initTransactions);
            check(!(thrown instanceof TimeoutException), "it retried until its time-out: " + thrown);
            for (var text : List.of(id, "does not serve transactions", "Leave transactional.id unset"))
                check(String.valueOf(thrown.getMessage()).contains(text), thrown.toString());
            fails(KafkaException.class, writer::beginTransaction);
        }
    }

    static void every_compression_round_trips(Story s) throws Exception {
        for (String codec : CODECS) {
            String topic = s.topic();
            var sent = IntStream.range(0, 50).mapToObj(i -> (i + "-").repeat(200)).toList();
            try (var writer = s.producer("compression.type", codec)) {
                for (String value : sent) writer.send(new ProducerRecord<>(topic, bytes(value)));
            }
            try (var reader = s.consumer(List.of(topic))) {
                equal(sent, values(take(reader, 50)));
            }
        }
    }

    static void keys_values_headers_and_timestamps_come_back(Story s) throws Exception {
        String topic = s.topic();
        try (var writer = s.producer()) {
            var first = new ProducerRecord<byte[], byte[]>(topic, 0, T0 + 5, bytes("k"), null);
            var sent = get(writer.send(first));
            equal(List.of(0L, T0 + 5), List.of(sent.offset(), sent.timestamp()));
            var second = new ProducerRecord<byte[], byte[]>(topic, 0, T0, null, new byte[0]);
            second.headers().add("a", bytes("1")).add("a", bytes("2")).add("nul", null);
            get(writer.send(second));
        }
        try (var reader = s.consumer(List.of(topic))) {
            var got = take(reader, 2);
            check(got.get(0).value() == null && got.get(1).key() == null, "null stays null");
            equal(List.of(T0 + 5, T0), got.stream().map(ConsumerRecord::timestamp).toList());
            equal(TimestampType.CREATE_TIME, got.get(0).timestampType());
            equal(new RecordHeader("a", bytes("2")), got.get(1).headers().lastHeader("a"));
            check(got.get(1).headers().lastHeader("nul").value() == null, "a null header");
        }
    }

    static void a_large_message_passes_and_a_larger_one_is_refused(Story s) throws Exception {
        String topic = s.topic();
        byte[] large = new byte[900_000];
        Arrays.fill(large, (byte) 'x');
        try (var writer = s.producer("max.request.size", "4000000")) {
            get(writer.send(new ProducerRecord<>(topic, large)));
            var over = new ProducerRecord<byte[], byte[]>(topic, new byte[1_500_000]);
            fails(RecordTooLargeException.class, () -> get(writer.send(over)));
            equal(1L, get(writer.send(new ProducerRecord<>(topic, bytes("fits")))).offset());
        }
        try (var reader = s.consumer(List.of(topic))) {
            check(Arrays.equals(large, take(reader, 1).get(0).value()), "it came back whole");
        }
    }

    static void an_idempotent_producer_gets_dense_offsets(Story s) throws Exception {
        String topic = s.topic();
        try (var writer = s.producer("enable.idempotence", "true", "batch.size", "200")) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = 0; i < 500; i++)
                sent.add(writer.send(new ProducerRecord<>(topic, bytes("" + i))));
            for (int i = 0; i < 500; i++) equal((long) i, get(sent.get(i)).offset());
        }
    }

    static void one_client_works_on_many_topics(Story s) throws Exception {
        List<NewTopic> many = IntStream.range(0, 50)
            .mapToObj(i -> new NewTopic(s.name(), 1, (short) 1)).toList();
        get(s.admin.createTopics(many).all());
        List<String> names = many.stream().map(NewTopic::name).toList();
        try (var writer = s.producer()) {
            for (String name : names) writer.send(new ProducerRecord<>(name, bytes(name)));
        }
        try (var reader = s.consumer(names)) {
            equal(Set.copyOf(names), Set.copyOf(values(take(reader, 50))));
        }
    }

    static void producing_to_an_unknown_topic_creates_it(Story s) throws Exception {
        String topic = s.name();
        try (var writer = s.producer()) {
            equal(0L, get(writer.send(new ProducerRecord<>(topic, bytes("first")))).offset());
        }
        check(s.exists(topic), "it is listed");
    }

    static void reading_from_an_offset_and_again_gives_the_same(Story s) throws Exception {
        String topic = s.topic();
        TopicPartition partition = new TopicPartition(topic, 0);
        for (int i = 0; i < 3; i++) s.fill(topic, 30);
        try (var reader = s.consumer(List.of(topic))) {
            var everything = take(reader, 90);
            equal(IntStream.range(0, 90).mapToObj(Long::valueOf).toList(), offsets(everything));
            for (int start : List.of(0, 37, 89)) {
                reader.seek(partition, start);
                var again = take(reader, 90 - start);
                equal(offsets(everything.subList(start, 90)), offsets(again));
                equal(values(everything.subList(start, 90)), values(again));
            }
            equal(90L, reader.position(partition));
            equal(0L, reader.currentLag(partition).getAsLong());
        }
    }

    static void reading_from_the_end_waits_for_what_comes_after(Story s) throws Exception {
        String topic = s.topic();
        TopicPartition partition = new TopicPartition(topic, 0);
        s.fill(topic, 5);
        String[] patient = {"fetch.max.wait.ms", "120000", "request.timeout.ms", "180000"};
        ExecutorService executor = Executors.newSingleThreadExecutor();
        try (var writer = s.producer(); var reader = s.consumer(List.of(topic), patient)) {
            reader.seekToEnd(List.of(partition));
            equal(5L, reader.position(partition));
            var waiting = executor.submit(() -> take(reader, 1));
            get(writer.send(new ProducerRecord<>(topic, bytes("new"))));
            equal(5L, get(waiting).get(0).offset());
            // It is waiting on the broker again, and would let that answer come first.
            reader.close(CloseOptions.timeout(Duration.ZERO));
        } finally {
            executor.shutdown();
        }
    }

    static void offsets_for_times_are_exact(Story s) throws Exception {
        for (String codec : CODECS) {
            String topic = s.topic();
            TopicPartition partition = new TopicPartition(topic, 0);
            s.fill(topic, 100, "compression.type", codec);
            try (var reader = s.consumer(List.of(topic))) {
                var wanted = Map.of(0L, 0L, 1L, 1L, 45L, 5L, 990L, 99L);
                for (var each : wanted.entrySet()) {
                    var asked = Map.of(partition, T0 + each.getKey());
                    var found = reader.offsetsForTimes(asked).get(partition);
                    equal(List.of(each.getValue(), T0 + 10 * each.getValue()),
                        List.of(found.offset(), found.timestamp()));
                }
                var none = reader.offsetsForTimes(Map.of(partition, T0 + 991)).get(partition);
                check(none == null, "nothing is that late");
                equal(Map.of(partition, 0L), reader.beginningOffsets(List.of(partition)));
                equal(Map.of(partition, 100L), reader.endOffsets(List.of(partition)));
            }
        }
    }

    static void offsets_are_listed_by_every_spec(Story s) throws Exception {
        String topic = s.topic();
        TopicPartition partition = new TopicPartition(topic, 0);
        try (var writer = s.producer("linger.ms", "100")) {
            for (long time : List.of(10L, 30L, 20L))
                writer.send(new ProducerRecord<>(topic, 0, T0 + time, null, bytes("x")));
        }
        var specs = Map.of(OffsetSpec.earliest(), List.of(0L, -1L), OffsetSpec.latest(), List.of(3L, -1L),
            OffsetSpec.maxTimestamp(), List.of(1L, T0 + 30), OffsetSpec.forTimestamp(T0 + 11),
            List.of(1L, T0 + 30), OffsetSpec.forTimestamp(T0 + 31), List.of(-1L, -1L));
        for (var spec : specs.entrySet()) {
            var found = get(s.admin.listOffsets(Map.of(partition, spec.getKey())).all()).get(partition);
            equal(spec.getValue(), List.of(found.offset(), found.timestamp()));
        }
    }

    static void a_tiny_fetch_limit_still_yields_a_whole_batch(Story s) throws Exception {
        String topic = s.topic();
        try (var writer = s.producer()) {
            for (int i = 0; i < 3; i++) get(writer.send(new ProducerRecord<>(topic, new byte[5000])));
        }
        String[] limits = {"fetch.max.bytes", "1", "max.partition.fetch.bytes", "1"};
        try (var reader = s.consumer(List.of(topic), limits)) {
            equal(List.of(0L, 1L, 2L), offsets(take(reader, 3)));
        }
    }

    static void an_offset_out_of_range_resets_as_the_client_was_told(Story s) throws Exception {
        String topic = s.topic();
        TopicPartition partition = new TopicPartition(topic, 0);
        s.fill(topic, 3);
        try (var reader = s.consumer(List.of(topic))) {
            reader.seek(partition, 1_000_000);
            equal(List.of(0L, 1L, 2L), offsets(take(reader, 3)));
        }
        try (var reader = s.consumer(List.of(topic), "auto.offset.reset", "none")) {
            reader.seek(partition, 1_000_000);
            fails(OffsetOutOfRangeException.class, () -> take(reader, 1));
        }
    }

    static void a_producer_outlives_the_deletion_of_its_topic(Story s) throws Exception {
        String topic = s.topic();
        try (var writer = s.producer()) {
            for (long i = 0; i < 3; i++)
                equal(i, get(writer.send(new ProducerRecord<>(topic, bytes("old")))).offset());
            get(s.admin.deleteTopics(List.of(topic)).all());
            eventually(() -> !s.exists(topic), "it is gone");
            get(s.admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all());
            equal(0L, get(writer.send(new ProducerRecord<>(topic, bytes("new")))).offset());
        }
    }
}

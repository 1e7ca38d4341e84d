package compat;

import static compat.Story.*;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Future;
import java.util.stream.IntStream;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.InvalidRecordException;

/** Messages for later, which Kafka does not have: there each story ends at once. */
class DelayStories {
    static final int FAR = 3_600_000;

    /** A delay below 0 is none. */
    static ProducerRecord<byte[], byte[]> record(String topic, String value, int delay, String... headers) {
        var made = new ProducerRecord<byte[], byte[]>(topic, 0, T0, bytes("key"), bytes(value));
        if (delay >= 0) made.headers().add("qmq-delay-ms", bytes("" + delay));
        for (int i = 0; i < headers.length; i += 2) made.headers().add(headers[i], bytes(headers[i + 1]));
        return made;
    }

    static String header(ConsumerRecord<byte[], byte[]> record, String name) {
        var found = record.headers().lastHeader(name);
        return found == null ? null : new String(found.value());
    }

    static void not_early(ConsumerRecord<byte[], byte[]> record) {
        long due = Long.parseLong(header(record, "qmq-due-ms"));
        check(record.timestamp() >= due, "stamped " + record.timestamp() + ", due " + due);
        check(System.currentTimeMillis() >= due, "read before " + due);
    }

    static void every_compression_arrives_whole_when_due(Story s) throws Exception {
        if (s.isKafka) return;
        for (String codec : CODECS) {
            String topic = s.topic();
            long before = System.currentTimeMillis();
            try (var writer = s.producer("compression.type", codec, "linger.ms", "60000")) {
                for (int delay : List.of(400, 0, 200))
                    writer.send(record(topic, ("after " + delay).repeat(50), delay, "trace", "x"));
                writer.flush();
            }
            try (var reader = s.consumer(List.of(topic))) {
                var got = take(reader, 3);
                equal(List.of(0L, 1L, 2L), offsets(got));
                for (int i = 0; i < 3; i++) {
                    var each = got.get(i);
                    equal(("after " + 200 * i).repeat(50), new String(each.value()));
                    equal("key", new String(each.key()));
                    equal("" + T0, header(each, "qmq-created-ms"));
                    equal("x", header(each, "trace"));
                    equal(3, each.headers().toArray().length);
                    check(Long.parseLong(header(each, "qmq-due-ms")) >= before + 200 * i, "due too soon");
                    not_early(each);
                }
            }
        }
    }

    static void idempotent_and_mixed_the_plain_records_keep_their_offsets(Story s) throws Exception {
        if (s.isKafka) return;
        String topic = s.topic();
        try (var writer = s.producer("linger.ms", "60000", "enable.idempotence", "true")) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = 0; i < 300; i++)
                sent.add(writer.send(record(topic, "" + i, i % 3 == 0 ? 100 : -1)));
            writer.flush();
            for (int i = 0; i < 300; i++) equal((long) i, get(sent.get(i)).offset());
        }
        try (var reader = s.consumer(List.of(topic))) {
            var got = take(reader, 300);
            var plain = IntStream.range(0, 300).filter(i -> i % 3 != 0).mapToObj(Long::valueOf).toList();
            equal(plain, offsets(got.subList(0, 200)));
            equal(IntStream.range(300, 400).mapToObj(Long::valueOf).toList(), offsets(got.subList(200, 300)));
            equal(300, Set.copyOf(values(got)).size());
            got.subList(200, 300).forEach(DelayStories::not_early);
        }
    }

    static void a_batch_that_is_all_for_later_has_no_offset(Story s) throws Exception {
        if (s.isKafka) return;
        String topic = s.topic();
        try (var writer = s.producer()) {
            check(!get(writer.send(record(topic, "x", FAR))).hasOffset(), "it tells an offset");
        }
    }

    static void a_bad_header_is_refused(Story s) throws Exception {
        if (s.isKafka) return;
        String topic = s.topic();
        try (var writer = s.producer("enable.idempotence", "false")) {
            var bad = record(topic, "x", -1, "qmq-delay-ms", "soon");
            fails(InvalidRecordException.class, () -> get(writer.send(bad)));
            equal(0L, get(writer.send(record(topic, "good", -1))).offset());
        }
    }

    static void an_idempotent_producer_goes_on_after_a_refusal(Story s) throws Exception {
        if (s.isKafka) return;
        String topic = s.topic();
        try (var writer = s.producer("enable.idempotence", "true")) {
            equal(0L, get(writer.send(record(topic, "one", -1))).offset());
            var bad = record(topic, "x", -1, "qmq-deliver-at", "-5");
            fails(InvalidRecordException.class, () -> get(writer.send(bad)));
            equal(1L, get(writer.send(record(topic, "two", -1))).offset());
            get(writer.send(record(topic, "three", 0)));
        }
        try (var reader = s.consumer(List.of(topic))) {
            equal(List.of("one", "two", "three"), values(take(reader, 3)));
        }
    }

    static void what_is_cancelled_does_not_come_and_what_is_moved_does(Story s) throws Exception {
        if (s.isKafka) return;
        String topic = s.topic();
        try (var writer = s.producer()) {
            for (String name : List.of("a", "b", "c"))
                get(writer.send(record(topic, name, FAR, "qmq-delay-id", name)));
            get(writer.send(record(topic, "ignored", -1, "qmq-delay-cancel", "a")));
            get(writer.send(record(topic, "ignored", 0, "qmq-delay-cancel", "b")));
            get(writer.send(record(topic, "ignored", 300, "qmq-delay-cancel", "c")));
        }
        try (var reader = s.consumer(List.of(topic))) {
            var got = take(reader, 2);
            equal(List.of("b", "c"), values(got));
            got.forEach(DelayStories::not_early);
        }
    }
}

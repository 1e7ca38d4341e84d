package compat;

import static compat.Shares.*;
import static compat.Story.bytes;
import static compat.Story.check;
import static compat.Story.equal;
import static compat.Story.eventually;
import static compat.Story.get;
import static compat.Story.offsets;
import static compat.Story.values;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;

import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Members of a share group: what each is given, and what becomes of what it says. Lock times: LongShareStories. */
class ShareStories {
    static void what_was_polled_is_accepted_by_the_next_poll(Story s) throws Exception {
        String topic = s.topic(), group = group(s);
        s.fill(topic, 10);
        try (var reader = member(s, group, topic)) {
            var got = take(reader, 10);
            equal(IntStream.range(0, 10).mapToObj(i -> "" + i).toList(), values(got));
            equal(IntStream.range(0, 10).mapToObj(Long::valueOf).toList(), offsets(got));
            for (var each : got) equal(1, count(each));
            onlyNewComes(s, reader, topic);
        }
        onlyNewComes(s, group, topic);
    }

    static void commit_sync_accepts_what_was_polled(Story s) throws Exception {
        String topic = s.topic(), group = group(s);
        s.fill(topic, 5);
        try (var reader = member(s, group, topic)) {
            take(reader, 5);
            succeeds(reader);
            equal(Map.of(), reader.commitSync());
        }
        onlyNewComes(s, group, topic);
    }

    static void what_the_last_poll_gave_is_given_back_by_a_close(Story s) throws Exception {
        String topic = s.topic(), group = group(s);
        s.fill(topic, 5);
        List<String> last = List.of();
        try (var reader = member(s, group, topic)) {
            for (int got = 0; got < 5; got += last.size()) last = values(some(reader));
        }
        try (var reader = member(s, group, topic)) {
            var again = take(reader, last.size());
            equal(last, values(again));
            for (var each : again) equal(2, count(each));
            succeeds(reader);
        }
        onlyNewComes(s, group, topic);
    }

    static void commit_async_tells_its_callback(Story s) throws Exception {
        String topic = s.topic(), group = group(s);
        s.fill(topic, 5);
        try (var reader = member(s, group, topic)) {
            Set<Long> told = new TreeSet<>();
            List<Exception> errors = new ArrayList<>();
            reader.setAcknowledgementCommitCallback((offsets, error) -> {
                offsets.values().forEach(told::addAll);
                if (error != null) errors.add(error);
            });
            take(reader, 5);
            reader.commitAsync();
            eventually(() -> {
                reader.poll(POLL);
                return told.size() == 5;
            }, "the callback names them");
            equal(Set.of(0L, 1L, 2L, 3L, 4L), told);
            equal(List.of(), errors);
        }
        onlyNewComes(s, group, topic);
    }

    static void accept_release_and_reject_each_do_what_they_say(Story s) throws Exception {
        String topic = s.topic(), dead = s.topic();
        String group = s.isKafka ? group(s) : group(s, "errors.deadletterqueue.topic.name", dead);
        s.fill(topic, 3);
        try (var reader = explicit(s, group, topic, 10)) {
            var got = handle(reader, 4, each -> switch (value(each) + " " + count(each)) {
                case "1 1" -> AcknowledgeType.RELEASE;
                case "2 1" -> AcknowledgeType.REJECT;
                default -> AcknowledgeType.ACCEPT;
            });
            equal(List.of("0 1", "1 1", "1 2", "2 1"), deliveries(got));
        }
        onlyNewComes(s, group, topic);
        // Kafka 4.3 forgets what was rejected.
        if (!s.isKafka) isDead(s, dead, topic, "2", "rejected", "1");
    }

    static void after_the_last_delivery_a_message_comes_no_more(Story s) throws Exception {
        String topic = s.topic(), dead = s.topic(), limit = "share.delivery.count.limit";
        String group = s.isKafka ? group(s, limit, "3")
            : group(s, limit, "3", "errors.deadletterqueue.topic.name", dead);
        write(s, topic, "poison");
        try (var reader = explicit(s, group, topic, 10)) {
            for (int count = 1; count <= 3; count++) {
                var got = one(reader);
                equal(List.of("poison", count), List.of(value(got), count(got)));
                settle(reader, List.of(got), AcknowledgeType.RELEASE);
            }
        }
        onlyNewComes(s, group, topic);
        if (!s.isKafka) isDead(s, dead, topic, "poison", "attempts", "3");
    }

    private static void isDead(Story s, String dead, String topic, String value, String reason, String attempts)
            throws Exception {
        try (var reader = s.consumer(List.of(dead))) {
            var letter = Story.take(reader, 1).get(0);
            equal(value, value(letter));
            equal(topic, header(letter, "qmq-dead-subject"));
            equal(reason, header(letter, "qmq-dead-reason"));
            equal(attempts, header(letter, "qmq-dead-attempts"));
        }
    }

    private static String header(ConsumerRecord<byte[], byte[]> record, String name) {
        var found = record.headers().lastHeader(name);
        check(found != null, "the header " + name + " in " + record.headers());
        return new String(found.value());
    }

    static void a_released_message_waits_for_the_back_off(Story s) throws Exception {
        if (s.isKafka) return; // Kafka gives it again at once.
        String topic = s.topic(), group = group(s, "retry.backoff.ms", "700");
        write(s, topic, "later");
        try (var reader = explicit(s, group, topic, 10)) {
            var first = one(reader);
            long began = System.nanoTime();
            settle(reader, List.of(first), AcknowledgeType.RELEASE);
            write(s, topic, "meanwhile");
            var next = one(reader);
            equal("meanwhile", value(next));
            settle(reader, List.of(next), AcknowledgeType.ACCEPT);
            var again = one(reader);
            equal(List.of("later", 2), List.of(value(again), count(again)));
            check(System.nanoTime() - began >= 700_000_000L, "not before its time");
            equal("2", header(again, "qmq-attempt"));
            settle(reader, List.of(again), AcknowledgeType.ACCEPT);
        }
    }

    static void record_limit_keeps_to_the_limit(Story s) throws Exception {
        String topic = s.topic(), group = group(s);
        s.fill(topic, 10); // one batch
        try (var first = explicit(s, group, topic, 3); var second = explicit(s, group, topic, 4)) {
            var few = some(first);
            check(few.size() <= 3, "at most three: " + values(few));
            equal(IntStream.range(0, few.size()).mapToObj(i -> "" + i).toList(), values(few));
            var more = some(second);
            check(more.size() <= 4, "at most four: " + values(more));
            settle(second, more, AcknowledgeType.ACCEPT);
            settle(first, few, AcknowledgeType.ACCEPT);
            List<String> all = new ArrayList<>(values(few));
            all.addAll(values(more));
            while (all.size() < 10) {
                few = some(first);
                check(few.size() <= 3, "at most three: " + values(few));
                settle(first, few, AcknowledgeType.ACCEPT);
                all.addAll(values(few));
            }
            equal(IntStream.range(0, 10).mapToObj(i -> "" + i).toList(), all.stream().sorted().toList());
        }
    }

    static void batch_optimized_gives_each_message_once(Story s) throws Exception {
        String topic = s.topic(), group = group(s);
        s.fill(topic, 40);
        try (var reader = member(s, group, topic, "share.acquire.mode", "batch_optimized",
                "max.poll.records", "7")) {
            equal(IntStream.range(0, 40).mapToObj(i -> "" + i).toList(), values(take(reader, 40)));
            succeeds(reader);
        }
        onlyNewComes(s, group, topic);
    }

    static void what_one_holds_when_it_closes_is_with_another_at_once(Story s) throws Exception {
        String topic = s.topic(), group = group(s);
        s.fill(topic, 20);
        try (var other = explicit(s, group, topic, 20)) {
            int held;
            try (var holder = explicit(s, group, topic, 20)) {
                var all = some(holder);
                held = all.size();
                check(held >= 2, "more than one");
                settle(holder, all.subList(0, 1), AcknowledgeType.ACCEPT);
            }
            comesAgain(s, other, 1, held);
        }
        onlyNewComes(s, group, topic);
    }

    /** What is left of twenty: the second time below `again`, the first time from there on. */
    private static void comesAgain(Story s, KafkaShareConsumer<byte[], byte[]> reader, int first, int again) {
        long began = System.nanoTime();
        var got = handle(reader, 20 - first, each -> AcknowledgeType.ACCEPT);
        check(System.nanoTime() - began < 10_000_000_000L, "long before the lock of 30 s ends");
        equal(IntStream.range(first, 20).mapToObj(i -> i + (i < again ? " 2" : " 1")).sorted().toList(),
            deliveries(got));
    }

    static void what_a_killed_process_held_is_with_another_within_seconds(Story s) throws Exception {
        String topic = s.topic(), group = group(s);
        s.fill(topic, 20);
        var builder = new ProcessBuilder(ProcessHandle.current().info().command().orElseThrow(),
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", System.getProperty("java.class.path"),
            "compat.Shares", s.bootstrap, group, topic);
        Process holder = builder.redirectError(ProcessBuilder.Redirect.INHERIT).start();
        try (var other = explicit(s, group, topic, 20)) {
            var said = new BufferedReader(new InputStreamReader(holder.getInputStream()));
            int held = Integer.parseInt(said.readLine().substring("held ".length()));
            holder.destroyForcibly().waitFor();
            comesAgain(s, other, 0, held);
        } finally {
            holder.destroyForcibly();
        }
        onlyNewComes(s, group, topic);
    }

    static void several_consumers_share_without_overlap(Story s) throws Exception {
        String topic = s.topic(), group = group(s);
        int count = 6000, readers = 3;
        Map<String, AtomicInteger> seen = new ConcurrentHashMap<>();
        Set<Integer> busy = ConcurrentHashMap.newKeySet();
        AtomicInteger written = new AtomicInteger();
        var pool = Executors.newFixedThreadPool(readers);
        try {
            List<Future<?>> all = new ArrayList<>();
            for (int i = 0; i < readers; i++) {
                int number = i;
                all.add(pool.submit(() -> {
                    try (var reader = member(s, group, topic, "share.acquire.mode", "record_limit",
                            "max.poll.records", "20")) {
                        while (written.get() == 0 || seen.size() < written.get()) {
                            for (var each : reader.poll(POLL)) {
                                busy.add(number);
                                seen.computeIfAbsent(value(each), v -> new AtomicInteger()).incrementAndGet();
                            }
                        }
                        reader.commitSync();
                    }
                    return null;
                }));
            }
            int sent = 0;
            try (var writer = s.producer()) {
                while (sent < count || busy.size() < readers) {
                    writer.send(new ProducerRecord<>(topic, bytes("" + sent++)));
                    if (sent % 200 == 0) writer.flush();
                    check(sent < 2_000_000, "each gets some");
                }
                writer.flush();
            }
            written.set(sent);
            for (var each : all) get(each);
            equal(sent, seen.size());
            for (var each : seen.entrySet()) equal(each.getKey() + " once", each.getKey()
                + (each.getValue().get() == 1 ? " once" : " " + each.getValue() + " times"));
        } finally {
            pool.shutdownNow();
        }
    }

    static void earliest_begins_with_the_first_message(Story s) throws Exception {
        String topic = s.topic(), group = group(s, "share.auto.offset.reset", "earliest");
        s.fill(topic, 5);
        try (var reader = member(s, group, topic)) {
            equal(List.of("0", "1", "2", "3", "4"), values(take(reader, 5)));
        }
    }

    static void latest_is_the_default_and_begins_with_what_comes(Story s) throws Exception {
        String topic = s.topic(), group = s.name();
        s.fill(topic, 5);
        try (var reader = member(s, group, topic)) {
            List<String> got = new ArrayList<>();
            int[] sent = {100};
            eventually(() -> {
                write(s, topic, "" + sent[0]++);
                got.addAll(values(list(reader)));
                return !got.isEmpty();
            }, "something new came");
            while (!got.contains("" + (sent[0] - 1))) got.addAll(values(some(reader)));
            int first = Integer.parseInt(got.get(0));
            check(first >= 100, "nothing old came: " + got);
            equal(IntStream.range(first, sent[0]).mapToObj(i -> "" + i).toList(), got);
        }
    }

    private static List<ConsumerRecord<byte[], byte[]>> list(KafkaShareConsumer<byte[], byte[]> reader) {
        List<ConsumerRecord<byte[], byte[]>> got = new ArrayList<>();
        reader.poll(POLL).forEach(got::add);
        return got;
    }

    static void by_duration_begins_so_long_ago(Story s) throws Exception {
        String topic = s.topic(), group = group(s, "share.auto.offset.reset", "by_duration:PT1H");
        long now = System.currentTimeMillis();
        try (var writer = s.producer()) {
            for (int i = 0; i < 4; i++) {
                long when = i < 2 ? now - 7_200_000L : now - 60_000L;
                get(writer.send(new ProducerRecord<>(topic, 0, when, null, bytes("" + i))));
            }
        }
        try (var reader = member(s, group, topic)) {
            equal(List.of("2", "3"), values(take(reader, 2)));
        }
    }

    static void two_topics_and_one_of_them_no_more(Story s) throws Exception {
        String one = s.topic(), two = s.topic(), group = group(s);
        s.fill(one, 3);
        s.fill(two, 3);
        try (var reader = member(s, group, List.of(one, two))) {
            Set<String> from = new HashSet<>();
            for (var each : take(reader, 6)) from.add(each.topic() + each.offset());
            equal(6, from.size());
            succeeds(reader);
            reader.subscribe(List.of(two));
            write(s, one, "unseen");
            write(s, two, "seen");
            eventually(() -> values(list(reader)).contains("seen"), "the other topic goes on");
        }
    }

    static void every_compression_round_trips(Story s) throws Exception {
        String topic = s.topic(), group = group(s);
        List<String> sent = new ArrayList<>();
        for (String codec : Story.CODECS) {
            try (var writer = s.producer("compression.type", codec, "linger.ms", "50")) {
                for (int i = 0; i < 20; i++) {
                    sent.add((codec + i + "-").repeat(100));
                    writer.send(new ProducerRecord<>(topic, bytes(sent.get(sent.size() - 1))));
                }
            }
        }
        try (var reader = explicit(s, group, topic, 7)) { // in the middle of batches
            List<String> got = new ArrayList<>();
            while (got.size() < sent.size()) {
                var some = some(reader);
                got.addAll(values(some));
                settle(reader, some, AcknowledgeType.ACCEPT);
            }
            equal(sent, got);
        }
    }

    static void keys_headers_and_timestamps_come_along(Story s) throws Exception {
        String topic = s.topic(), group = group(s);
        try (var writer = s.producer()) {
            var record = new ProducerRecord<byte[], byte[]>(topic, 0, Story.T0, bytes("k"), null);
            record.headers().add("a", bytes("1")).add("a", bytes("2")).add("nul", null);
            get(writer.send(record));
        }
        try (var reader = explicit(s, group, topic, 1)) {
            for (int count = 1; count <= 2; count++) {
                var got = one(reader);
                equal(count, count(got));
                check(got.value() == null, "null stays null");
                equal("k", new String(got.key()));
                equal(Story.T0, got.timestamp());
                equal("2", header(got, "a"));
                check(got.headers().lastHeader("nul").value() == null, "a null header");
                settle(reader, List.of(got), count == 1 ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
            }
        }
    }

    static void a_renewed_message_is_still_held_and_then_accepted(Story s) throws Exception {
        String topic = s.topic(), group = group(s);
        write(s, topic, "slow");
        try (var reader = explicit(s, group, topic, 1)) {
            var got = one(reader);
            equal(30_000, reader.acquisitionLockTimeoutMs().orElseThrow());
            settle(reader, List.of(got), AcknowledgeType.RENEW);
            var same = one(reader);
            equal(List.of("slow", 1), List.of(value(same), count(same)));
            settle(reader, List.of(same), AcknowledgeType.ACCEPT);
        }
        onlyNewComes(s, group, topic);
    }

    static void what_is_released_in_the_middle_comes_again_alone(Story s) throws Exception {
        String topic = s.topic(), group = group(s);
        s.fill(topic, 30);
        try (var reader = explicit(s, group, topic, 30)) {
            Set<Long> middle = Set.of(3L, 10L, 17L, 24L);
            List<String> got = new ArrayList<>();
            while (got.size() < 34) {
                List<ConsumerRecord<byte[], byte[]>> some = new ArrayList<>(some(reader));
                got.addAll(deliveries(some));
                Collections.reverse(some); // in any order
                for (var each : some)
                    reader.acknowledge(each, middle.contains(each.offset()) && count(each) == 1
                        ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
                succeeds(reader);
            }
            List<String> wanted = new ArrayList<>(IntStream.range(0, 30).mapToObj(i -> i + " 1").toList());
            middle.forEach(each -> wanted.add(each + " 2"));
            equal(wanted.stream().sorted().toList(), got.stream().sorted().toList());
            onlyNewComesExplicitly(s, reader, topic);
        }
    }

    private static void onlyNewComesExplicitly(Story s, KafkaShareConsumer<byte[], byte[]> reader, String topic)
            throws Exception {
        write(s, topic, "new");
        var got = one(reader);
        equal("new", value(got));
        settle(reader, List.of(got), AcknowledgeType.ACCEPT);
    }
}

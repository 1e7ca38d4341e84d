package compat;

import static compat.Shares.*;
import static compat.Story.check;
import static compat.Story.equal;

import java.util.List;
import java.util.concurrent.TimeUnit;

import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.common.errors.InvalidRecordStateException;

/** Stories of share groups that wait for a lock to end, which Kafka allows after 15 s at the earliest. */
class LongShareStories {
    private static final int LOCK_MS = 15_000;

    private static String group15(Story s) throws Exception {
        return group(s, "share.record.lock.duration.ms", "" + LOCK_MS);
    }

    static void a_lock_that_ends_gives_the_message_to_another(Story s) throws Exception {
        String topic = s.topic(), group = group15(s);
        write(s, topic, "kept too long");
        try (var slow = explicit(s, group, topic, 1); var other = explicit(s, group, topic, 1)) {
            var held = one(slow);
            long began = System.nanoTime();
            equal(LOCK_MS, slow.acquisitionLockTimeoutMs().orElseThrow());
            var again = one(other);
            equal(List.of("kept too long", 2), List.of(value(again), count(again)));
            long waited = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began);
            check(waited >= LOCK_MS - 1000 && waited < LOCK_MS + 15_000, "at the end of the lock: " + waited);
            slow.acknowledge(held, AcknowledgeType.ACCEPT);
            var results = slow.commitSync(Story.DEADLINE);
            check(results.values().iterator().next().orElseThrow() instanceof InvalidRecordStateException,
                "too late: " + results);
            settle(other, List.of(again), AcknowledgeType.ACCEPT);
        }
        onlyNewComes(s, group, topic);
    }

    static void who_renews_keeps_the_message_beyond_its_lock(Story s) throws Exception {
        String topic = s.topic(), group = group15(s);
        write(s, topic, "slow");
        try (var slow = explicit(s, group, topic, 1)) {
            var held = one(slow);
            for (int i = 0; i < 3; i++) {
                TimeUnit.MILLISECONDS.sleep(LOCK_MS / 2); // what the handler takes
                settle(slow, List.of(held), AcknowledgeType.RENEW);
                held = one(slow);
                equal(List.of("slow", 1), List.of(value(held), count(held)));
            }
            settle(slow, List.of(held), AcknowledgeType.ACCEPT);
        }
        onlyNewComes(s, group, topic);
    }
}

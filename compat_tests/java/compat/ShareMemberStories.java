package compat;

import static compat.Story.*;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.admin.ShareMemberDescription;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.InconsistentGroupProtocolException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Members of share groups: how they come, what they are shown with, how they go. */
class ShareMemberStories {
    private static KafkaShareConsumer<byte[], byte[]> member(Story s, String group, String... topics) {
        Map<String, Object> all = s.settings();
        all.put("group.id", group);
        var made = new KafkaShareConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        made.subscribe(List.of(topics));
        return made;
    }

    private static String group(Story s) throws Exception {
        String group = s.name();
        var earliest = new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
        var resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        get(s.admin.incrementalAlterConfigs(Map.of(resource, List.of(earliest))).all());
        return group;
    }

    /** Polls all of them until so many different values came. */
    @SafeVarargs
    private static Set<String> take(int count, KafkaShareConsumer<byte[], byte[]>... members) {
        Set<String> values = new HashSet<>();
        long deadline = System.nanoTime() + DEADLINE.toNanos();
        while (values.size() < count) {
            check(System.nanoTime() < deadline, "only " + values.size() + " came");
            for (var member : members) {
                member.poll(Duration.ofMillis(50)).forEach(each -> values.add(new String(each.value())));
            }
        }
        return values;
    }

    private static ShareGroupDescription described(Story s, String group) throws Exception {
        return get(s.admin.describeShareGroups(List.of(group)).describedGroups().get(group));
    }

    static void members_are_described_with_what_they_read(Story s) throws Exception {
        String topic = s.topic(), other = s.topic(), group = group(s);
        s.fill(topic, 20);
        var partitions = Set.of(new TopicPartition(topic, 0), new TopicPartition(other, 0));
        try (var one = member(s, group, topic, other); var two = member(s, group, topic, other)) {
            take(20, one, two);
            eventually(() -> {
                one.poll(Duration.ofMillis(20));
                two.poll(Duration.ofMillis(20));
                // Kafka spreads two partitions over two members.
                int wanted = s.isKafka ? 1 : 2;
                return described(s, group).members().size() == 2 && described(s, group).members().stream()
                    .map(each -> each.assignment().topicPartitions())
                    .allMatch(each -> each.size() >= wanted && partitions.containsAll(each));
            }, "both are assigned what there is");
            equal(GroupState.STABLE, described(s, group).groupState());
            for (ShareMemberDescription each : described(s, group).members()) {
                check(each.memberEpoch() > 0, "an epoch");
                check(!each.host().isEmpty(), "a host");
            }
            fails(GroupNotEmptyException.class, () -> get(s.admin.deleteShareGroups(List.of(group)).all()));
            fails(GroupNotEmptyException.class, () -> get(s.admin.alterShareGroupOffsets(group,
                Map.of(new TopicPartition(topic, 0), 0L)).all()));
        }
        eventually(() -> described(s, group).groupState() == GroupState.EMPTY, "all have left");
        var asked = Map.of(group, new ListShareGroupOffsetsSpec());
        eventually(() -> get(s.admin.listShareGroupOffsets(asked).partitionsToOffsetInfo(group))
            .get(new TopicPartition(topic, 0)).lag().orElse(-1L) == 0, "all is settled");
    }

    static void a_member_reads_a_topic_that_is_created_later_and_one_that_it_changes_to(Story s) throws Exception {
        String later = s.name(), changed = s.topic(), group = group(s);
        try (var reader = member(s, group, later)) {
            // Asking for its metadata creates it, when the group has already heard of it.
            eventually(() -> {
                reader.poll(Duration.ofMillis(100));
                return s.exists(later);
            }, "it is there");
            s.fill(later, 5);
            take(5, reader);
            s.fill(changed, 7);
            reader.subscribe(List.of(changed));
            take(7, reader);
        }
    }

    static void a_group_set_back_reads_again(Story s) throws Exception {
        String topic = s.topic(), group = group(s);
        s.fill(topic, 10);
        try (var reader = member(s, group, topic)) {
            take(10, reader);
            reader.commitSync();
        }
        eventually(() -> described(s, group).groupState() == GroupState.EMPTY, "it has left");
        get(s.admin.alterShareGroupOffsets(group, Map.of(new TopicPartition(topic, 0), 6L)).all());
        try (var reader = member(s, group, topic)) {
            equal(Set.of("6", "7", "8", "9"), take(4, reader));
        }
    }

    static void consumers_and_share_consumers_do_not_mix(Story s) throws Exception {
        String topic = s.topic(), group = group(s), plain = s.name();
        s.fill(topic, 5);
        try (var reader = member(s, group, topic)) {
            take(5, reader);
            Map<String, Object> all = s.settings();
            all.put("group.id", group);
            try (var consumer = new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                consumer.subscribe(List.of(topic));
                fails(InconsistentGroupProtocolException.class, () -> polls(() -> consumer.poll(Duration.ofMillis(100))));
            }
            all.put("group.protocol", "consumer");
            try (var consumer = new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                consumer.subscribe(List.of(topic));
                fails(GroupIdNotFoundException.class, () -> polls(() -> consumer.poll(Duration.ofMillis(100))));
            }
        }
        get(s.admin.alterConsumerGroupOffsets(plain,
            Map.of(new TopicPartition(topic, 0), new org.apache.kafka.clients.consumer.OffsetAndMetadata(1))).all());
        try (var reader = member(s, plain, topic)) {
            fails(GroupIdNotFoundException.class, () -> polls(() -> reader.poll(Duration.ofMillis(100))));
        }
    }

    private static void polls(Act poll) throws Exception {
        long deadline = System.nanoTime() + DEADLINE.toNanos();
        while (System.nanoTime() < deadline) poll.run();
    }

    static void a_share_consumer_has_its_first_record_soon(Story s) throws Exception {
        String topic = s.topic(), group = group(s);
        s.fill(topic, 5);
        try (var warm = member(s, group(s), topic)) {
            take(5, warm);
        }
        List<Long> times = new ArrayList<>();
        for (int i = 0; i < 5; i++) {
            try (var writer = s.producer()) {
                get(writer.send(new ProducerRecord<>(topic, bytes("new" + i))));
            }
            long began = System.nanoTime();
            try (var reader = member(s, group, topic)) {
                while (reader.poll(Duration.ofMillis(100)).isEmpty()) {}
                times.add((System.nanoTime() - began) / 1_000_000);
            }
        }
        // Kafka gives an assignment with the second heartbeat, after five seconds. The best of several tells that
        // from a machine with much to do.
        if (!s.isKafka) check(Collections.min(times) < 1000, "start to first record took " + times + " ms");
    }
}

package compat;

import static compat.Story.*;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;

import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.GroupSubscribedToTopicException;
import org.apache.kafka.common.errors.InvalidGroupIdException;
import org.apache.kafka.common.errors.UnknownMemberIdException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Groups through Admin. The stories of members are told in Python: compat_tests/members. */
class GroupStories {
    private static KafkaConsumer<byte[], byte[]> member(Story s, String group, String topic, String... settings) {
        Map<String, Object> all = s.settings(settings);
        all.put("group.id", group);
        all.put("auto.offset.reset", "earliest");
        all.put("enable.auto.commit", "false");
        var made = new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        made.subscribe(List.of(topic));
        return made;
    }

    private static ConsumerGroupDescription described(Story s, String group) throws Exception {
        return get(s.admin.describeConsumerGroups(List.of(group)).describedGroups().get(group));
    }

    private static List<GroupListing> listed(Story s, ListGroupsOptions options) throws Exception {
        return get(s.admin.listGroups(options).all()).stream().toList();
    }

    private static void is_listed_and_described(Story s, GroupType type, String... settings) throws Exception {
        String topic = s.topic(), group = s.name();
        s.fill(topic, 10);
        try (var reader = member(s, group, topic, settings)) {
            take(reader, 10);
            reader.commitSync();
            eventually(() -> described(s, group).groupState() == GroupState.STABLE, "it is stable");
            var found = described(s, group);
            equal(type, found.type());
            equal(1, found.members().size());
            var only = found.members().iterator().next();
            equal(Set.of(new TopicPartition(topic, 0)), only.assignment().topicPartitions());
            equal(false, found.isSimpleConsumerGroup());
            check(!found.coordinator().isEmpty(), "a coordinator");
            var listing = listed(s, ListGroupsOptions.forConsumerGroups()).stream()
                .filter(each -> each.groupId().equals(group)).findFirst().orElseThrow();
            equal(type, listing.type().orElseThrow());
            equal("consumer", listing.protocol());
            check(listed(s, new ListGroupsOptions().withTypes(Set.of(type)).inGroupStates(Set.of(GroupState.STABLE)))
                .stream().anyMatch(each -> each.groupId().equals(group)), "listed by type and state");
            fails(GroupNotEmptyException.class, () -> get(s.admin.deleteConsumerGroups(List.of(group)).all()));
        }
        eventually(() -> described(s, group).groupState() == GroupState.EMPTY, "it is empty");
        equal(10L, offset(s, group, topic));
        get(s.admin.deleteConsumerGroups(List.of(group)).all());
        fails(GroupIdNotFoundException.class, () -> get(s.admin.deleteConsumerGroups(List.of(group)).all()));
    }

    private static Long offset(Story s, String group, String topic) throws Exception {
        var found = get(s.admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
        var of = found.get(new TopicPartition(topic, 0));
        return of == null ? -1L : of.offset();
    }

    static void a_classic_group_is_listed_described_and_deleted(Story s) throws Exception {
        is_listed_and_described(s, GroupType.CLASSIC, "group.protocol", "classic");
    }

    static void a_consumer_group_is_listed_described_and_deleted(Story s) throws Exception {
        is_listed_and_described(s, GroupType.CONSUMER, "group.protocol", "consumer");
    }

    static void a_group_that_is_not_there_is_not_found(Story s) throws Exception {
        String group = s.name();
        fails(GroupIdNotFoundException.class, () -> described(s, group));
        equal(Map.of(), get(s.admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()));
    }

    static void offsets_are_altered_and_deleted_while_nobody_reads(Story s) throws Exception {
        String topic = s.topic(), group = s.name();
        s.fill(topic, 10);
        var partition = new TopicPartition(topic, 0);
        get(s.admin.alterConsumerGroupOffsets(group, Map.of(partition, new OffsetAndMetadata(4, "text"))).all());
        var options = new ListConsumerGroupOffsetsOptions().requireStable(true);
        var spec = Map.of(group, new ListConsumerGroupOffsetsSpec().topicPartitions(List.of(partition)));
        var found = get(s.admin.listConsumerGroupOffsets(spec, options).partitionsToOffsetAndMetadata(group));
        equal(4L, found.get(partition).offset());
        equal("text", found.get(partition).metadata());
        try (var reader = member(s, group, topic)) {
            equal(List.of("4", "5", "6", "7", "8", "9"), values(take(reader, 6)));
            var to = Map.of(partition, new OffsetAndMetadata(0));
            fails(UnknownMemberIdException.class, () -> get(s.admin.alterConsumerGroupOffsets(group, to).all()));
            fails(GroupSubscribedToTopicException.class,
                () -> get(s.admin.deleteConsumerGroupOffsets(group, Set.of(partition)).all()));
        }
        equal(4L, offset(s, group, topic));
        get(s.admin.deleteConsumerGroupOffsets(group, Set.of(partition)).all());
        equal(-1L, offset(s, group, topic));
    }

    static void a_static_member_is_removed_by_its_name(Story s) throws Exception {
        String topic = s.topic(), group = s.name();
        s.fill(topic, 5);
        var reader = member(s, group, topic, "group.instance.id", "one", "session.timeout.ms", "120000");
        try {
            take(reader, 5);
            reader.commitSync();
            equal("one", described(s, group).members().iterator().next().groupInstanceId().orElseThrow());
            reader.close(Duration.ofSeconds(5));
            equal(1, described(s, group).members().size());
            var named = new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("one")));
            get(s.admin.removeMembersFromConsumerGroup(group, named).all());
            eventually(() -> described(s, group).members().isEmpty(), "it is gone");
        } finally {
            reader.close(Duration.ofSeconds(5));
        }
    }

    static void a_group_without_a_name_is_refused(Story s) throws Exception {
        fails(InvalidGroupIdException.class, () -> described(s, ""));
    }
}

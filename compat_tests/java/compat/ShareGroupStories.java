package compat;

import static compat.Shares.*;
import static compat.Story.check;
import static compat.Story.equal;
import static compat.Story.eventually;
import static compat.Story.fails;
import static compat.Story.get;
import static compat.Story.values;

import java.util.List;
import java.util.Map;
import java.util.Set;

import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.admin.SharePartitionOffsetInfo;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** Share groups with members, through Admin. Those without: ShareAdminStories. */
class ShareGroupStories {
    private static ShareGroupDescription described(Story s, String group) throws Exception {
        return get(s.admin.describeShareGroups(List.of(group)).describedGroups().get(group));
    }

    private static SharePartitionOffsetInfo offset(Story s, String group, String topic) throws Exception {
        var partition = new TopicPartition(topic, 0);
        var asked = Map.of(group, new ListShareGroupOffsetsSpec().topicPartitions(List.of(partition)));
        return get(s.admin.listShareGroupOffsets(asked).partitionsToOffsetInfo(group)).get(partition);
    }

    private static boolean listed(Story s, String group, ListGroupsOptions options) throws Exception {
        return get(s.admin.listGroups(options).all()).stream().anyMatch(
            each -> each.groupId().equals(group) && each.type().orElseThrow() == GroupType.SHARE);
    }

    static void a_share_group_is_listed_described_and_deleted(Story s) throws Exception {
        String topic = s.topic(), group = group(s);
        s.fill(topic, 10);
        try (var reader = member(s, group, topic, "client.id", "worker-7")) {
            take(reader, 10);
            eventually(() -> described(s, group).groupState() == GroupState.STABLE, "it is stable");
            var found = described(s, group);
            equal(group, found.groupId());
            check(found.groupEpoch() > 0 && found.targetAssignmentEpoch() > 0, "epochs: " + found);
            check(!found.coordinator().isEmpty(), "a coordinator");
            equal(1, found.members().size());
            var only = found.members().iterator().next();
            equal("worker-7", only.clientId());
            equal(Set.of(new TopicPartition(topic, 0)), only.assignment().topicPartitions());
            check(only.memberEpoch() > 0 && !only.consumerId().isEmpty() && !only.host().isEmpty(), "" + only);
            check(listed(s, group, ListGroupsOptions.forShareGroups()), "listed among share groups");
            check(listed(s, group, new ListGroupsOptions()), "listed among all");
            check(listed(s, group, new ListGroupsOptions().withTypes(Set.of(GroupType.SHARE))
                .inGroupStates(Set.of(GroupState.STABLE))), "listed by type and state");
            check(!listed(s, group, ListGroupsOptions.forConsumerGroups()), "no consumer group");
            fails(GroupNotEmptyException.class, () -> get(s.admin.deleteShareGroups(List.of(group)).all()));
        }
        eventually(() -> described(s, group).groupState() == GroupState.EMPTY, "it is empty");
        equal(0, described(s, group).members().size());
        get(s.admin.deleteShareGroups(List.of(group)).all());
        fails(GroupIdNotFoundException.class, () -> described(s, group));
        check(!listed(s, group, ListGroupsOptions.forShareGroups()), "it is gone");
    }

    static void two_members_are_given_the_same_partition(Story s) throws Exception {
        String topic = s.topic(), group = group(s);
        try (var one = member(s, group, topic); var two = member(s, group, topic)) {
            eventually(() -> {
                one.poll(POLL);
                two.poll(POLL);
                return described(s, group).members().stream().filter(
                    each -> each.assignment().topicPartitions().equals(Set.of(new TopicPartition(topic, 0))))
                    .count() == 2;
            }, "both have it");
        }
    }

    static void a_group_that_is_not_there_is_not_found(Story s) throws Exception {
        String group = s.name();
        fails(GroupIdNotFoundException.class, () -> described(s, group));
        fails(GroupIdNotFoundException.class, () -> get(s.admin.deleteShareGroups(List.of(group)).all()));
    }

    static void the_start_offset_and_the_lag_are_told(Story s) throws Exception {
        String topic = s.topic(), group = group(s);
        s.fill(topic, 4);
        try (var holder = explicit(s, group, topic, 10); var reader = explicit(s, group, topic, 10)) {
            handle(reader, 4, each -> AcknowledgeType.ACCEPT);
            write(s, topic, "held");
            var held = one(holder);
            write(s, topic, "5", "6");
            equal(List.of("5 1", "6 1"), deliveries(handle(reader, 2, each -> AcknowledgeType.ACCEPT)));
            eventually(() -> offset(s, group, topic).startOffset() == 4, "the first four are done");
            equal(1L, offset(s, group, topic).lag().orElseThrow());
            settle(holder, List.of(held), AcknowledgeType.ACCEPT);
            eventually(() -> offset(s, group, topic).lag().orElseThrow() == 0, "all is done");
        }
        var all = get(s.admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec()))
            .partitionsToOffsetInfo(group));
        equal(Set.of(new TopicPartition(topic, 0)), all.keySet());
    }

    static void offsets_are_altered_while_nobody_reads(Story s) throws Exception {
        String topic = s.topic(), group = group(s);
        var partition = new TopicPartition(topic, 0);
        s.fill(topic, 10);
        try (var reader = member(s, group, topic)) {
            take(reader, 10);
            succeeds(reader);
            fails(GroupNotEmptyException.class,
                () -> get(s.admin.alterShareGroupOffsets(group, Map.of(partition, 3L)).all()));
        }
        eventually(() -> described(s, group).groupState() == GroupState.EMPTY, "it is empty");
        get(s.admin.alterShareGroupOffsets(group, Map.of(partition, 6L)).all());
        equal(6L, offset(s, group, topic).startOffset());
        try (var reader = member(s, group, topic)) {
            var got = take(reader, 4);
            equal(List.of("6", "7", "8", "9"), values(got));
            for (var each : got) equal(1, count(each));
        }
    }

    static void deleted_offsets_begin_anew(Story s) throws Exception {
        String topic = s.topic(), group = group(s);
        s.fill(topic, 5);
        try (var reader = member(s, group, topic)) {
            take(reader, 5);
            succeeds(reader);
            fails(GroupNotEmptyException.class,
                () -> get(s.admin.deleteShareGroupOffsets(group, Set.of(topic)).all()));
        }
        eventually(() -> described(s, group).groupState() == GroupState.EMPTY, "it is empty");
        get(s.admin.deleteShareGroupOffsets(group, Set.of(topic)).all());
        check(offset(s, group, topic) == null, "no offset any more");
        try (var reader = member(s, group, topic)) {
            equal(List.of("0", "1", "2", "3", "4"), values(take(reader, 5)));
        }
    }

    static void offsets_of_an_unknown_topic_are_refused(Story s) throws Exception {
        String topic = s.topic(), group = group(s), unknown = s.name();
        s.fill(topic, 1);
        try (var reader = member(s, group, topic)) {
            take(reader, 1);
        }
        eventually(() -> described(s, group).groupState() == GroupState.EMPTY, "it is empty");
        fails(UnknownTopicOrPartitionException.class, () -> get(
            s.admin.alterShareGroupOffsets(group, Map.of(new TopicPartition(unknown, 0), 0L)).all()));
        fails(UnknownTopicOrPartitionException.class,
            () -> get(s.admin.deleteShareGroupOffsets(group, Set.of(unknown)).all()));
    }

    static void group_settings_have_kafkas_defaults_and_bounds(Story s) throws Exception {
        String group = s.name();
        configure(s, group, "share.record.lock.duration.ms", "20000");
        equal("latest", config(s, group, "share.auto.offset.reset").value());
        equal("5", config(s, group, "share.delivery.count.limit").value());
        equal("2000", config(s, group, "share.partition.max.record.locks").value());
        equal("45000", config(s, group, "share.session.timeout.ms").value());
        equal("read_uncommitted", config(s, group, "share.isolation.level").value());
        for (var bad : List.of(
                List.of("share.record.lock.duration.ms", "14999"), List.of("share.record.lock.duration.ms", "60001"),
                List.of("share.delivery.count.limit", "1"), List.of("share.delivery.count.limit", "11"),
                List.of("share.auto.offset.reset", "never"), List.of("share.auto.offset.reset", "by_duration:1 hour"),
                List.of("share.partition.max.record.locks", "99"), List.of("share.isolation.level", "none")))
            fails(InvalidConfigurationException.class, () -> configure(s, group, bad.get(0), bad.get(1)));
    }
}

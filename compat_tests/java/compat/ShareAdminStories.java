package compat;

import static compat.Story.*;

import java.util.List;
import java.util.Map;
import java.util.Set;

import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.admin.SharePartitionOffsetInfo;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** Share groups without members, through Admin. */
class ShareAdminStories {
    private static ShareGroupDescription described(Story s, String group) throws Exception {
        return get(s.admin.describeShareGroups(List.of(group)).describedGroups().get(group));
    }

    private static Map<TopicPartition, SharePartitionOffsetInfo> offsets(Story s, String group) throws Exception {
        var asked = Map.of(group, new ListShareGroupOffsetsSpec());
        return get(s.admin.listShareGroupOffsets(asked).partitionsToOffsetInfo(group));
    }

    private static void alter(Story s, String group, String topic, long offset) throws Exception {
        get(s.admin.alterShareGroupOffsets(group, Map.of(new TopicPartition(topic, 0), offset)).all());
    }

    static void an_offset_makes_a_share_group_that_is_listed_described_and_deleted(Story s) throws Exception {
        String topic = s.topic(), group = s.name();
        s.fill(topic, 10);
        fails(GroupIdNotFoundException.class, () -> described(s, group));
        alter(s, group, topic, 4);
        var found = described(s, group);
        equal(GroupState.EMPTY, found.groupState());
        equal(0, found.members().size());
        check(!found.coordinator().isEmpty(), "a coordinator");
        var options = new ListGroupsOptions().withTypes(Set.of(GroupType.SHARE));
        GroupListing listing = get(s.admin.listGroups(options).all()).stream()
            .filter(each -> each.groupId().equals(group)).findFirst().orElseThrow();
        equal(GroupType.SHARE, listing.type().orElseThrow());
        equal("share", listing.protocol());
        equal(GroupState.EMPTY, listing.groupState().orElseThrow());
        check(get(s.admin.listGroups(ListGroupsOptions.forConsumerGroups()).all()).stream()
            .noneMatch(each -> each.groupId().equals(group)), "it is no consumer group");
        fails(GroupIdNotFoundException.class,
            () -> get(s.admin.describeConsumerGroups(List.of(group)).describedGroups().get(group)));
        get(s.admin.deleteShareGroups(List.of(group)).all());
        fails(GroupIdNotFoundException.class, () -> described(s, group));
        equal(0, offsets(s, group).size());
    }

    static void offsets_of_a_share_group_are_altered_listed_and_deleted(Story s) throws Exception {
        String topic = s.topic(), other = s.topic(), group = s.name();
        var partition = new TopicPartition(topic, 0);
        s.fill(topic, 10);
        alter(s, group, topic, 4);
        equal(4L, offsets(s, group).get(partition).startOffset());
        alter(s, group, topic, 7);
        alter(s, group, other, 0);
        equal(7L, offsets(s, group).get(partition).startOffset());
        if (!s.isKafka) equal(3L, offsets(s, group).get(partition).lag().orElseThrow());
        equal(Set.of(partition, new TopicPartition(other, 0)), offsets(s, group).keySet());
        fails(UnknownTopicOrPartitionException.class, () -> alter(s, group, s.name(), 1));
        get(s.admin.deleteShareGroupOffsets(group, Set.of(topic)).all());
        equal(Set.of(new TopicPartition(other, 0)), offsets(s, group).keySet());
        fails(UnknownTopicOrPartitionException.class,
            () -> get(s.admin.deleteShareGroupOffsets(group, Set.of(topic)).all()));
        fails(GroupIdNotFoundException.class,
            () -> get(s.admin.deleteShareGroupOffsets(s.name(), Set.of(topic)).all()));
    }

    static void a_consumer_group_is_no_share_group(Story s) throws Exception {
        String topic = s.topic(), group = s.name();
        s.fill(topic, 3);
        get(s.admin.alterConsumerGroupOffsets(group,
            Map.of(new TopicPartition(topic, 0), new org.apache.kafka.clients.consumer.OffsetAndMetadata(1))).all());
        fails(GroupIdNotFoundException.class, () -> described(s, group));
        fails(GroupIdNotFoundException.class, () -> alter(s, group, topic, 1));
    }
}

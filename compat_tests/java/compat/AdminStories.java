package compat;

import static compat.Story.*;

import java.util.Collection;
import java.util.List;
import java.util.Map;

import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.record.TimestampType;

/** Topics, configs, records and the cluster through Admin. Where Kumquat answers otherwise, s.isKafka. */
class AdminStories {
    static void topics_are_created_described_and_deleted(Story s) throws Exception {
        String name = s.name();
        NewTopic wanted = new NewTopic(name, 3, (short) 1);
        var made = s.admin.createTopics(List.of(wanted));
        // A subject has one partition, however many are asked for.
        int partitions = s.isKafka ? 3 : 1;
        equal(partitions, get(made.numPartitions(name)));
        equal(1, get(made.replicationFactor(name)));
        equal("1048588", get(made.config(name)).get("max.message.bytes").value());
        fails(TopicExistsException.class, () -> get(s.admin.createTopics(List.of(wanted)).all()));
        eventually(() -> s.exists(name), "it is listed");
        var described = get(s.admin.describeTopics(List.of(name)).allTopicNames()).get(name);
        equal(partitions, described.partitions().size());
        equal(get(made.topicId(name)), described.topicId());
        get(s.admin.deleteTopics(TopicCollection.ofTopicIds(List.of(described.topicId()))).all());
        eventually(() -> !s.exists(name), "it is gone");
        fails(UnknownTopicOrPartitionException.class,
            () -> get(s.admin.describeTopics(List.of(name)).allTopicNames()));
    }

    static void a_topic_created_anew_is_another_topic(Story s) throws Exception {
        String name = s.topic();
        Uuid before = id(s, name);
        s.fill(name, 5);
        get(s.admin.deleteTopics(List.of(name)).all());
        eventually(() -> !s.exists(name), "it is gone");
        get(s.admin.createTopics(List.of(new NewTopic(name, 1, (short) 1))).all());
        eventually(() -> s.exists(name), "it is back");
        check(!before.equals(id(s, name)), "another id");
        try (var writer = s.producer()) {
            equal(0L, get(writer.send(new ProducerRecord<>(name, bytes("new")))).offset());
        }
    }

    private static Uuid id(Story s, String name) throws Exception {
        return get(s.admin.describeTopics(List.of(name)).allTopicNames()).get(name).topicId();
    }

    static void validate_only_creates_nothing(Story s) throws Exception {
        var options = new CreateTopicsOptions().validateOnly(true);
        String name = s.name();
        get(s.admin.createTopics(List.of(new NewTopic(name, 1, (short) 1)), options).all());
        check(!s.exists(name), "it was only validated");
        var bad = List.of(new NewTopic("a b", 1, (short) 1));
        fails(InvalidTopicException.class, () -> get(s.admin.createTopics(bad, options).all()));
    }

    static void the_cluster_is_described(Story s) throws Exception {
        var cluster = s.admin.describeCluster();
        Collection<Node> nodes = get(cluster.nodes());
        Node node = nodes.iterator().next();
        equal(1, nodes.size());
        equal(s.bootstrap, node.host() + ":" + node.port());
        equal(node.id(), get(cluster.controller()).id());
        check(!get(cluster.clusterId()).isEmpty(), "a cluster id");
    }

    static void more_partitions(Story s) throws Exception {
        String name = s.topic();
        var more = Map.of(name, NewPartitions.increaseTo(4));
        // A subject keeps its one partition.
        if (s.isKafka) {
            get(s.admin.createPartitions(more).all());
        } else {
            var refused = fails(InvalidPartitionsException.class,
                () -> get(s.admin.createPartitions(more).all()));
            check(refused.getMessage().contains("partition"), "the reason: " + refused.getMessage());
        }
        var unknown = Map.of(s.name(), NewPartitions.increaseTo(4));
        fails(UnknownTopicOrPartitionException.class,
            () -> get(s.admin.createPartitions(unknown).all()));
    }

    static void configs_are_described_with_docs_and_defaults(Story s) throws Exception {
        var configs = s.configs(s.topic());
        check(configs.entries().size() > 10, "all of them");
        for (ConfigEntry entry : configs.entries())
            check(entry.documentation() != null && entry.documentation().length() > 20, entry.name());
        ConfigEntry size = configs.get("max.message.bytes");
        equal("1048588", size.value());
        equal(ConfigEntry.ConfigType.INT, size.type());
        equal(ConfigEntry.ConfigSource.DEFAULT_CONFIG, size.source());
        equal("message.max.bytes", size.synonyms().get(0).name());
    }

    static void configs_are_set_and_unset(Story s) throws Exception {
        String name = s.topic(Map.of("min.insync.replicas", "2", "segment.bytes", "2097152"));
        equal("2", s.configs(name).get("min.insync.replicas").value());
        equal("2097152", s.configs(name).get("segment.bytes").value());
        s.alter(name, "retention.ms", "3600000", OpType.SET);
        eventually(() -> s.configs(name).get("retention.ms").value().equals("3600000"), "is set");
        equal(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, s.configs(name).get("retention.ms").source());
        s.alter(name, "retention.ms", "", OpType.DELETE);
        eventually(() -> s.configs(name).get("retention.ms").value().equals("604800000"), "unset");
        equal("2", s.configs(name).get("min.insync.replicas").value());
        fails(InvalidConfigurationException.class,
            () -> s.alter(name, "retention.ms", "soon", OpType.SET));
        fails(InvalidConfigurationException.class,
            () -> s.alter(name, "no.such.config", "1", OpType.SET));
        // Kumquat does not compact, so it does not promise to.
        if (!s.isKafka) {
            var refused = fails(InvalidConfigurationException.class,
                () -> s.alter(name, "cleanup.policy", "compact", OpType.SET));
            check(refused.getMessage().contains("cleanup.policy"), refused.getMessage());
        }
    }

    static void max_message_bytes_takes_effect(Story s) throws Exception {
        String name = s.topic();
        s.alter(name, "max.message.bytes", "1000", OpType.SET);
        eventually(() -> s.configs(name).get("max.message.bytes").value().equals("1000"), "is set");
        try (var writer = s.producer()) {
            var over = new ProducerRecord<byte[], byte[]>(name, new byte[5000]);
            fails(RecordTooLargeException.class, () -> get(writer.send(over)));
            equal(0L, get(writer.send(new ProducerRecord<>(name, new byte[500]))).offset());
        }
    }

    static void log_append_time_takes_effect(Story s) throws Exception {
        String name = s.topic(Map.of("message.timestamp.type", "LogAppendTime"));
        long sent;
        try (var writer = s.producer()) {
            var record = new ProducerRecord<byte[], byte[]>(name, 0, T0, null, bytes("x"));
            sent = get(writer.send(record)).timestamp();
        }
        check(sent >= T0 + 60_000, "the broker's clock");
        try (var reader = s.consumer(List.of(name))) {
            var got = take(reader, 1).get(0);
            equal(List.of(sent, TimestampType.LOG_APPEND_TIME),
                List.of(got.timestamp(), got.timestampType()));
        }
    }

    static void deleted_records_are_gone(Story s) throws Exception {
        String name = s.topic();
        TopicPartition partition = new TopicPartition(name, 0);
        s.fill(name, 10);
        var four = Map.of(partition, RecordsToDelete.beforeOffset(4));
        equal(4L, get(s.admin.deleteRecords(four).lowWatermarks().get(partition)).lowWatermark());
        var eleven = Map.of(partition, RecordsToDelete.beforeOffset(11));
        fails(OffsetOutOfRangeException.class, () -> get(s.admin.deleteRecords(eleven).all()));
        try (var reader = s.consumer(List.of(name))) {
            equal(Map.of(partition, 4L), reader.beginningOffsets(List.of(partition)));
            equal(4L, take(reader, 1).get(0).offset());
        }
    }

    static void log_dirs_are_described(Story s) throws Exception {
        String name = s.topic();
        s.fill(name, 10);
        int node = get(s.admin.describeCluster().controller()).id();
        var folders = get(s.admin.describeLogDirs(List.of(node)).allDescriptions()).get(node);
        var folder = folders.values().iterator().next();
        check(folder.replicaInfos().get(new TopicPartition(name, 0)).size() > 10, "its size");
        check(folder.totalBytes().getAsLong() > 0, "the disk's size");
    }
}

"""Kafka's options that Kumquat does not have, and what to tell an operator who brings one.

An option that is accepted and does nothing would puzzle somebody later, so each is refused. But an operator
who moves a server.properties should read why, not just "unknown". A name that ends in * stands for a
family of options; the longest name that fits counts.
"""

_CONTROLLER = "a Kumquat broker needs no controller and no ZooKeeper; leave it out"
_THREADS = "one event loop serves all connections, there are no thread pools to size; leave it out"
_PLAINTEXT = "only PLAINTEXT is served yet, without authentication; leave it out"
_SOCKETS = "the kernel sizes its socket buffers and queues; leave it out"
_SYNC = "the log is synced all the time, and before acks=all is answered; leave it out"
_ROLL = "segments are closed by log.segment.bytes and log.index.max.entries alone; leave it out"
_COMPACT = "nothing is compacted, and old messages are deleted by retention; leave it out"
_REPLICA = "a subject has a single replica; leave it out"
_SHARE_GROUPS = "share groups have configs of their own, set for each group; leave it out"
_ASSIGNORS = "the broker assigns by itself, and needs no migration between protocols; leave it out"
_OFFSETS = "positions of groups are kept in a log of their own, for ever; leave it out"
_TRANSACTIONS = "transactions are not served yet; leave it out"
_REMOTE = "there is no remote storage; leave it out"
_QUOTAS = "there are no quotas; leave it out"
_METRICS = "Kafka's metrics reporters do not run here; leave it out"
_LISTENERS = "set listeners and advertised.listeners instead"
_UNCHECKED = "timestamps are not compared with the clock; leave it out"
_VERSION = "there is one message format and one protocol, the newest; leave it out"
_JAVA = "Kafka's Java plug-ins do not run here; leave it out"

_REASONS = {
    "advertised.host.name": _LISTENERS,
    "advertised.port": _LISTENERS,
    "alter.config.policy.class.name": _JAVA,
    "authorizer.*": "there are no ACLs yet; leave it out",
    "auto.include.jmx.reporter": _METRICS,
    "auto.leader.rebalance.enable": _REPLICA,
    "background.threads": _THREADS,
    "broker.heartbeat.interval.ms": _CONTROLLER,
    "broker.rack": _REPLICA,
    "broker.session.timeout.ms": _CONTROLLER,
    "client.quota.*": _QUOTAS,
    "compression.*": "batches are kept as they came, never compressed again; leave it out",
    "confluent.*": "that is an option of Confluent's broker; leave it out",
    "controlled.shutdown.*": "set shutdown.grace.ms instead",
    "controller.*": _CONTROLLER,
    "create.topic.policy.class.name": _JAVA,
    "delete.topic.enable": "subjects can always be deleted; leave it out",
    "early.start.listeners": _LISTENERS,
    "group.*": _ASSIGNORS,
    "group.share.*": _SHARE_GROUPS,
    "host.name": _LISTENERS,
    "initial.broker.registration.timeout.ms": _CONTROLLER,
    "inter.broker.protocol.version": _VERSION,
    "inter.broker.listener.name": _REPLICA,
    "kafka.metrics.*": _METRICS,
    "leader.*": _REPLICA,
    "listener.name.*": _PLAINTEXT,
    "listener.security.protocol.map": _PLAINTEXT,
    "log.cleaner.*": _COMPACT,
    "log.cleanup.policy": _COMPACT,
    "log.dir": "set log.dirs instead, to one folder",
    "log.flush.*": _SYNC,
    "log.index.*": _ROLL,
    "log.local.retention.*": _REMOTE,
    "log.message.downconversion.enable": _VERSION,
    "log.message.format.version": _VERSION,
    "log.message.timestamp.*": _UNCHECKED,
    "log.preallocate": "space for segments is always reserved; leave it out",
    "log.roll.*": _ROLL,
    "log.segment.delete.delay.ms": _ROLL,
    "max.connection.creation.rate": _QUOTAS,
    "max.connections.per.ip.overrides": "set max.connections.per.ip for all; leave it out",
    "metadata.*": _CONTROLLER,
    "metric.reporters": _METRICS,
    "metrics.*": _METRICS,
    "min.insync.replicas": _REPLICA,
    "num.io.threads": _THREADS,
    "num.network.threads": _THREADS,
    "num.recovery.threads.per.data.dir": _THREADS,
    "num.replica.*": _REPLICA,
    "offset.metadata.max.bytes": "a commit may carry 4096 bytes of text; leave it out",
    "offsets.*": _OFFSETS,
    "password.encoder.*": _PLAINTEXT,
    "port": _LISTENERS,
    "principal.builder.class": _PLAINTEXT,
    "process.roles": _CONTROLLER,
    "queued.max.requests": "what is queued is bounded by its bytes: queued.max.request.bytes",
    "quota.*": _QUOTAS,
    "remote.*": _REMOTE,
    "replica.*": _REPLICA,
    "replication.*": _REPLICA,
    "request.timeout.ms": "set socket.request.receive.timeout.ms instead",
    "reserved.broker.max.id": _CONTROLLER,
    "sasl.*": _PLAINTEXT,
    "security.*": _PLAINTEXT,
    "server.max.startup.time.ms": _CONTROLLER,
    "share.*": _SHARE_GROUPS,
    "socket.connection.setup.timeout.*": _REPLICA,
    "socket.listen.backlog.size": _SOCKETS,
    "socket.receive.buffer.bytes": _SOCKETS,
    "socket.send.buffer.bytes": _SOCKETS,
    "ssl.*": _PLAINTEXT,
    "super.users": "there are no ACLs yet; leave it out",
    "telemetry.*": _METRICS,
    "transaction.*": _TRANSACTIONS,
    "transactional.id.expiration.ms": _TRANSACTIONS,
    "unclean.leader.election.enable": _REPLICA,
    "unstable.*": _VERSION,
    "zookeeper.*": _CONTROLLER,
}


def why_kafka_only(name: str) -> str | None:
    """Why Kumquat does not have this option of Kafka's; None if Kafka has no such option either."""
    if name in _REASONS:
        return _REASONS[name]
    families = [key for key in _REASONS if key.endswith("*") and name.startswith(key[:-1])]
    return _REASONS[max(families, key=len)] if families else None

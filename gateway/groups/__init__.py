"""Who is in a group, and who may read what: decisions only. No clock, no I/O, no Trio.

Two sorts of groups share the APIs:
- *served* groups: the broker assigns. Classic consumers with a standard assignor (membership/classic.py)
  and KIP-848 consumers (membership/consumer.py), in any mix. There is no barrier: each member has a
  generation of its own, and takes its assignment when it asks. What each may hold is decided in
  assignment/division.py.
- *client-assigned* groups: a client assigns (Connect, Schema Registry, Streams, custom assignors). This is
  Kafka's own protocol with its full barrier (membership/client_assigned.py).
A group is of one sort as long as it has members.

What must outlive the broker (members, generations, holdings, positions) is in
core/delivery/state.py and changes through actions alone (ledger.py). What need not (who has been
told what, session clocks, requests that are held) is in roster.py, and begins afresh when the broker
starts: members go on without rejoining.
"""

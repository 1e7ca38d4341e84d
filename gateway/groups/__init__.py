"""Who is in a group, and who may read what. All but service.py is decisions: no clock, no I/O, no Trio.

Two sorts of groups share the APIs:
- *served* groups: the broker assigns. Classic consumers with a standard assignor (membership/classic.py)
  and KIP-848 consumers (membership/consumer.py), in any mix. There is no barrier: each member has a
  generation of its own, and takes its assignment when it asks. What each may hold is decided in
  assignment/division.py.
- *client-assigned* groups: a client assigns (Connect, Schema Registry, Streams, custom assignors). This is
  Kafka's own protocol with its full barrier (membership/client_assigned.py).
A group is of one sort as long as it has members.

What must outlive the broker (members, generations, holdings, positions) is in core/delivery/state.py and
changes through actions alone. What need not (what each member was sent, session clocks, held requests) is
in membership/roster.py, and begins from nothing when the broker starts: members go on without rejoining.

The way of a request: service.py (Trio) → coordinator.py (writes, answers, looks once) → decisions.py → the
packages membership and assignment, which work on draft.py.
"""

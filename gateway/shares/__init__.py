"""Share groups (KIP-932) on the data path: share sessions, acknowledgements, and who has gone.

- sessions.py: share sessions and the rules of their epochs
- acknowledgements.py: what a list of acknowledgements may look like
- errors.py: what is refused, each with Kafka's code
- service.py: the Trio shell: it gives back what a client held that has gone

Who is a member, and of which group, is in gateway/groups/; what is leased, acked and given back is in
core/delivery/. The two handlers are handlers/share_fetch.py and handlers/share_acknowledge.py.
"""

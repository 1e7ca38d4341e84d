"""Who is in a group: joins, heartbeats, leaves, sessions, of each kind of member."""

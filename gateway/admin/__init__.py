"""The admin endpoint: what operators and their tools ask of a running broker, over HTTP and JSON.

    http.py        one connection: requests in, answers out, limits and time-outs. Knows no route
    server.py      the listener: how many connections, start and stop
    routes.py      which function answers what, and how failures become answers
    arguments.py   what a request says, checked; times.py reads and shows times
    delay.py       /delay/…: what is pending; cancel and move it
    dlq/           /dlq…: list and show dead letters, send them back, give them up
    groups/        /groups…: list and describe groups, move one that has no members
    search.py      /search, /messages: find messages, look through a subject
    lookup.py      what a request names, found

There is no authentication: it listens on loopback only, and answers only requests whose Host is loopback
too. Requests that change something must have the type application/json. So a web page in a browser on this
machine can neither read nor change anything here, even if its host name resolves to loopback.

`kumquat delay …`, `kumquat groups …` and `kumquat dlq …` (gateway/cli/) are thin clients of it.
"""

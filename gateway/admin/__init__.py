"""The admin endpoint: what operators and their tools ask of a running broker, over HTTP and JSON.

    listener.py    its socket
    server.py      who serves that: how many connections, start and stop
    connection.py  one connection: hypercorn's HTTP/1.1 on a socket, limits and time-outs
    exchange.py    one request and its answer, between hypercorn and the application
    app.py         the application: all routes in one Starlette, those of other packages too; errors
    routes.py      which function answers what as JSON, and how failures become answers
    watch.py       /metrics and /health
    streams.py     answers without an end, for routes of other packages
    http.py        what a request says and what it is answered, apart from any server
    arguments.py   the arguments of a request, checked; times.py reads and shows times
    delay.py       /delay/…: what is pending; cancel and move it
    dlq/           /dlq…: list and show dead letters, send them back, give them up
    groups/        /groups…: list and describe groups, move one that has no members
    search.py      /search, /messages: find messages, look through a subject
    lookup.py      what a request names, found

There is no authentication: it listens on loopback only, unless `admin.allow.remote` is set, and answers
only requests whose Host is loopback too, or in `admin.hosts`. Requests that change something must have the
type application/json. So a web page in a browser on this machine can neither read nor change anything here,
even if its host name resolves to loopback.

`kumquat delay …`, `kumquat groups …` and `kumquat dlq …` (gateway/cli/) are thin clients of it.
"""

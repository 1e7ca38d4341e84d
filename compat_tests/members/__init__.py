"""Members of consumer groups for the stories: stock clients in child processes, driven by commands.

A *host* is a child process in which any number of members live, each in a thread of its own: host.py for
the Python clients, java/members/Host.java for Java's, go/ for sarama and kafka-go, node/ for KafkaJS. A
host can be killed and frozen, with all members in it. remote.py is the stories' side.

Both sides speak lines of fields with tabs between them. To a host:

    MEMBER  NUMBER  COMMAND  ARGUMENT…

    make VARIANT [name=value…]   a client with Kafka's names for settings; `topics` (with , between) or
                                 `pattern` says what it subscribes to. dies.at=VALUE: when it comes to that
                                 message, it kills its process
    take COUNT SECONDS           polls until so many records have come; fails when they do not in time
    run COMMIT MILLISECONDS      polls from now on, pausing so long for each record. COMMIT: `each` commits
                                 what a poll gave before the next one, `never` leaves it to the client
    stop                         polls no more
    commit [TOPIC OFFSET TEXT]   waits for the answer; without arguments: the client's own positions
    committed TOPIC              its offset, or nothing
    position TOPIC
    seek TOPIC OFFSET|beginning|end
    ends TOPIC                   the first offset and the one after the last
    at TOPIC TIMESTAMP           the first offset from then on, or nothing
    pause TOPIC, resume TOPIC
    assignment
    subscribe TOPIC…
    close                        leaves the group in the client's own way

A member of a share group knows no positions and no assignment; its commit accepts what the last poll gave.

and from it:

    MEMBER  done NUMBER RESULT…           MEMBER  failed NUMBER ERROR TEXT
    MEMBER  polled                        what follows is one poll's
    MEMBER  record TOPIC OFFSET TIMESTAMP VALUE ATTEMPT AT     AT: when the client gave it, ms
    MEMBER  assigned TOPIC…  |  revoked TOPIC…  |  lost TOPIC…       as the client's callbacks say
    MEMBER  committed                     a commit of `run each` is done
    MEMBER  uncommitted ERROR TEXT        a commit of `run each` failed; it continues
    MEMBER  broken ERROR TEXT             a poll of `run` failed; it polls no more

A record is written out before it is committed, and what is in a pipe survives the process: a record that
a killed member had read is known.
"""

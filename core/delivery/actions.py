"""What consumers did: the vocabulary of the action log, the truth about progress.

An action is a small tuple, its first item the name; in the log it is a JSON array. Ids of groups and
subjects are numbers: a subject's are the message log's, and belong to the id, not the name.

    group    gid, name, generation (0)          the group exists
    forget   gid                                it is deleted, with all that it knew
    member   gid, {…}                           a member as it is now (see Member): joined, changed, moved
    left     gid, member id                     it is gone; what it held was released before
    commit   gid, sid, sequence, epoch, text    the group's plain position (exclusive), with its metadata
    share    gid, sid, sequence                 sharing begins there: nothing at or above was delivered
    unshare  gid, sid                           back to plain offsets; nothing is unacked
    slot     gid, sid, slot, member id, pull    a pull log begins at that pull sequence
    pull     gid, sid, slot, pull, [[first, count, attempt], …]    messages were leased through it
    ack      gid, sid, slot, pull               all below that pull sequence are acked
    release  gid, sid, slot                     the pull log ends; what was unacked is delivered again
    expire   gid, sid, sequence                 retention has overtaken: all below is gone
    lost     gid, sid, first, count             messages that can never be read again; they begin below the
                                                cursor, and it goes behind them if they end above it
    holes    gid, sid, first, count             sequences below the cursor that no message ever had
    drop     gid, sid                           the group forgets the subject
    gone     sid                                the subject is deleted: all groups forget it
    heard    gid, member id                     a member showed, for the first time since a start, that it
                                                is there
    silent   milliseconds                       for so long more all who have not are silent
    jump     distance                           a start: every pull log goes on that much higher; 0 after a
                                                clean stop
    stopped                                     a clean stop: nothing that was handed out is missing here

In snapshots alone:

    numbers  next gid, floor                    ids of groups given; no pull log begins below the floor
    slots    sid, given, top                    … slots of a subject, and how far its pull logs have come
    again    gid, sid, first, count, attempt    messages that wait to be delivered again
    expired  gid, sid, count                    how many messages were gone before they were acked
    emptied  gid, kind, protocol type, time     what the last member was, and when it left (ms)
    committed  gid, sid, time                   when a position was last committed or acked (ms)
    silence  gid, {member id: milliseconds}     members of which nothing was heard since the last start
    log      gid, sid, slot, member id, [begin, acked, next], gaps, [[pull, first, count, attempt], …]
                                                a pull log

State changes in `apply` alone (state.py); replay and the running broker share it. What time an action was
done at is the time in the header of its frame.
"""

from __future__ import annotations

from typing import Any

Action = tuple[Any, ...]

GROUP = "group"
FORGET = "forget"
MEMBER = "member"
LEFT = "left"
COMMIT = "commit"
SHARE = "share"
UNSHARE = "unshare"
SLOT = "slot"
PULL = "pull"
ACK = "ack"
RELEASE = "release"
EXPIRE = "expire"
LOST = "lost"
HOLES = "holes"
DROP = "drop"
GONE = "gone"
HEARD = "heard"
SILENT = "silent"
JUMP = "jump"
NUMBERS = "numbers"
SLOTS = "slots"
AGAIN = "again"
EXPIRED = "expired"
EMPTIED = "emptied"
COMMITTED = "committed"
SILENCE = "silence"
LOG = "log"
STOPPED = "stopped"

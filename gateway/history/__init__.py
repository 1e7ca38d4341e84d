"""The history of messages: `__kumquat_actions`, and `trace`, which tells the life of one message.

- events.py: what an event is, and its record: one JSON object
- recorder.py: is told by the logs what happens (it is their observer), and makes events of it
- buffer.py: the events that wait, within a bound, and what was dropped
- service.py: the task that writes the buffer to `__kumquat_actions`; what happens when it cannot
- texts.py: an event as a line for people
- reading.py: reads subjects in slices, within a bound of time and bytes
- past.py: the events of a message, or of a message for later, out of the history
- present.py: where a message is now, for each group, and its dead letters
- trace.py: all of it together

Which subjects are recorded is their config `history`. While it is off for all of them there are no
observers, and the logs pay one look at an attribute for each write.
"""

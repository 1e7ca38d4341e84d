"""The console: pages for people, served by the admin listener of the broker's own process.

    app.py        the routes, for the server that has the admin listener
    console.py    what the pages of one broker share; what every answer goes through
    security.py   headers, hosts, origins, tokens: who may ask, and who may change something. Pure
    forms.py      what a page sends, read within limits
    asking.py     data and actions by way of the admin endpoint's own handlers
    snapshot.py   sums over all subjects and groups, made in turns and shared by all open consoles
    samples.py    some numbers over time
    diagnose.py   why a group stands still. Pure; from what facts.py names, in the words of sentences.py
    charts.py     plots as SVG. Pure
    contents.py   bytes of a message as text, JSON, hex. Pure
    render.py     templates, and how numbers and times look
    producing.py  one message, written from a page
    views/        what a page shows: functions of the broker that know no HTML
    pages/        one file for each page: reads the request, asks a view, renders
    templates/, static/    HTML, one style sheet, one script; nothing is loaded from elsewhere

Pages are made by the server, and can be read without the script. The script fetches a page again every two
seconds while its tab is visible, and puts the parts that have changed in their places. An answer that has
not changed is a 304 (ETag).

Rules: every list has an end and says where it goes on; whatever goes through all subjects or groups gives
way to other tasks; what changes something is a POST with a token, and whatever can show first what would
happen does so (a dry run). There is no authentication: the listener is on loopback only.
"""

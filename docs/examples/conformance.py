#!/usr/bin/env python3
"""Checks whether a mux speaks the session protocol of docs/protocol.md, version 1.

    conformance.py APP            the app prints each line that it reads, as `cat` does

It prints a line for each rule. The exit status is 1 if the mux breaks one. A line is typed.
"""

import json
import os
import socket
import struct
import sys

from client import DATA, ERROR, EXIT, GAP, HELLO, STDIN, STDIN_DONE, STDIN_EOF, WELCOME
from client import Gone, Session, document, streams

RESIZE, STATUS, REQUEST, REPORT, ANSWER = 4, 5, 6, 23, 24
# How long a mux may take, seconds: it lets go of a client without a HELLO after 10.
PATIENCE = 20


class Rude(Session):
    """A connection on which these bytes were sent, and nothing else."""

    def __init__(self, app, data):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(document(app)["session"]["address"])
        self.socket.sendall(data)


def frame(kind, payload, zeros=b"\0\0\0", length=None):
    length = len(payload) if length is None else length
    return bytes([kind]) + zeros + struct.pack(">I", length) + payload


def hello(**more):
    return frame(HELLO, json.dumps({"version": 1, **more}).encode())


def is_refused(app, data):
    """The mux says one line of why, and ends the connection."""
    session = Rude(app, data)
    kind, body = session.frame()
    while kind == WELCOME:
        kind, body = session.frame()
    assert kind == ERROR and body["error"] and "\n" not in body["error"], (kind, body)
    try:
        session.frame()
    except Gone:
        return
    raise AssertionError("the connection goes on")


def until(session, wanted):
    """The payload of the next frame of this kind."""
    while True:
        kind, body = session.frame()
        if kind == wanted:
            return body
        assert kind not in (ERROR, EXIT), (kind, body)


def read_until(session, text):
    seen = b""
    while text.encode() not in seen:
        kind, body = session.frame()
        assert kind != GAP, body
        seen += body if kind in DATA else b""


def output(app):
    return [name for name in streams(app) if name != "stdin"][0]


def the_document_names_its_version_and_sockets(app):
    names = document(app)
    assert names["version"] == 1 and names["session"]["version"] == 1, names
    assert all(target["domain"] == "unix" for target in names["targets"]), names


def a_frame_before_the_hello_is_refused(app):
    is_refused(app, frame(STATUS, b""))


def another_version_is_refused(app):
    is_refused(app, frame(HELLO, b'{"version":2}'))


def a_hello_that_is_no_document_is_refused(app):
    is_refused(app, frame(HELLO, b"{"))


def a_stream_that_is_named_twice_is_refused(app):
    want = {"stream": output(app), "from": "now"}
    is_refused(app, hello(streams=[want, want]))


def bytes_that_must_be_zero_are_checked(app):
    is_refused(app, hello() + frame(STATUS, b"", zeros=b"\0\1\0"))


def a_payload_of_more_than_64_kib_is_refused(app):
    is_refused(app, hello() + frame(STDIN, b"", length=65537))


def kinds_of_the_other_side_are_refused(app):
    is_refused(app, hello() + frame(WELCOME, b"{}"))


def no_hello_is_not_waited_for(app):
    is_refused(app, b"")


def unknown_fields_and_kinds_are_skipped(app):
    session = Session(app, of_a_later_version={"any": ["thing"]})
    session.send(15, b"of a later version")
    session.send(200, b"of a later version")
    session.send(STATUS)
    assert until(session, REPORT)["app"] == app


def a_report_says_who_is_there(app):
    session = Session(app)
    session.send(STATUS)
    report = until(session, REPORT)
    assert any(client["pid"] == os.getpid() for client in report["clients"]), report
    assert {"state", "mux_pid", "uptime_ms", "streams", "logs", "errors"} <= report.keys(), report


def each_request_is_answered(app):
    session = Session(app)
    session.send(REQUEST, {"request": "of a later version"})
    assert until(session, ANSWER)["error"]
    session.send(REQUEST, {"request": "detach", "client": 2**53})
    assert until(session, ANSWER)["error"]


def a_window_of_no_size_changes_nothing(app):
    session = Session(app)
    session.send(RESIZE, {"rows": 0, "cols": 0})
    session.send(STATUS)
    until(session, REPORT)


def a_line_is_typed_and_offsets_lead_to_the_answer(app):
    name = output(app)
    reader = Session(app, streams=[{"stream": name, "from": "now"}])
    typist = Session(app, stdin=True, lines=True, input={"id": os.urandom(8).hex()})
    assert typist.welcome["input"] == {"offset": 0}, typist.welcome
    line = os.urandom(4).hex()
    typist.send(STDIN, (line + ("\r" if name == "tty" else "\n")).encode())
    read_until(reader, line)
    # After the answer: where it began is known nevertheless.
    typist.send(STDIN_EOF)
    taken = {begin["stream"]: begin["offset"] for begin in until(typist, STDIN_DONE)["outputs"]}
    again = Session(
        app,
        streams=[{"stream": name, "from": taken[name]}],
        epoch=reader.welcome["epoch"],
    )
    assert again.welcome["epoch"] == reader.welcome["epoch"]
    assert again.welcome["streams"] == [{"stream": name, "offset": taken[name]}], again.welcome
    read_until(again, line)


RULES = [
    the_document_names_its_version_and_sockets,
    a_frame_before_the_hello_is_refused,
    another_version_is_refused,
    a_hello_that_is_no_document_is_refused,
    a_stream_that_is_named_twice_is_refused,
    bytes_that_must_be_zero_are_checked,
    a_payload_of_more_than_64_kib_is_refused,
    kinds_of_the_other_side_are_refused,
    no_hello_is_not_waited_for,
    unknown_fields_and_kinds_are_skipped,
    a_report_says_who_is_there,
    each_request_is_answered,
    a_window_of_no_size_changes_nothing,
    a_line_is_typed_and_offsets_lead_to_the_answer,
]


def main(words):
    if len(words) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    os.environ.setdefault("IOTTYMUX_STATE_DIR", "/run/iottymux")
    socket.setdefaulttimeout(PATIENCE)
    failed = 0
    for rule in RULES:
        try:
            rule(words[0])
            said = "ok"
        except (AssertionError, Gone, OSError, ValueError, KeyError) as error:
            said, failed = f"FAILED: {type(error).__name__}: {error}", failed + 1
        print(f"{rule.__name__.replace('_', ' ')}: {said}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

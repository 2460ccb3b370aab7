#!/usr/bin/env python3
"""A client of iottymux in the standard library: see docs/protocol.md.

    client.py read APP            print the output from its oldest byte on, over restarts of the mux
    client.py type APP LINE       type a line, and print where the answer begins
    client.py screen APP          print the bytes that draw the terminal

The state directory is $IOTTYMUX_STATE_DIR, or /run/iottymux. Copy and change it as you like.
"""

import json
import os
import random
import socket
import struct
import sys
import time

HELLO, STDIN, STDIN_EOF = 1, 2, 3
WELCOME, GAP, STDIN_DONE, EXIT, CLOSING, ERROR, REDRAW = 16, 17, 19, 20, 21, 22, 29
DATA = {32: "stdout", 33: "stderr", 34: "tty"}
SCREEN = 35
# A frame: its kind, three zero bytes, and the length of its payload.
HEADER = struct.Struct(">B3xI")
# Of a payload, bytes.
MOST = 64 * 1024


class Gone(Exception):
    """The mux is gone. Another one may follow."""


class Session:
    """One connection to the mux of an app."""

    def __init__(self, app, **hello):
        self.document = document(app)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.socket.connect(self.document["session"]["address"])
        except OSError as error:
            raise Gone(str(error)) from error
        self.send(HELLO, {"version": 1, **hello})
        kind, self.welcome = self.frame()
        if kind != WELCOME:
            raise SystemExit(f"{app}: {self.welcome.get('error', self.welcome)}")

    def send(self, kind, payload=b""):
        body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        try:
            self.socket.sendall(HEADER.pack(kind, len(body)) + body)
        except ConnectionError as error:
            raise Gone(str(error)) from error

    def exactly(self, length):
        data = bytearray()
        while len(data) < length:
            try:
                part = self.socket.recv(length - len(data))
            except ConnectionError as error:
                raise Gone(str(error)) from error
            if not part:
                raise Gone("the connection has ended")
            data += part
        return bytes(data)

    def frame(self):
        """The next frame: its kind, and its payload as bytes or as a document."""
        kind, length = HEADER.unpack(self.exactly(HEADER.size))
        if length > MOST:
            raise ValueError(f"a frame of {length} bytes")
        body = self.exactly(length)
        if kind in DATA or kind == SCREEN:
            return kind, body
        return kind, json.loads(body) if body else {}


def document(app):
    """The endpoints document of an app."""
    state = os.environ.get("IOTTYMUX_STATE_DIR", "/run/iottymux")
    try:
        with open(os.path.join(state, app, "endpoints"), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise Gone(str(error)) from error


def streams(app):
    """The names of the streams of an app."""
    return [target["name"] for target in document(app)["targets"]]


def read(app):
    """Prints all output of an app to its end, each byte once, also if its mux is killed."""
    wanted = [{"stream": name, "from": "start"} for name in streams(app) if name != "stdin"]
    epoch = None
    while True:
        try:
            session = Session(app, streams=wanted, **({"epoch": epoch} if epoch else {}))
        except Gone:
            # The next mux starts within a second, or the app has ended.
            if not os.path.exists(os.path.join(os.environ["IOTTYMUX_STATE_DIR"], app, "endpoints")):
                return 1
            time.sleep(0.05)
            continue
        if epoch not in (None, session.welcome["epoch"]):
            print("the output between two muxes is unknown", file=sys.stderr)
        epoch = session.welcome["epoch"]
        at = {begin["stream"]: begin["offset"] for begin in session.welcome["streams"]}
        try:
            while True:
                kind, body = session.frame()
                if kind in DATA:
                    at[DATA[kind]] += len(body)
                    sys.stdout.buffer.write(body)
                    sys.stdout.buffer.flush()
                elif kind == GAP:
                    at[body["stream"]] = body["to"]
                    print(f"lost: {body['to'] - body['from']} bytes", file=sys.stderr)
                elif kind == EXIT:
                    return body.get("status", 128 + body.get("signal", 0))
                elif kind == ERROR:
                    raise SystemExit(f"{app}: {body['error']}")
        except Gone:
            # The next one goes on behind the last byte.
            wanted = [{"stream": name, "from": offset} for name, offset in at.items()]


def type_line(app, line):
    """Types a line. It arrives once, also if the mux is killed. Prints where the answer begins."""
    end = "\r" if "tty" in streams(app) else "\n"
    text = (line + end).encode()
    name = f"{random.getrandbits(64):016x}"
    returns = False
    while True:
        identity = {"id": name, "returns": returns}
        try:
            session = Session(app, stdin=True, lines=True, enter="apart", input=identity)
            have = session.welcome.get("input", {}) if returns else {"offset": 0}
            if returns and (not have or have.get("unknown")):
                raise SystemExit(f"{app}: it may have read the line or not")
            returns = True
            rest = text[have["offset"] :]
            for begin in range(0, len(rest), MOST):
                session.send(STDIN, rest[begin : begin + MOST])
            session.send(STDIN_EOF)
            while True:
                kind, body = session.frame()
                if kind == STDIN_DONE:
                    print(json.dumps(body))
                    return 0
                if kind in (ERROR, EXIT):
                    raise SystemExit(f"{app} did not take the line: {body}")
        except Gone:
            time.sleep(0.05)


def screen(app):
    """Prints the bytes that draw the terminal of an app in this window."""
    wanted = [{"stream": "tty", "from": "now"}]
    session = Session(app, streams=wanted, redraw="screen")
    left = None
    while left is None or left > 0:
        kind, body = session.frame()
        if kind == REDRAW:
            left = body["bytes"]
        elif kind == SCREEN:
            sys.stdout.buffer.write(body)
            left -= len(body)
    sys.stdout.buffer.flush()
    return 0


def main(words):
    os.environ.setdefault("IOTTYMUX_STATE_DIR", "/run/iottymux")
    commands = {"read": (read, 1), "type": (type_line, 2), "screen": (screen, 1)}
    if not words or words[0] not in commands or len(words) != 1 + commands[words[0]][1]:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        return commands[words[0]][0](*words[1:])
    except Gone as gone:
        raise SystemExit(f"{words[1]}: {gone}") from gone


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

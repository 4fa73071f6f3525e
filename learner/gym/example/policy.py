#!/usr/bin/env python3
"""Serve a policy to AWARE's bench with nothing but Python's standard library.

    python3 learner/gym/example/policy.py --listen 127.0.0.1:7790 &
    aware simulate hotel-reservation --policy http://127.0.0.1:7790
    aware bench anchors --policy http://127.0.0.1:7790

The rule keeps each service's CPU usage at 60 % of its CPU limit; in a step in which requests were slower than they may be,
limits do not fall. The messages are those of awarescale.gym.v1.Policy (learner/gym/gymv1/gym.proto) in JSON.
"""

import argparse
import itertools
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TARGET = 0.6


class Policy:
    """All runs. Several can go on at the same time, each call in a thread of its own."""

    def __init__(self):
        self.runs = {}
        self.names = itertools.count(1)

    def begin(self, message):
        run = str(next(self.names))
        services = {s["name"]: {k["name"]: k for k in s["action"]} for s in message["services"]}
        self.runs[run] = {"services": services, "slow": message["objective"].get("latencySeconds", 0)}
        return {"run": run, "stepSeconds": message["stepSeconds"]}  # the step that the bench offers

    def decide(self, message):
        run = self.runs[message["run"]]
        answer = {}
        for name, state in message["services"].items():
            knobs = decide(state["signals"], run["services"][name], run["slow"])
            if knobs:
                answer[name] = {"knobs": knobs}
        return {"services": answer}

    def end(self, message):
        del self.runs[message["run"]]
        return {}


def decide(signals, knobs, slow):
    """The action on one service: {knob: value}, empty to leave all as it is. What was not observed is not in signals."""
    if "cpu-usage" not in signals or "cpu-limit" not in signals:
        return {}
    want = signals["cpu-usage"] / TARGET
    if slow and signals.get("latency", 0) > slow:
        want = max(want, signals["cpu-limit"])
    knob = knobs["cpu-limit"]
    return {"cpu-limit": round(min(knob["max"], max(knob["min"], want)))}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # one connection for all calls of a run
    disable_nagle_algorithm = True  # or each answer waits for 40 ms
    methods = {}  # by the last part of the path

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            status, answer = 200, self.methods[self.path.rpartition("/")[2]](json.loads(body))
        except Exception as e:  # the bench shows the message and ends the run
            status, answer = 500, {"code": "internal", "message": f"{type(e).__name__}: {e}"}
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--listen", default="127.0.0.1:7790", help="address; with port 0 the system chooses one")
    host, _, port = flags.parse_args().listen.rpartition(":")

    policy = Policy()
    Handler.methods = {"Begin": policy.begin, "Decide": policy.decide, "End": policy.end}
    server = ThreadingHTTPServer((host, int(port)), Handler)
    server.daemon_threads = True
    print(f"Serving a policy on http://{host}:{server.server_address[1]}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()

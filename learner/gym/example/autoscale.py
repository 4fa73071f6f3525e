#!/usr/bin/env python3
"""Autoscale a workload through AWARE's Gym service with nothing but Python's standard library.

    aware gym &
    python3 learner/gym/example/autoscale.py http://127.0.0.1:7780 100

With --all it drives every service of a simulated application, each by the same rule.

The rule keeps CPU usage at 60 % of the CPU limit, or of the CPU reservation where that is set: it goes to usage / 0.6, or up by
half while requests are slower than they may be. What was not observed is not in the state; then the rule leaves the workload as it is.
"""

import argparse
import json
import sys
import urllib.error
import urllib.request

TARGET = 0.6


class Gym:
    """One session, in the manner of gymnasium.Env."""

    def __init__(self, url, workload, seed, options):
        self.url = url.rstrip("/") + "/awarescale.gym.v1.Gym/"
        request = {"workload": workload, "encoding": 1, "options": options}
        if seed is not None:
            request["seed"] = seed
        opened = self.call("Init", request)
        self.session, self.spaces = opened["session"], opened["spaces"]
        self.all = options.get("all_services", False)

    def reset(self):
        answer = self.call("Reset", {"session": self.session})
        return self.signals(answer), answer["info"]

    def step(self, action):
        """Takes actions as spaces has services: {"cpu-limit": 750}, or with all_services {"web": {"cpu-limit": 750}, ...}."""
        if self.all:
            request = {"services": {name: {"knobs": knobs} for name, knobs in action.items()}}
        else:
            request = {"action": action}
        a = self.call("Step", {"session": self.session, **request})
        return self.signals(a), a.get("reward"), a["terminated"], a["truncated"], a["info"]

    def signals(self, answer):
        """What was observed: {signal: value}, or with all_services {service: {signal: value}}."""
        if not self.all:
            return answer["state"]["signals"]
        # The services of a Step have the state beside the reward; those of a Reset are the state.
        return {name: s.get("state", s)["signals"] for name, s in answer["services"].items()}

    def close(self):
        self.call("Close", {"session": self.session})

    def call(self, method, message):
        request = urllib.request.Request(self.url + method, json.dumps(message).encode(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request) as response:
                return json.load(response)
        except urllib.error.HTTPError as e:
            error = json.load(e)
            raise RuntimeError(f"{method}: {error['code']}: {error['message']}") from None


def decide(state, knobs, slow):
    """The action for a state: a dict of knobs, empty to leave all as it is."""
    name = "cpu-reservation" if "cpu-reservation" in knobs else "cpu-limit"
    if name not in knobs or "cpu-usage" not in state or name not in state:
        return {}
    want = state["cpu-usage"] / TARGET
    if slow is not None and state.get("latency", 0) > slow:
        want = max(want, 1.5 * state[name])
    knob = knobs[name]
    return {name: round(min(knob["max"], max(knob["min"], want)))}


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("url", nargs="?", default="http://127.0.0.1:7780")
    flags.add_argument("steps", nargs="?", type=int, default=100)
    flags.add_argument("--workload", default="", help="a simulated application, or namespace/kind/name; the server's own by default")
    flags.add_argument("--service", default="", help="which service of it to act upon; the entry service by default")
    flags.add_argument("--all", action="store_true", help="act upon every service of a simulated application")
    flags.add_argument("--seed", type=int, help="of the first episode")
    flags.add_argument("--slow", type=float, help="seconds of latency above which the rule gives more; without it only usage counts")
    flags.add_argument("--verbose", action="store_true", help="print every step")
    args = flags.parse_args()

    gym = Gym(args.url, args.workload, args.seed, {"service": args.service, "all_services": args.all})
    try:
        services = gym.spaces["services"] if args.all else [{"name": gym.spaces["service"], "action": gym.spaces["action"]}]
        knobs = {s["name"]: {k["name"]: k for k in s["action"]} for s in services}
        print(f"{gym.spaces['world']} workload {gym.spaces['workload']}, service {', '.join(knobs)}: "
              f"step {gym.spaces['stepSeconds']:g} s, episode {gym.spaces['episodeSteps']} steps, "
              f"knobs {', '.join(knobs[services[0]['name']])}")
        state, info = gym.reset()
        total, judged, episodes, effects = 0.0, 0, 0, {}
        for step in range(args.steps):
            if args.all:
                action = {name: decide(state[name], knobs[name], args.slow) for name in knobs}
            else:
                action = decide(state, knobs[gym.spaces["service"]], args.slow)
            state, reward, terminated, truncated, info = gym.step(action)
            if reward is not None:
                total += reward
                judged += 1
            effects[info["effect"]] = effects.get(info["effect"], 0) + 1
            if args.verbose:
                print(json.dumps({"step": step + 1, "action": action, "state": state, "reward": reward, "info": info}, sort_keys=True))
            if terminated or truncated:
                episodes += 1
                if step + 1 < args.steps:
                    state, info = gym.reset()
        print(f"{args.steps} steps, {episodes} episodes, reward known in {judged}, return {total:.3f}")
        print("effects: " + ", ".join(f"{n} {effect}" for effect, n in sorted(effects.items())))
    finally:
        gym.close()


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, urllib.error.URLError) as e:
        sys.exit(f"autoscale.py: {e}")

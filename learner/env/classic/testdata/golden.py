#!/usr/bin/env python3
"""Writes golden.json: short trajectories of the environments from given states, for golden_test.go.

It shares nothing with the Go code but the published constants. Numbers are decimals of 50 digits, sine and cosine are
summed here, and the two bodies of several parts are computed another way: their Lagrange equations are written down as
mass matrix times accelerations = forces, and solved as linear equations, where the Go code has the closed formulas.

    python3 golden.py > golden.json      (Python's standard library only)
"""
import json
from decimal import Decimal as D, getcontext

getcontext().prec = 50
PI = D("3.14159265358979323846264338327950288419716939937510582097494")


def sin(x):
    x = x % (2 * PI)
    term = total = x
    n = 1
    while abs(term) > D("1e-48"):
        term *= -x * x / ((n + 1) * (n + 2))
        total += term
        n += 2
    return total


def cos(x):
    return sin(x + PI / 2)


def clip(x, low, high):
    return min(max(x, low), high)


def solve(a, b, c, d, e, f):
    """The x, y of a x + b y = e and c x + d y = f."""
    det = a * d - b * c
    return (e * d - b * f) / det, (a * f - e * c) / det


def wrap(angle):
    while angle > PI:
        angle -= 2 * PI
    while angle < -PI:
        angle += 2 * PI
    return angle


def cartpole(s, a):
    g, M, m, l, tau = D("9.8"), D(1), D("0.1"), D("0.5"), D("0.02")
    x, v, th, w = s
    force = D(10) if a == 1 else D(-10)
    # (M+m) x'' + m l cos th'' = F + m l th'^2 sin ;  cos x'' + 4/3 l th'' = g sin
    acc, ang = solve(M + m, m * l * cos(th), cos(th), D(4) / 3 * l, force + m * l * w * w * sin(th), g * sin(th))
    s = [x + tau * v, v + tau * acc, th + tau * w, w + tau * ang]
    return s, s, D(1), abs(s[0]) > D("2.4") or abs(s[2]) > 12 * PI / 180


def pendulum(s, a):
    g, m, l, dt = D(10), D(1), D(1), D("0.05")
    th, w = s
    u = clip(a, D(-2), D(2))
    cost = wrap(th) ** 2 + D("0.1") * w * w + D("0.001") * u * u
    inertia = m * l * l / 3  # a rod about its end: inertia th'' = m g l/2 sin th + u
    w = clip(w + dt * (m * g * l / 2 * sin(th) + u) / inertia, D(-8), D(8))
    s = [th + dt * w, w]
    return s, [cos(s[0]), sin(s[0]), w], -cost, False


def car(s, push, goal):
    x, v = s
    v = clip(v + push - D("0.0025") * cos(3 * x), D("-0.07"), D("0.07"))
    x = clip(x + v, D("-1.2"), D("0.6"))
    if x == D("-1.2"):
        v = max(v, D(0))
    return [x, v], x >= goal and v >= 0


def mountaincar(s, a):
    s, done = car(s, (a - 1) * D("0.001"), D("0.5"))
    return s, s, D(-1), done


def mountaincarcontinuous(s, a):
    s, done = car(s, clip(a, D(-1), D(1)) * D("0.0015"), D("0.45"))
    return s, s, (100 if done else 0) - D("0.1") * a * a, done


def acrobot(s, a):
    g, l1, c, m, inertia, dt = D("9.8"), D(1), D("0.5"), D(1), D(1), D("0.2")

    def derivative(s):
        p, q, dp, dq = s
        m11 = 2 * inertia + m * c * c + m * (l1 * l1 + c * c + 2 * l1 * c * cos(q))
        m12 = inertia + m * (c * c + l1 * c * cos(q))
        m22 = inertia + m * c * c
        h = m * l1 * c * sin(q)
        gravity2 = m * g * c * sin(p + q)
        gravity1 = m * g * (c + l1) * sin(p) + gravity2
        ddp, ddq = solve(m11, m12, m12, m22, h * (2 * dp * dq + dq * dq) - gravity1, (a - 1) - h * dp * dp - gravity2)
        return [dp, dq, ddp, ddq]

    def along(k, h):
        return [x + h * y for x, y in zip(s, k)]

    k1 = derivative(s)
    k2 = derivative(along(k1, dt / 2))
    k3 = derivative(along(k2, dt / 2))
    k4 = derivative(along(k3, dt))
    n = [x + dt / 6 * (p + 2 * q + 2 * r + t) for x, p, q, r, t in zip(s, k1, k2, k3, k4)]
    n = [wrap(n[0]), wrap(n[1]), clip(n[2], -4 * PI, 4 * PI), clip(n[3], -9 * PI, 9 * PI)]
    done = -cos(n[0]) - cos(n[0] + n[1]) > 1
    return n, [cos(n[0]), sin(n[0]), cos(n[1]), sin(n[1]), n[2], n[3]], D(0 if done else -1), done


RUNS = [
    ("CartPole-v1", "pushed to and fro", cartpole, [.01, -.02, .03, .04], [1, 0, 0, 1, 1, 0, 1, 0]),
    ("CartPole-v1", "falls", cartpole, [.3, -.5, .17, 1.1], [0, 0, 0]),
    ("CartPole-v1", "leaves the track", cartpole, [-2.35, -1.5, -.02, .1], [0, 1, 0]),
    ("Pendulum-v1", "swings, also beyond the torque's bounds", pendulum, [2.5, -.7], [.5, -1.25, 2, -7, 3.5, 0, .125]),
    ("Pendulum-v1", "at full speed, wound up", pendulum, [-9.5, -7.9], [-2, -2, 0, 1, 2, -.5]),
    ("MountainCar-v0", "rocks", mountaincar, [-.5, 0], [2, 2, 0, 0, 1, 2, 0]),
    ("MountainCar-v0", "hits the wall", mountaincar, [-1.15, -.04], [0, 0, 2, 1, 1]),
    ("MountainCar-v0", "reaches the goal", mountaincar, [.38, .05], [2, 1, 2]),
    ("MountainCarContinuous-v0", "rocks, also beyond the bounds", mountaincarcontinuous, [-.55, .01], [.3, -1, 2.5, -4, 0, 1]),
    ("MountainCarContinuous-v0", "hits the wall", mountaincarcontinuous, [-1.1, -.065], [-1, -1, .5, 1, 1]),
    ("MountainCarContinuous-v0", "reaches the goal", mountaincarcontinuous, [.36, .049], [1, -3]),
    ("Acrobot-v1", "is shaken", acrobot, [.05, -.08, .02, .09], [2, 0, 0, 1, 2, 2, 0]),
    ("Acrobot-v1", "turns over fast", acrobot, [0.1, 2.9, 0.5, -9], [0, 2, 1, 0, 2, 1]),
    ("Acrobot-v1", "the upper link at full speed", acrobot, [-.4, -.6, 5.6, 27.7], [2, 2, 2, 2]),
    ("Acrobot-v1", "the lower link at full speed", acrobot, [-1.6, -2.9, -4.4, -20.3], [2, 2, 2, 2]),
    ("Acrobot-v1", "reaches the goal", acrobot, [2.2, .3, 2.5, .2], [1]),
]


def main():
    out = []
    for name, story, rule, state, actions in RUNS:
        s, steps = [D(x) for x in state], []  # D(float) is exact: the states are those that Go reads
        for a in actions:
            s, obs, reward, done = rule(s, D(a))
            steps.append({"action": a, "state": [float(x) for x in s], "obs": [float(x) for x in obs],
                          "reward": float(reward), "terminated": bool(done)})
            if done:
                break
        out.append({"env": name, "story": story, "state": state, "steps": steps})
    print("[")
    print(",\n".join(json.dumps(o) for o in out))
    print("]")


main()

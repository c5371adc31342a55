"""Every reader on inputs that nobody would write: an error of ours, within seconds and little memory, or an answer."""

import json
import resource
import signal
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from tercet import TercetError

MAX_SECONDS, MAX_BYTES = 10, 500 * 2**20

NASTY = [
    b"[" * 5000,
    b'{"a":' * 5000,
    b"9" * 5000,
    b"1e999999",
    b"-1",
    b"0",
    b"null",
    b"[]",
    b"{}",
    b"true",
    b'""',
    b"NaN",
    b"\0",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b'"\\ud83d"',
    b"a" * 100_000,
    b"&a [*a]",
    b"!!python/object:os.system",
    b"${HOME}",
    b"../../etc/passwd",
    b'<!ENTITY x "y">',
    b'encoding="utf-7"',
    b'"',
    b"\r",
    b"\t",
    b",",
    b"\xef\xbb\xbf",
    b"999999999999",
]


@st.composite
def spoiled(draw, content):
    """Return a good file with a few things changed: bits, pieces, lengths, or a value of its JSON."""
    found = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(len(found) - 1, 0)))
        match draw(st.sampled_from(["flip", "cut", "put", "twice", "any"])):
            case "flip" if found:
                found[place] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del found[place : place + draw(st.integers(1, 200))]
            case "put":
                found[place:place] = draw(st.sampled_from(NASTY))
            case "twice":
                found[place:place] = found[place : place + draw(st.integers(1, 200))]
            case _:
                found[place:place] = draw(st.binary(max_size=40))
    return bytes(found)


@st.composite
def other_values(draw, content):
    """Return a JSON file with one of its values replaced by something that JSON can say."""
    value = json.loads(content)
    other = draw(
        st.sampled_from([None, True, -1, 0, 10**9, 1e300, "", "x" * 10_000, [], {}, [[]], {"a": {}}, 0.5, "null"])
    )
    place = value
    while isinstance(place, dict | list) and place:
        key = draw(st.sampled_from([*place])) if isinstance(place, dict) else draw(st.integers(0, len(place) - 1))
        if not isinstance(place[key], dict | list) or not place[key] or draw(st.booleans()):
            place[key] = other
            break
        place = place[key]
    return json.dumps(value if draw(st.integers(0, 9)) else other).encode()


def fuzz(name, content, read, *, num, seed):
    """Try a reader so many times, and return how often it was tried and what went wrong the first time."""
    tried, wrong = 0, []
    strategy = spoiled(content)
    if name.endswith("json") or name in ("audit", "results", "json"):
        strategy = st.one_of(strategy, other_values(content))

    @seeded(seed)
    @settings(
        max_examples=num, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=[*HealthCheck]
    )
    @given(strategy)
    def attempt(data):
        nonlocal tried
        tried += 1
        signal.alarm(MAX_SECONDS)
        try:
            read(data)
        except TercetError:
            pass
        except BaseException as error:
            wrong.append(f"{type(error).__name__}: {str(error)[:200]} for {data[:200]!r} ({len(data)} bytes)")
        finally:
            signal.alarm(0)

    def ring(*_):
        raise TimeoutError("it took too long")

    signal.signal(signal.SIGALRM, ring)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MAX_BYTES, used + MAX_BYTES))
    attempt()
    return tried, wrong

"""What all work with redis-py shares: a connection, and what is expected of it."""

import sys
import time

import redis


def connect(protocol, **options):
    return redis.Redis(host=sys.argv[1], port=int(sys.argv[2]), protocol=protocol, **options)


def fails(action, text):
    try:
        action()
    except redis.ResponseError as error:
        assert text in str(error), f"{text!r} is not in {error!s}"
        return
    raise AssertionError(f"no error; expected {text!r}")


def until(condition):
    """Waits for what must come true by itself, such as expiry."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in a minute"
        time.sleep(0.005)

"""What holds of all tests."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Take Ctrl-C, as in a terminal: a shell starts what it runs in the background with it ignored, and all below."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)

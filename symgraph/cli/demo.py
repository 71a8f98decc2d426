from __future__ import annotations


def demo() -> int:
    return 0

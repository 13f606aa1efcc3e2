"""A notation for small accounts: batches as an engine publishes them, requests as spans tell of them, in milliseconds.

Blocks are named by letters: ``"abc"`` is a chain of three, each letter's key standing for the whole chain up to it.
"""

from __future__ import annotations

from typing import Self

from tests.accounting.residence import Book
from whymiss.accounting import Account, Batch, Habits, Limits, Outcome, Request, RequestId, Store, Stream
from whymiss.model import StreamId

MILLIS = 1_000_000
ENGINE = StreamId("engine", 0)


def key(chain: str) -> int:
    """The key of the last block of a chain."""
    return int.from_bytes(chain.encode().rjust(8, b"\0")[-8:], "big")


class Script:
    """One stream of blocks of 16 tokens, and what is asked of it."""

    def __init__(
        self,
        habits: Habits | None = None,
        limits: Limits | None = None,
        *,
        name: StreamId = ENGINE,
        account: Account | None = None,
        from_birth: bool = True,
    ) -> None:
        self.book = Book()
        self.name = name
        self.stream = Stream(name, self.book, 16, habits, from_birth=from_birth)
        self.account = account or Account(limits)
        self.account.add(self.stream)

    def batch(self, millis: float, *events: str, size: int = 16, session: bool = False) -> Self:
        """``"ab|cd"`` stores c and d under b, ``"-ab"`` removes b, ``"!"`` clears, ``"?xy|z"`` has a parent nobody knows."""
        first, stores, run = self.book.events, list[Store](), -1
        for event in events:
            if event == "!":
                self.book.cleared()
            elif event.startswith("-"):
                run = self.book.events if run < 0 else run
                self.book.removed([key(event[1:])])
            else:
                stores.append(self._store(event, size, run, session=session))
                run = -1
        self.stream.append(
            Batch(unix_nanos=round(millis * MILLIS), first=first, after=self.book.events, stores=tuple(stores))
        )
        return self

    def _store(self, event: str, size: int, run: int, *, session: bool) -> Store:
        above, _, below = event.rpartition("|")
        known = not above.startswith("?")
        above = above.lstrip("?")
        keys = tuple(key(above + below[: end + 1]) for end in range(len(below)))
        ordinal, start = self.book.events, len(above) if known else None
        told = 0
        while session and told < len(keys) and self.book.surely(keys[told], ordinal):
            told += 1
        if size == 16:
            self.book.stored(keys[told:], None if start is None else start + told)
        else:
            self.book.other()
        return Store(
            keys=keys,
            parent=key(above) if above else None,
            start=start,
            block_size=size,
            ordinal=ordinal,
            position=ordinal if run < 0 else run,
            session=session,
        )

    def request(
        self,
        name: str,
        tokens: int,
        answer: int | None = 1,
        *,
        at: float,
        first: float,
        end: float | None = None,
        slack: float = 0.5,
        prefill: bool = True,
        streams: tuple[StreamId, ...] | None = None,
        elsewhere: bool = False,
        told_tokens: int | None = None,
        preempted: bool | None = None,
        skipped: bool = False,
        unseen: int = 0,
    ) -> Self:
        """A request scheduled at ``at`` (give or take ``slack``) with its first token at ``first``."""
        self.account.note(
            Request(
                id=RequestId(name.encode()),
                streams=(self.name,) if streams is None else streams,
                prompt_tokens=tokens,
                completion_tokens=answer,
                low=round((at - slack) * MILLIS),
                high=round((at + slack) * MILLIS) if prefill else round((first + slack) * MILLIS),
                first=round((first + slack) * MILLIS),
                end=round((first + slack if end is None else end) * MILLIS),
                prefill_nanos=round((first - at) * MILLIS) if prefill else None,
                elsewhere=elsewhere,
                told_tokens=told_tokens,
                preempted=preempted,
                skipped=skipped,
                unseen=unseen,
            )
        )
        return self

    def confirmed(self, millis: float) -> Self:
        self.stream.confirm(round(millis * MILLIS))
        return self

    def ask(self, name: str) -> Outcome:
        return self.account.outcome(RequestId(name.encode()))

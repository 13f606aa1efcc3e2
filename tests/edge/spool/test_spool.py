"""Nothing acknowledged is forgotten before it is settled, whatever the disk does, and the disk's room comes back."""

from __future__ import annotations

import asyncio
import os
import subprocess
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.edge.cores import counted, measures
from tests.edge.loops import looped
from tests.edge.paces import HeldPace
from tests.edge.spool.volumes import SmallVolume
from whymiss.config import SpoolConfig
from whymiss.edge.pace import Pace
from whymiss.edge.spool.spool import NOTE_SECONDS, Spool
from whymiss.edge.spool.volume import Volume
from whymiss.errors import Overloaded
from whymiss.redaction import Signal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from whymiss.measures import Measures

PLENTY = 1 << 30


class Shed:
    """A directory, and the spools that follow each other in it. A run ends as by kill -9 unless it is stopped."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self.directory = directory
        self.measures: Measures = measures()
        self.settings = SpoolConfig(directory=str(directory), **settings)  # type: ignore[arg-type]

    @asynccontextmanager
    async def run(
        self, volume: Volume | None = None, pace: Pace | None = None, *, killed: bool = False
    ) -> AsyncIterator[Spool]:
        volume = volume or Volume(self.directory)
        spool = Spool(self.settings, self.measures, pace or Pace(), volume)
        await spool.start()
        try:
            yield spool
        finally:
            if killed:
                assert spool._task is not None
                spool._task.cancel()
                await asyncio.gather(spool._task, return_exceptions=True)
                volume.close()
            else:
                await spool.stop()

    async def bodies(self) -> list[bytes]:
        """What the next run would replay."""
        async with self.run(killed=True) as spool:
            return [record.body for record in await spool.backlog()]

    def files(self) -> list[str]:
        return sorted(path.name for path in self.directory.iterdir())

    def bytes(self) -> int:
        return sum(path.stat().st_size for path in self.directory.iterdir())

    def segments(self) -> list[Path]:
        return sorted(self.directory.glob("*.segment"))

    def corrupt(self, kind: str) -> float:
        return counted(self.measures, "whymiss.spool.corrupt_records", kind=kind)

    def refused(self, reason: str) -> float:
        return counted(self.measures, "whymiss.spool.refused_requests", reason=reason)


async def fill(spool: Spool, *bodies: bytes) -> list[int]:
    return [await spool.append(Signal.TRACES, body) for body in bodies]


@looped
async def test_what_was_not_settled_is_replayed_in_order(tmp_path: Path) -> None:
    shed = Shed(tmp_path)
    async with shed.run(killed=True) as spool:
        await fill(spool, b"a", b"b", b"c")
    assert await shed.bodies() == [b"a", b"b", b"c"]


@looped
async def test_a_signal_comes_back_as_what_it_was(tmp_path: Path) -> None:
    shed = Shed(tmp_path)
    async with shed.run(killed=True) as spool:
        for signal in Signal:
            await spool.append(signal, signal.encode())
    async with shed.run() as spool:
        assert [(one.signal, one.body) for one in await spool.backlog()] == [(one, one.encode()) for one in Signal]


@looped
async def test_a_stop_with_all_settled_leaves_nothing(tmp_path: Path) -> None:
    shed = Shed(tmp_path)
    async with shed.run() as spool:
        for ticket in await fill(spool, b"a", b"b"):
            spool.settle(ticket)
    assert shed.files() == []
    assert spool.size == 0


@looped
async def test_a_stop_keeps_what_is_owed_and_only_that(tmp_path: Path) -> None:
    shed = Shed(tmp_path)
    async with shed.run() as spool:
        tickets = await fill(spool, b"a", b"b", b"c")
        spool.settle(tickets[1])
    assert await shed.bodies() == [b"a", b"c"]


@looped
async def test_what_is_settled_is_noted_within_a_moment_of_a_crash(tmp_path: Path) -> None:
    shed, pace = Shed(tmp_path), HeldPace()
    async with shed.run(pace=pace, killed=True) as spool:
        tickets = await fill(spool, b"a", b"b")
        seen = len(pace.waits)
        spool.settle(tickets[0])
        await pace.until_waits(seen + 1)
        pace.pass_by(NOTE_SECONDS)
        await pace.until_waits(seen + 2)
    assert await shed.bodies() == [b"b"]


@looped
async def test_settling_twice_or_something_unknown_changes_nothing(tmp_path: Path) -> None:
    shed = Shed(tmp_path)
    async with shed.run() as spool:
        spool.settle(1)
        first, _ = await fill(spool, b"a", b"b")
        for ticket in (first, first, 0, 99):
            spool.settle(ticket)
    assert await shed.bodies() == [b"b"]


@looped
async def test_segments_go_one_by_one_as_they_are_settled(tmp_path: Path) -> None:
    shed = Shed(tmp_path, segment_bytes=1000)
    async with shed.run() as spool:
        tickets = await fill(spool, *(bytes(300) for _ in range(9)))
        assert len(shed.segments()) == 5
        for ticket in tickets[2:7]:
            spool.settle(ticket)
        assert len(shed.segments()) == 3
        before = spool.size
        spool.settle(tickets[0])
        spool.settle(tickets[1])
        assert len(shed.segments()) == 2
        assert spool.size < before


@looped
async def test_numbers_go_on_after_a_crash_and_old_tickets_settle(tmp_path: Path) -> None:
    shed = Shed(tmp_path)
    async with shed.run(killed=True) as spool:
        old = await fill(spool, b"a", b"b")
    async with shed.run() as spool:
        new = await fill(spool, b"c")
        assert new[0] == old[-1] + 1
        for record in await spool.backlog():
            spool.settle(record.sequence)
        assert spool.replaying_bytes == 0
    assert await shed.bodies() == [b"c"]


@looped
async def test_a_full_spool_refuses_by_name_and_takes_again_what_is_settled(tmp_path: Path) -> None:
    shed = Shed(tmp_path, bytes_max=2000, segment_bytes=1000)
    async with shed.run() as spool:
        tickets = []
        with pytest.raises(Overloaded, match=r"spool\.bytes_max"):  # noqa: PT012 - how many fit is not the claim
            while True:
                tickets += await fill(spool, bytes(200))
        assert 5 <= len(tickets) <= 9
        assert spool.size <= 2000
        assert shed.bytes() <= 2000
        assert shed.refused("full") == 1
        for ticket in tickets:
            spool.settle(ticket)
        await fill(spool, bytes(1500))
    assert await shed.bodies() == [bytes(1500)]


@looped
async def test_a_full_disk_refuses_leaves_no_half_a_record_and_recovers(tmp_path: Path) -> None:
    shed = Shed(tmp_path)
    volume = SmallVolume(tmp_path, 100)
    async with shed.run(volume, killed=True) as spool:
        await fill(spool, b"a")
        size = spool.size
        for _ in range(3):
            with pytest.raises(Overloaded, match=r"No space left on device .*spool\.directory"):
                await fill(spool, bytes(200))
        assert spool.size == size
        assert shed.refused("disk") == 3
        volume.room = PLENTY
        await fill(spool, b"b")
    assert await shed.bodies() == [b"a", b"b"]
    assert shed.corrupt("torn") == 0


@looped
async def test_a_disk_that_is_full_from_the_start_leaves_no_orphan(tmp_path: Path) -> None:
    shed = Shed(tmp_path)
    volume = SmallVolume(tmp_path, 5)
    async with shed.run(volume) as spool:
        with pytest.raises(Overloaded):
            await fill(spool, b"a")
        assert shed.files() == []
        volume.room = 25  # the header fits, and no record
        with pytest.raises(Overloaded):
            await fill(spool, b"a")
        assert shed.files() == []
        volume.broken.add("remove")
        volume.room = 25
        with pytest.raises(Overloaded):
            await fill(spool, b"a")
        volume.broken.clear()
        volume.room = PLENTY
        await fill(spool, b"a")
    assert await shed.bodies() == [b"a"]


@looped
async def test_a_write_that_cannot_be_undone_costs_no_other_request(tmp_path: Path) -> None:
    shed = Shed(tmp_path)
    volume = SmallVolume(tmp_path, 100)
    async with shed.run(volume, killed=True) as spool:
        await fill(spool, b"a")
        volume.broken.add("truncate")
        with pytest.raises(Overloaded):
            await fill(spool, bytes(200))
        volume.room = PLENTY
        await fill(spool, b"b")
    assert await shed.bodies() == [b"a", b"b"]
    assert shed.corrupt("corrupt") == 0


@looped
async def test_a_read_only_disk_refuses_and_recovers(tmp_path: Path) -> None:
    shed = Shed(tmp_path)
    volume = SmallVolume(tmp_path, PLENTY)
    async with shed.run(volume) as spool:
        first = await fill(spool, b"a")
        volume.broken |= {"write", "truncate", "create", "remove", "sync"}
        for _ in range(2):
            with pytest.raises(Overloaded, match="Read-only file system"):
                await fill(spool, b"b")
        spool.settle(first[0])
        volume.broken.clear()
        await fill(spool, b"c")
    assert await shed.bodies() == [b"c"]


@looped
async def test_a_directory_that_cannot_be_had_at_the_start_is_had_later(tmp_path: Path) -> None:
    place = tmp_path / "spool"
    shed = Shed(place)
    async with shed.run(killed=True) as spool:
        await fill(spool, b"old")
    place.rename(tmp_path / "aside")
    place.write_bytes(b"in the way")
    async with shed.run(killed=True) as spool:
        with pytest.raises(Overloaded, match=r"spool\.directory"):
            await fill(spool, b"a")
        place.unlink()
        (tmp_path / "aside").rename(place)
        await fill(spool, b"b")
        assert [record.body for record in await spool.backlog()] == [b"old"]
    assert await shed.bodies() == [b"old", b"b"]


@looped
async def test_two_processes_do_not_share_a_directory(tmp_path: Path) -> None:
    shed = Shed(tmp_path)
    async with shed.run():
        with pytest.raises(BlockingIOError):
            await Spool(shed.settings, shed.measures, Pace()).start()


@looped
async def test_other_users_cannot_read_requests(tmp_path: Path) -> None:
    shed = Shed(tmp_path / "spool")
    async with shed.run() as spool:
        await fill(spool, b"prompt")
        assert shed.directory.stat().st_mode & 0o077 == 0
        assert shed.segments()[0].stat().st_mode & 0o077 == 0


@looped
async def test_always_means_synced_before_it_is_answered_once_for_all_that_wait(tmp_path: Path) -> None:
    shed = Shed(tmp_path, fsync="always")
    volume = SmallVolume(tmp_path, PLENTY)
    async with shed.run(volume) as spool:
        await asyncio.gather(*(spool.append(Signal.TRACES, bytes([one])) for one in range(20)))
        assert 1 <= volume.synced < 20
        volume.broken.add("sync")
        with pytest.raises(Overloaded):
            await fill(spool, b"x")
        volume.broken.clear()
        await fill(spool, b"y")
    assert await shed.bodies() == [*(bytes([one]) for one in range(20)), b"y"]


@looped
async def test_interval_means_synced_after_a_while_and_only_where_something_came(tmp_path: Path) -> None:
    shed, pace, volume = Shed(tmp_path, fsync_seconds=3), HeldPace(), SmallVolume(tmp_path, PLENTY)
    async with shed.run(volume, pace) as spool:
        await fill(spool, b"a")
        assert volume.synced == 0
        seen = len(pace.waits)
        await pace.until_waits(seen)
        pace.pass_by(3)
        await pace.until_waits(seen + 1)
        assert volume.synced == 1
        assert pace.waits[-1] > 3


@looped
async def test_a_sender_that_leaves_while_its_request_is_written_leaves_nothing_behind(tmp_path: Path) -> None:
    shed = Shed(tmp_path, fsync="always")
    async with shed.run() as spool:
        sending = [asyncio.create_task(spool.append(Signal.TRACES, bytes(9))) for _ in range(3)]
        await asyncio.sleep(0)
        for one in sending:
            one.cancel()
        await asyncio.gather(*sending, return_exceptions=True)
        await fill(spool, b"a")
    assert await shed.bodies() == [b"a"]


class ForgetfulVolume(Volume):
    """Has a mistake of ours in it."""

    forgetful = True

    def write(self, descriptor: int, content: bytes) -> None:
        if self.forgetful:
            raise ZeroDivisionError
        super().write(descriptor, content)


@looped
async def test_a_mistake_of_ours_costs_the_requests_that_met_it(tmp_path: Path) -> None:
    shed, volume = Shed(tmp_path), ForgetfulVolume(tmp_path)
    async with shed.run(volume) as spool:
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                await fill(spool, b"a")
        assert shed.refused("mistake") == 2
        volume.forgetful = False
        await fill(spool, b"b")
    assert await shed.bodies() == [b"b"]


@looped
async def test_a_torn_end_is_cut_once_and_numbers_go_on(tmp_path: Path) -> None:
    shed = Shed(tmp_path)
    async with shed.run(killed=True) as spool:
        await fill(spool, b"a", b"bbbb")
    os.truncate(shed.segments()[0], shed.segments()[0].stat().st_size - 2)
    for _ in range(2):
        assert await shed.bodies() == [b"a"]
        assert shed.corrupt("torn") == 1
    async with shed.run() as spool:
        assert await fill(spool, b"c") == [2]


@looped
async def test_a_corrupt_record_costs_what_is_behind_it_in_its_segment_counted(tmp_path: Path) -> None:
    shed = Shed(tmp_path, segment_bytes=1000)
    bodies = [bytes([one]) * 200 for one in range(8)]
    async with shed.run() as spool:
        tickets = await fill(spool, *bodies)
        spool.settle(tickets[3])
    content = bytearray(shed.segments()[0].read_bytes())
    content[20 + 17 + 200 + 17 + 5] ^= 1
    shed.segments()[0].write_bytes(content)
    async with shed.run() as spool:
        records = list(await spool.backlog())
        assert [one.body for one in records] == [bodies[0], *bodies[4:]]
        assert shed.corrupt("corrupt") == 2  # the third of them had been settled
        for one in records:
            spool.settle(one.sequence)
    assert shed.files() == []


@looped
async def test_a_lost_segment_header_costs_that_segment(tmp_path: Path) -> None:
    shed = Shed(tmp_path, segment_bytes=500)
    async with shed.run() as spool:
        await fill(spool, *(bytes([one]) * 200 for one in range(4)))
    shed.segments()[0].write_bytes(b"")
    assert await shed.bodies() == [bytes([one]) * 200 for one in (2, 3)]
    assert shed.corrupt("torn") == 2


@looped
async def test_notes_without_a_segment_are_removed(tmp_path: Path) -> None:
    (tmp_path / f"{7:020d}.notes").write_bytes(b"")
    shed = Shed(tmp_path)
    async with shed.run():
        assert shed.files() == []


damage = st.tuples(st.integers(0, 1 << 16), st.integers(0, 255) | st.none())


@given(st.lists(st.binary(max_size=90), min_size=1, max_size=12), st.sets(st.integers(0, 11)), damage)
def test_whatever_happens_to_one_file_only_what_is_behind_it_is_lost(
    tmp_path_factory: pytest.TempPathFactory, bodies: list[bytes], settled: set[int], hurt: tuple[int, int | None]
) -> None:
    async def scene() -> None:
        shed = Shed(tmp_path_factory.mktemp("spool"), segment_bytes=200)
        async with shed.run() as spool:
            tickets = await fill(spool, *bodies)
            for one in settled & set(range(len(bodies))):
                spool.settle(tickets[one])
        files = sorted(shed.directory.iterdir())
        owed = [body for at, body in enumerate(bodies) if at not in settled]
        assert await shed.bodies() == owed
        if not files:
            return
        where, what = hurt
        path = files[where % len(files)]
        content = bytearray(path.read_bytes())
        at = where % (len(content) + 1)
        if what is None:
            del content[at:]
        else:
            content[at : at + 1] = bytes([what])
        path.write_bytes(content)
        found = await shed.bodies()
        assert set(found) <= set(bodies)
        lost = shed.corrupt("torn") + shed.corrupt("corrupt")
        if path.suffix == ".notes":
            assert len(found) >= len(owed)
        else:
            # All segments have their ends noted, so that each loss is counted once a start.
            assert len(found) + lost == len(owed)

    asyncio.run(scene())


@contextmanager
def mounted(place: Path, options: str) -> Iterator[None]:
    place.mkdir(exist_ok=True)
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], check=False).returncode:
        pytest.skip("needs root, and the right to mount a file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def remount(place: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", place], check=True)


def test_a_real_file_system_may_run_full_and_get_room_again(tmp_path: Path) -> None:
    @looped
    async def scene() -> None:
        shed = Shed(tmp_path / "mount", segment_bytes=32 << 10)
        async with shed.run() as spool:
            taken = []
            with pytest.raises(Overloaded, match="No space left on device"):  # noqa: PT012 - how many fit is not the claim
                while True:
                    taken += await fill(spool, bytes(3000))
            assert len(taken) > 50
            for ticket in taken[:40]:
                spool.settle(ticket)
            await fill(spool, b"again")
        assert await shed.bodies() == [*(bytes(3000) for _ in taken[40:]), b"again"]
        assert shed.corrupt("torn") + shed.corrupt("corrupt") == 0

    with mounted(tmp_path / "mount", "size=256k"):
        scene()


def test_a_real_file_system_may_become_read_only_and_writable_again(tmp_path: Path) -> None:
    place = tmp_path / "mount"

    @looped
    async def scene() -> None:
        shed = Shed(place)
        async with shed.run() as spool:
            await fill(spool, b"a")
        remount(place, "ro")
        async with shed.run() as spool:
            with pytest.raises(Overloaded, match="Read-only file system"):
                await fill(spool, b"b")
            assert [record.body for record in await spool.backlog()] == [b"a"]
            remount(place, "rw")
            await fill(spool, b"c")
        assert await shed.bodies() == [b"a", b"c"]

    with mounted(place, "size=1m"):
        scene()


async def try_in_vain(shed: Shed, *, dying: bool) -> list[bytes]:
    """One run that reads the backlog and fails on ``bad``; what it read."""
    read, mark = [], b""
    async with shed.run(killed=dying) as spool:
        for record in await spool.backlog():
            read.append(record.body)
            with spool.trying(record.sequence):
                if record.body != b"bad":
                    continue
                if dying:
                    # As a process that is killed: nothing is undone.
                    mark = (shed.directory / "replaying").read_bytes()
                    break
                spool.postpone(record.sequence)
    if dying and b"bad" in read:
        (shed.directory / "replaying").write_bytes(mark)
    return read


@pytest.mark.parametrize("dying", [False, True])
@looped
async def test_what_is_tried_in_vain_is_given_up_after_so_many_starts_and_the_rest_is_kept(
    tmp_path: Path, *, dying: bool
) -> None:
    shed = Shed(tmp_path, attempts_max=2)
    async with shed.run(killed=True) as spool:
        await fill(spool, b"a", b"bad", b"c")
    for _ in range(2):
        assert b"bad" in await try_in_vain(shed, dying=dying)
    assert await try_in_vain(shed, dying=dying) == [b"a", b"c"]
    assert counted(shed.measures, "whymiss.spool.replayed_requests", outcome="given_up") == (1 if dying else 0)
    assert await shed.bodies() == [b"a", b"c"]


@looped
async def test_a_run_that_ends_in_order_has_tried_nothing_in_vain(tmp_path: Path) -> None:
    shed = Shed(tmp_path, attempts_max=1)
    async with shed.run(killed=True) as spool:
        await fill(spool, b"a")
    for _ in range(3):
        async with shed.run() as spool:
            for record in await spool.backlog():
                with spool.trying(record.sequence):
                    pass
            spool.end_trying()
        assert "replaying" not in shed.files()
    assert await shed.bodies() == [b"a"]


@looped
async def test_a_mark_that_cannot_be_written_costs_a_count(tmp_path: Path) -> None:
    shed = Shed(tmp_path)
    async with shed.run(killed=True) as spool:
        (ticket,) = await fill(spool, b"a")
        (tmp_path / "replaying").mkdir()
        with spool.trying(ticket):
            pass
        assert counted(shed.measures, "whymiss.spool.failures", operation="mark") == 2
    assert await shed.bodies() == [b"a"]

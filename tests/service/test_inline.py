"""Work done side by side where there is an event loop, and one after another where there is none."""

from __future__ import annotations

import asyncio

from moorage.service.inline import drive, together


async def test_work_is_done_side_by_side_in_an_event_loop() -> None:
    met = asyncio.Barrier(3)

    async def meet(number: int) -> int:
        await met.wait()
        return number

    async with asyncio.timeout(5):
        assert await together(meet(number) for number in range(3)) == [0, 1, 2]


def test_work_is_done_in_turn_without_an_event_loop() -> None:
    done = list[int]()

    async def note(number: int) -> int:
        done.append(number)
        return number

    assert drive(together(note(number) for number in range(3))) == done == [0, 1, 2]

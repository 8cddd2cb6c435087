"""A channel of HBM in plain Python, clock by clock and bank by bank, with which `evaluators.machine.dram` has to agree."""

from typing import Any

from dse.evaluators.machine.dram_commands import MAX_ROW_HITS
from dse.evaluators.machine.dram_constants import ClockedTiming, QueueSizes
from dse.evaluators.machine.dram_simulator import DRAIN_THRESHOLD


class Bank:
    def __init__(self, group: int) -> None:
        self.group, self.row, self.hits, self.queue = group, -1, 0, list[int]()
        self.read = self.write = self.activate = self.precharge = 0


class Plain:
    """One channel; requests are (bank, row, column)."""

    def __init__(
        self, place: Any, write: Any, arrival: Any, t: ClockedTiming, groups: int, banks: int, queues: QueueSizes
    ) -> None:
        self.place, self.writes, self.arrival, self.t, self.sizes = place, write, arrival, t, queues
        self.banks = [Bank(number // banks) for number in range(groups * banks)]
        self.read, self.write, self.activate = ([0] * groups for _ in range(3))
        self.window, self.last, self.coming, self.done, self.draining = [-(1 << 60)] * 4, 0, 0, 0, 0
        self.held: dict[bool, list[int]] = {False: [], True: []}
        self.refreshing = False
        self.accepted, self.finished = [-1] * len(write), [-1] * len(write)

    def play(self, limit: int) -> int:
        clock = 0
        while clock < limit and self.done < len(self.writes):
            self.accept(clock)
            self.refreshing |= clock > 0 and clock % self.t.refi == 0
            if self.refreshing:
                self.refresh(clock)
            else:
                self.issue(clock)
            self.forward()
            clock += 1
        return clock

    def accept(self, clock: int) -> None:
        r = self.coming
        if r == len(self.writes) or self.arrival[r] > clock or len(self.held[bool(self.writes[r])]) == self.sizes.waiting:
            return
        self.held[bool(self.writes[r])].append(r)
        self.accepted[r] = clock
        if self.writes[r]:
            self.finished[r] = clock + 1
        self.coming += 1

    def refresh(self, clock: int) -> None:
        for bank in self.banks:
            if bank.row >= 0 and clock >= bank.precharge:
                self.close(bank, clock)
                return
        if all(bank.row < 0 and clock >= bank.activate for bank in self.banks):
            for bank in self.banks:
                bank.activate = clock + self.t.rfc
            self.refreshing = False

    def issue(self, clock: int) -> None:
        row_taken = False
        for _ in range(2):
            turns = [(self.last + step) % len(self.banks) for step in range(1, len(self.banks) + 1)]
            command = next(
                ((number, what) for number in turns if (what := self.wants(self.banks[number], clock)) is not None), None
            )
            if command is None:
                return
            self.last, what = command
            bank = self.banks[self.last]
            if what >= 0:
                self.column(bank, what, clock)
            elif not row_taken:
                row_taken = True
                if bank.row < 0:
                    self.open(bank, clock)
                else:
                    self.close(bank, clock)

    def wants(self, bank: Bank, clock: int) -> int | None:
        """What a bank can be issued: the place in its queue of a column command, -1 for a row command, None for nothing."""
        if not bank.queue:
            return None
        if bank.row < 0:
            return -1 if clock >= max(bank.activate, self.activate[bank.group], self.window[0]) else None
        hits = [i for i, r in enumerate(bank.queue) if self.place[r][1] == bank.row and self.free(bank, i)]
        misses = self.place[bank.queue[0]][1] != bank.row and (not hits or bank.hits >= MAX_ROW_HITS)
        if misses and clock >= bank.precharge:
            return -1
        for write in (False, True):  # only the first read and the first write
            kind = [i for i in hits if self.writes[bank.queue[i]] == write]
            hits = [i for i in hits if i not in kind[1:]]
        at = {False: max(bank.read, self.read[bank.group]), True: max(bank.write, self.write[bank.group])}
        return next((i for i in hits if clock >= at[bool(self.writes[bank.queue[i]])]), None)

    def free(self, bank: Bank, place: int) -> bool:
        """Whether no earlier read holds a write up."""
        r = bank.queue[place]
        return not self.writes[r] or not any(
            not self.writes[o] and tuple(self.place[o]) == tuple(self.place[r]) for o in bank.queue[:place]
        )

    def open(self, bank: Bank, clock: int) -> None:
        t = self.t
        bank.row, bank.hits = self.place[bank.queue[0]][1], 0
        bank.read, bank.write = clock + t.rcd_read, clock + t.rcd_write
        bank.precharge = max(bank.precharge, clock + t.ras)
        bank.activate = max(bank.activate, clock + t.ras + t.rp)
        self.activate = [max(at, clock + (t.rrd_l if g == bank.group else t.rrd_s)) for g, at in enumerate(self.activate)]
        self.window = [*self.window[1:], clock + t.faw]

    def close(self, bank: Bank, clock: int) -> None:
        bank.row, bank.hits, bank.activate = -1, 0, max(bank.activate, clock + self.t.rp)

    def column(self, bank: Bank, place: int, clock: int) -> None:
        t, r = self.t, bank.queue.pop(place)
        bank.hits += 1
        self.done += 1
        for g in range(len(self.read)):
            inside = g == bank.group
            next_one = clock + max(t.burst, t.ccd_l if inside else t.ccd_s)
            turned = clock + (
                t.cwl + t.burst + (t.wtr_l if inside else t.wtr_s) if self.writes[r] else t.cl + t.burst - t.cwl + t.turn
            )
            self.read[g] = max(self.read[g], turned if self.writes[r] else next_one)
            self.write[g] = max(self.write[g], next_one if self.writes[r] else turned)
        if not self.writes[r]:
            self.finished[r] = clock + t.cl + t.burst
        bank.precharge = max(bank.precharge, clock + (t.cwl + t.burst + t.wr if self.writes[r] else t.rtp))

    def forward(self) -> None:
        queued = any(bank.queue for bank in self.banks)
        alone = DRAIN_THRESHOLD if self.coming < len(self.writes) or self.held[False] else 0
        writes = self.held[True]
        if self.draining == 0 and (len(writes) == self.sizes.waiting or (len(writes) > alone and not queued)):
            self.draining = len(writes)
        line = self.held[self.draining > 0]
        for r in line:
            bank = self.banks[self.place[r][0]]
            if len(bank.queue) < self.sizes.bank:
                bank.queue.append(r)
                line.remove(r)
                self.draining -= self.draining > 0
                return

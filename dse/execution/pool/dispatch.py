"""Dispatch loop of a pool: batches, deaths, hangs and retries of workers, and their answers.

Contract, for all kinds of workers: an item that was submitted is answered once, by its result or by a `Failure`. A worker that
died, hung or could not read its call is replaced, and what it was sent is tried again; each of these items alone, so that the
failing one is told from the others of its batch. An item at which workers were lost `retries + 1` times alone has failed. A
worker that is new evaluates an example first, so that no item pays for imports and compilation.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import Any, NamedTuple, TypeVar

from dse.execution.pool.affinity import Affinity, Item
from dse.execution.pool.worker_calls import Failure, OneByOne, Reply, Work
from dse.execution.pool.worker_kind import PoolNotStartedError, WorkerKind, WorkerLostError, refuse_start
from dse.space.errors import DesignError
from dse.space.units import format_quantity

T = TypeVar("T")
R = TypeVar("R")

START_LIMIT_S = 60.0
"""What a worker may take to start and warm up. [s]"""

POLL_S = 2.0
"""How long to wait for an answer between two looks at the workers. [s]"""

MAX_STARTS = 3
"""Workers that may die in a row while they start, before that is an error of the machine and not of an item."""

BATCH_S = 0.1
"""Work that is worth a message of its own; also what a worker can lose when it dies. [s]"""


@dataclass(frozen=True)
class PoolRules:
    """Rules of a pool: limits, retries, batches.

    Attributes:
        retries: how many times more an item is tried, alone, once a worker was lost at it alone.
        tries: how often a worker tries an item that raises, alone.
        time_limit: what a worker may take for a batch before it is stopped. [s]
        memory_limit: what a worker may hold beyond what it holds when warm. [B]
        window: items that workers have at a time, at most, of which a batch is never more than a fair share; 0 for no limit.
        batches: whether items that take little go to workers in batches, and a second batch ahead; else one by one.
        at_start: whether workers get their first items while they start.
    """

    retries: int = 3
    tries: int = 1
    time_limit: float = inf
    memory_limit: float = inf
    window: int = 0
    batches: bool = False
    at_start: bool = False


class WorkerInterval(NamedTuple):
    """Time that one worker took for one call.

    Attributes:
        stage: of the work, from 1: the number of the call of `Pool.map`.
        worker: which, from 0.
        cpu: of the processor. [s]
        start, end: by the clock of the process that asks, when it was begun and answered. [s]
    """

    stage: int
    worker: int
    cpu: float
    start: float
    end: float


class ItemAnswer(NamedTuple):
    """Answer to an item of work, by a worker.

    Attributes:
        key: of the item.
        value: its result, or the item's own value where it failed.
        failure: why it failed; None if it did not.
        turn: the call that it was part of.
    """

    key: Any
    value: Any
    failure: Failure | None
    turn: WorkerInterval


class ItemDuration:
    """Recent time per item, which sets the size of a batch. [s]"""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._known = False

    def learn(self, mean: float) -> None:
        """Update by the mean of a batch: at once if the time falls, by half if it rises. [s]"""
        self.seconds = min(mean, (self.seconds + mean) / 2) if self._known else mean
        self._known = True

    def choose_batch_size(self, most: int) -> int:
        """Number of items in a batch; one while the time per item is unknown."""
        return max(1, min(most, int(BATCH_S / max(self.seconds, 1e-9)))) if self._known else 1


def repays_start(seconds: float, count: int, start: float) -> bool:
    """Whether work that is left repays the start of workers: whether it ends sooner with them.

    Args:
        seconds: one worker takes for it. [s]
        count: of workers.
        start: what they take to start. [s]

    >>> repays_start(4.0, 2, 1.0), repays_start(4.0, 2, 3.0), repays_start(4.0, 1, 0.0)
    (True, False, False)
    """
    return seconds * (1 - 1 / count) > start


@dataclass(frozen=True, eq=False)
class _Work:
    function: Work
    encoded: Any


@dataclass
class _Worker:
    """One worker.

    Attributes:
        starting: calls for coming up and for warming up that are not answered: 2, 1 or 0.
        warm: whether it evaluates an example.
        sent: batches that it was sent and has not answered, oldest first.
        since: when it began with what it does. [s]
        company: whether something was sent behind another batch since it was last idle; then a death accuses nobody.
        cpu: CPU time of its process when it last answered. [s]
        work: the function that it has.
    """

    handle: Any
    number: int
    warm: bool
    starting: int = 2
    sent: deque[list[Item]] = field(default_factory=deque)
    since: float = field(default_factory=time.monotonic)
    company: bool = False
    cpu: float = 0.0
    work: _Work | None = None


class Pool:
    """Workers of one kind that answer items of work.

    Args:
        kind: of workers.
        rules: limits, retries and batches.
        example: function and values that a new worker tries before it counts as ready; None for no example.
        say: tells the user.

    Raises:
        PoolNotStartedError: workers do not start.
    """

    def __init__(
        self,
        kind: WorkerKind[Any],
        rules: PoolRules | None = None,
        *,
        example: tuple[Work, Sequence[Any]] | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._kind, self._rules, self._say = kind, rules or PoolRules(), say
        self._warm = example is not None
        self._queue, self._suspects = deque[Item](), deque[Item]()
        self._work: _Work | None = None
        self._tries: dict[Any, int] = {}  # of items that were at a worker that was lost, how often they were lost alone
        self._answers: list[ItemAnswer] = []
        self._unanswered = 0
        self._pace, self._affinity, self._apart = ItemDuration(), Affinity(), False
        self._workers: list[_Worker] = []
        self._numbers = self._stage = self._false_starts = 0
        self._most, self._wanted, self._looked = inf, 0, -inf
        self._gone = 0.0
        try:
            self._example = None if example is None else tuple(map(self._encode_work, example))
            self._hire()
        except BaseException:
            self.close()
            raise

    @property
    def count(self) -> int:
        """Number of workers that there should be."""
        return self._wanted

    @property
    def cpu(self) -> float:
        """CPU time of worker processes up to their last answers. [s]"""
        return self._gone + sum(worker.cpu for worker in self._workers)

    @property
    def children(self) -> bool:
        """Whether workers are children of this process."""
        return self._kind.children

    def submit(self, work: Work, items: Iterable[Item]) -> None:
        """Queue items, and send what workers can take now.

        Args:
            work: the same for all items that are not answered.
            items: with keys that no other unanswered item has.
        """
        if self._work is None or self._work.function is not work:
            assert not self._unanswered, "one function at a time"
            self._work = _Work(work, self._encode_work(work))
        before = len(self._queue)
        self._queue.extend(items)
        self._unanswered += len(self._queue) - before
        if self._kind.works_ahead:
            self._assign()

    def collect(self) -> list[ItemAnswer]:
        """Answers as soon as there are any; workers that died or hang are replaced meanwhile.

        Raises:
            DesignError: all workers are lost.
            PoolNotStartedError: workers die while they start.
        """
        while self._unanswered and not self._answers:
            self._assign()
            if self._answers:  # items that cannot be sent
                break
            try:
                self._listen()
            except PoolNotStartedError:
                if not self._answers:  # what came before it is answered first, and the next start fails again
                    raise
        if self._kind.works_ahead:
            self._assign()  # so that workers go on while answers are looked at
        answers, self._answers = self._answers, []
        self._unanswered -= len(answers)
        return answers

    def map(
        self,
        work: Callable[[Any], Any],
        values: Iterable[Any],
        kinds: Sequence[Any] | None = None,
        costs: Sequence[float] | None = None,
        *,
        apart: bool = False,
        failures: bool = False,
    ) -> Iterator[ItemAnswer]:
        """Apply a function to values; yields answers as they come, with the places of the values as keys.

        With a `window`, values are taken from the iterable only as they are needed.

        Args:
            work: may be sent to other processes, and changes nothing.
            values: likewise.
            kinds: of each value; what a worker computes for one value serves others of its kind.
            costs: of each value, its expected time in any unit; the longest come first.
            apart: whether a worker never takes a kind that another one knows, however idle it is.
            failures: whether items that fail are answered, and not raised.

        Raises:
            DesignError: workers are lost, die at the same item again and again, or what `work` raises.
        """
        self._stage, self._apart = self._stage + 1, apart
        function, rest, given, taken = OneByOne(work), iter(values), 0, 0
        try:
            while True:
                room = self._rules.window - self._unanswered if self._rules.window else None
                items = [
                    Item(place, value, kinds[place] if kinds else None, costs[place] if costs else 0.0)
                    for place, value in enumerate(islice(rest, room), given)
                ]
                given += len(items)
                self.submit(function, items)
                if taken == given:
                    return
                for answer in self.collect():
                    taken += 1
                    if answer.failure is not None and not failures:
                        raise _raised_error(answer.failure)
                    yield answer
        finally:  # whoever asked may have had enough, while workers are still at it
            if self._unanswered or self._answers:
                self._end_workers()

    def map_in_order(self, work: Callable[[T], R], values: Sequence[T]) -> list[R]:
        """Results of a function for values, in their order; as `map`."""
        results = {answer.key: answer.value for answer in self.map(work, values)}
        return [results[place] for place in range(len(values))]

    def wait(self) -> None:
        """Wait until all workers have started."""
        while self._hire() or any(worker.starting for worker in self._workers):
            self._listen()

    def withdraw(self) -> list[Item]:
        """Take back all items that are not answered; workers that are at some of them are ended."""
        at_workers = [item for worker in self._workers for batch in worker.sent for item in batch]
        items, answers = [*self._suspects, *at_workers, *self._queue], self._answers
        if at_workers:
            self._end_workers()
        self._forget_items()
        self._answers, self._unanswered = answers, len(answers)
        return items

    def close(self) -> None:
        """End all workers, whatever they do."""
        self._end_workers()
        self._kind.close()

    def _end_workers(self) -> None:
        for worker in self._workers[:]:
            self._drop_worker(worker)
        self._forget_items()
        self._affinity = Affinity()

    def _forget_items(self) -> None:
        self._queue.clear()
        self._suspects.clear()
        self._tries.clear()
        self._answers, self._unanswered = [], 0

    def _encode_work(self, value: Any) -> Any:
        try:
            return self._kind.encode(value)
        except Exception as error:  # a function of a script or a notebook, where workers cannot import it
            raise refuse_start("what they are to do cannot be sent to another process", error) from None

    def _hire(self) -> int:
        """Start as many workers as there should be now; returns how many were started."""
        now = time.monotonic()
        if now - self._looked > POLL_S:
            count, self._looked = self._kind.count(), now
            count = min(count, self._rules.window or count)  # others would never have an item
            if count != self._wanted:
                self._wanted, self._most = count, inf
            for worker in [worker for worker in self._workers if worker.starting == 2][: max(0, len(self._workers) - count)]:
                self._drop_worker(worker)  # nothing can start it: what it was to run on has left
                self._put_back(worker)
        started = 0
        while len(self._workers) < min(self._wanted, self._most):
            worker = _Worker(self._kind.start(), self._numbers, self._warm)
            self._numbers += 1
            worker.handle.send("answer_ready")
            function, values = self._example if self._warm and self._example else (None, None)
            worker.handle.send("warm", function, values, self._rules.memory_limit)
            self._workers.append(worker)
            started += 1
        return started

    def _assign(self) -> None:
        """Send workers what they can take; cheap batches two deep, to hide their travel."""
        if not self._queue and not self._suspects:
            return
        depth = (
            2 if self._kind.works_ahead and self._rules.batches and self._pace.seconds * self._batch_size() < BATCH_S / 2 else 1
        )
        for level in range(depth):
            for worker in self._workers:
                up = not worker.starting or (self._rules.at_start and not level)
                if up and len(worker.sent) == level and (batch := self._next_batch(worker, level)):
                    self._send(worker, batch)

    def _batch_size(self) -> int:
        ways = 2 * max(1, self._wanted) if self._kind.works_ahead else 1
        share = max(1, -(-self._rules.window // ways)) if self._rules.window else len(self._queue)
        return self._pace.choose_batch_size(share) if self._rules.batches else 1

    def _next_batch(self, worker: _Worker, level: int) -> list[Item]:
        """Items for a worker: one that was at a lost worker alone, else a batch."""
        held = sum(len(batch) for other in self._workers for batch in other.sent)
        room = self._rules.window - held if self._rules.window else len(self._queue) + 1
        if self._suspects or room <= 0:
            return [self._suspects.popleft()] if not level and room > 0 else []
        if not self._queue or (level and worker.sent[0][0].key in self._tries):
            return []
        if self._queue[0].kind is None:
            return [self._queue.popleft() for _ in range(min(self._batch_size(), room, len(self._queue)))]
        loads = {other.number: sum(item.cost for batch in other.sent for item in batch) for other in self._workers}
        place = self._affinity.choose(worker.number, loads, self._queue, apart=self._apart)
        if place is None:
            return []
        item = self._queue[place]
        del self._queue[place]
        return [item]

    def _send(self, worker: _Worker, batch: list[Item]) -> None:
        assert self._work is not None
        try:
            values = self._kind.encode([item.value for item in batch])
        except Exception as error:  # a value that cannot be sent fails alone
            self._accuse(batch, Failure(f"{type(error).__name__}: {error}", 1, 0.0), self._turn(worker, 0.0))
            return
        if worker.sent:
            worker.company = True
        else:
            worker.company, worker.since = False, time.monotonic()
        worker.handle.send("call", None if worker.work is self._work else self._work.encoded, values, self._rules.tries)
        worker.work = self._work
        worker.sent.append(batch)

    def _accuse(self, batch: list[Item], failure: Failure, turn: WorkerInterval) -> None:
        """One item has failed; of several, each is tried alone."""
        if len(batch) == 1:
            self._tries.pop(batch[0].key, None)
            self._answers.append(ItemAnswer(batch[0].key, batch[0].value, failure, turn))
            return
        for item in batch:
            self._tries.setdefault(item.key, 0)
        self._suspects.extend(batch)

    def _listen(self) -> None:
        """Take answers that are there, or wait for some; workers that died or hang are replaced."""
        self._hire()
        busy = {id(worker.handle): worker for worker in self._workers if worker.starting or worker.sent}
        patience = min((self._deadline(worker) for worker in busy.values()), default=inf) - time.monotonic()
        ready = self._kind.wait([worker.handle for worker in busy.values()], min(max(0.0, patience), POLL_S))
        self._kind.check()
        for handle in ready:
            worker = busy.pop(id(handle))
            try:
                reply = handle.take()
            except WorkerLostError as error:
                self._lose_worker(worker, str(error))
            else:
                self._take_reply(worker, reply)
        late = [worker for worker in busy.values() if time.monotonic() > self._deadline(worker)]
        # what this process did meanwhile may have taken longer than the limit: who has replied since is not late
        replied = {id(handle) for handle in self._kind.wait([worker.handle for worker in late], 0.0)} if late else set[int]()
        for worker in late:
            if id(worker.handle) not in replied:
                self._expire_worker(worker)

    def _take_reply(self, worker: _Worker, reply: Reply) -> None:
        turn = self._turn(worker, reply.took)
        worker.cpu, worker.since = max(worker.cpu, reply.cpu), turn.end
        if worker.starting:
            worker.starting -= 1
            if not worker.starting:
                self._false_starts = 0
            return
        batch = worker.sent.popleft()
        for item, outcome in zip(batch, reply.outcomes, strict=True):
            self._tries.pop(item.key, None)
            failed = isinstance(outcome, Failure)
            self._answers.append(ItemAnswer(item.key, item.value if failed else outcome, outcome if failed else None, turn))
        self._pace.learn(reply.seconds / len(batch))
        if not reply.fresh:  # what it holds is given back when it ends; what it was sent behind is tried by another
            self._drop_worker(worker)
            self._put_back(worker)

    def _turn(self, worker: _Worker, cpu: float) -> WorkerInterval:
        return WorkerInterval(self._stage, worker.number, cpu, worker.since, time.monotonic())

    def _deadline(self, worker: _Worker) -> float:
        return worker.since + (START_LIMIT_S if worker.starting else self._rules.time_limit)

    def _expire_worker(self, worker: _Worker) -> None:
        if worker.starting < 2:
            limit, setting = (START_LIMIT_S, "start") if worker.starting else (self._rules.time_limit, "workers.time_limit")
            self._lose_worker(worker, f"hung: no answer in {format_quantity(limit, 's')} ({setting})")
            return
        self._drop_worker(worker)
        self._put_back(worker)
        self._most = len(self._workers)
        room = self._kind.describe_room()
        if not self._workers:
            raise refuse_start(f"none started in {format_quantity(START_LIMIT_S, 's')}", room)
        self._say(f"[yellow]workers[/]: {len(self._workers)} of {self._wanted} run; {room}")

    def _lose_worker(self, worker: _Worker, reason: str) -> None:
        """Replace a worker; its items are tried alone, and one that was alone already is tried again or has failed."""
        self._drop_worker(worker)
        self._kind.check(after_death=True)
        if worker.starting:
            self._put_back(worker)
            self._false_starts += not worker.warm
            self._warm = False  # the example itself may be what kills
            if self._false_starts > MAX_STARTS:
                raise refuse_start(
                    f"{self._false_starts} in a row ended during their start", f"the last one {reason}{self._kind.last_words()}"
                )
            return
        items = [item for batch in worker.sent for item in batch]
        if len(items) == 1 and not worker.company:
            (item,) = items
            self._tries[item.key] = self._tries.get(item.key, 0) + 1
            if self._tries[item.key] <= self._rules.retries:
                self._suspects.append(item)
                return
            turn = self._turn(worker, 0.0)
            self._accuse(items, Failure(reason, self._tries[item.key], turn.end - turn.start, died=True), turn)
        elif len(items) == 1:
            self._tries.setdefault(items[0].key, 0)
            self._suspects.append(items[0])
        else:
            self._accuse(items, Failure(reason, 0, 0.0, died=True), self._turn(worker, 0.0))

    def _put_back(self, worker: _Worker) -> None:
        """Queue what a dropped worker had not begun."""
        self._queue.extendleft(item for batch in reversed(worker.sent) for item in reversed(batch))

    def _drop_worker(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        self._gone += worker.cpu
        worker.handle.kill()


def _raised_error(failure: Failure) -> BaseException:
    """What a map raises for an item that failed."""
    if failure.died:
        return DesignError("workers: processes died at the same designs again and again; workers=serial shows the error")
    return failure.error or DesignError(f"workers: {failure.reason}; workers=serial shows the error")

"""An engine that keeps a scheduler busy, drawn at random."""

import random
from math import inf

from blockyard.client import Scheduler


class Engine:
    """An engine that does everything at random: chunks, guesses, preemptions, ends, late commits.

    A pool's ``max_model_len`` may stand in its way: what grows longer is refused, and ends.
    """

    def __init__(self, scheduler: Scheduler, seed: int, max_model_len: float = inf) -> None:
        self.scheduler = scheduler
        self.draw = random.Random(seed)
        self.max_model_len = max_model_len
        self.num_preempted = 0
        self.num_refused = 0
        self.num_tokens: dict[str, int] = {}
        self.num_made = 0

    def add(self) -> None:
        name = f"s{self.num_made}"
        self.num_made += 1
        first = 100 * self.draw.randrange(2)
        prompt = range(first, first + self.draw.randrange(1, 30))  # many prefixes in common
        self.scheduler.add(name, prompt)
        self.num_tokens[name] = len(prompt)

    def step(self) -> None:
        draw, scheduler = self.draw, self.scheduler
        if len(self.num_tokens) < 12:
            self.add()
        names = [name for name in self.num_tokens if draw.random() < 0.8]
        budgets = {name: draw.choice([None, 1, 3, 8]) for name in names}
        guesses = {name: draw.randrange(4) for name in names if draw.random() < 0.3}
        granted = {name: self._granted(name) for name in scheduler.running}
        lookahead = draw.choice([0, 0, 2])
        result = scheduler.step(budgets, speculated=guesses, num_lookahead_tokens=lookahead)
        for name in result.refused:
            assert self.num_tokens[name] + guesses.get(name, 0) > self.max_model_len
            self.num_refused += 1
            self._finish(name)
        for name, given in result.scheduled.items():
            before = granted.get(name, given.num_cached_tokens or 0)
            num_guessed = max(before + given.num_new_tokens - self.num_tokens[name], 0)
            self._run(name, before + given.num_new_tokens, num_guessed)
        for name in result.insufficient:
            if name in scheduler.running and draw.random() < 0.5:
                scheduler.preempt(draw.choice(scheduler.running))
                self.num_preempted += 1
        for name in [name for name in self.num_tokens if draw.random() < 0.05]:
            self._finish(name)

    def _finish(self, name: str) -> None:
        self.scheduler.finish(name)
        del self.num_tokens[name]

    def _granted(self, name: str) -> int:
        return self.scheduler._schedule._sequences[name].num_granted_tokens

    def _run(self, name: str, num_granted: int, num_guessed: int) -> None:
        num_right = self.draw.randint(0, num_guessed)
        if num_granted - num_guessed == self.num_tokens[name]:
            self._append(name, num_right + 1)
        self.scheduler.reject(name, num_guessed - num_right)
        if self.draw.random() < 0.9:
            self.scheduler.computed(name, num_granted - num_guessed + num_right)

    def _append(self, name: str, num_tokens: int) -> None:
        self.scheduler.append(name, [self.draw.randrange(2)] * num_tokens)
        self.num_tokens[name] += num_tokens

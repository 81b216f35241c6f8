"""What asking a judge may cost, and what it has cost: calls, tokens, and money by a price table.

cost = (prompt tokens * input price + reply tokens * output price) / 1e6
A call is paid for before it is made, at its highest cost, and settled by what the server says it used, so that no
number of calls at once exceeds the budget. What was spent is kept in the file of verdicts: a run that is stopped and
started again has one budget, and several runs that share the file share it. Tokens that a server thinks in are reply
tokens; a call is a question, however often it had to be sent again.
"""

from dataclasses import dataclass
from pathlib import Path

from rangeline.judge.cache import open_store

_TABLE = (
    "spending (judge TEXT PRIMARY KEY, calls INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL, "
    "reply_tokens INTEGER NOT NULL, money REAL NOT NULL) WITHOUT ROWID"
)


@dataclass(frozen=True, slots=True)
class Price:
    """Of a million tokens, in whatever currency the budget is in."""

    prompt: float = 0.0
    reply: float = 0.0

    def of(self, prompt_tokens: int, reply_tokens: int) -> float:
        """Return what so many tokens cost."""
        return (prompt_tokens * self.prompt + reply_tokens * self.reply) / 1e6


@dataclass(frozen=True, slots=True)
class Budget:
    """Most that may be spent in all; None has no limit."""

    calls: int | None = None
    tokens: int | None = None
    money: float | None = None

    def allows(self, spent: "Spending") -> bool:
        """Tell whether so much may be spent."""
        pairs = ((self.calls, spent.calls), (self.tokens, spent.tokens), (self.money, spent.money))
        return all(limit is None or value <= limit for limit, value in pairs)


@dataclass(frozen=True, slots=True)
class Spending:
    """What was spent."""

    calls: int = 0
    prompt_tokens: int = 0
    reply_tokens: int = 0
    money: float = 0.0

    @property
    def tokens(self) -> int:
        """Tokens in both directions."""
        return self.prompt_tokens + self.reply_tokens

    def __add__(self, other: "Spending") -> "Spending":
        """Return both together."""
        return Spending(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.reply_tokens + other.reply_tokens,
            self.money + other.money,
        )


def read_spending(store: Path) -> Spending:
    """Return what all judges of a file of verdicts have cost."""
    query = "SELECT calls, prompt_tokens, reply_tokens, money FROM spending"
    with open_store(store, _TABLE) as connection:
        return sum((Spending(*row) for row in connection.execute(query)), Spending())


class Purse:
    """Pays for the calls of one judge.

    Parameters
    ----------
    budget
        Of all judges that share the file.
    price
        Of this judge.
    store
        File of verdicts that keeps the sum; None keeps it in memory alone.
    judge
        Under which name it is kept.
    """

    def __init__(self, budget: Budget, price: Price, store: Path | None, judge: str) -> None:
        self._budget, self._price, self._store, self._judge = budget, price, store, judge
        self._before = read_spending(store) if store is not None else Spending()
        self._settled = Spending()
        self._reserved = Spending()

    @property
    def spent(self) -> Spending:
        """What was spent in all, open calls left out."""
        return self._before + self._settled

    def reserve(self, prompt_tokens: int, reply_tokens: int) -> Spending | None:
        """Put aside what a call may cost at most; None where the budget does not cover it."""
        wanted = Spending(1, prompt_tokens, reply_tokens, self._price.of(prompt_tokens, reply_tokens))
        if not self._budget.allows(self.spent + self._reserved + wanted):
            return None
        self._reserved = self._reserved + wanted
        return wanted

    def settle(self, reserved: Spending, used: tuple[int, int] | None) -> None:
        """Pay for a call: what it used, all that was put aside where the server does not say."""
        self._reserved = self._reserved + _negative(reserved)
        prompt_tokens, reply_tokens = used or (reserved.prompt_tokens, reserved.reply_tokens)
        money = self._price.of(prompt_tokens, reply_tokens)
        self._settled = self._settled + Spending(1, prompt_tokens, reply_tokens, money)

    def save(self) -> None:
        """Add what was settled to the file, and see what others have added."""
        if self._store is None:
            return
        now = self._settled
        with open_store(self._store, _TABLE) as connection, connection:
            connection.execute(
                "INSERT INTO spending VALUES (?, ?, ?, ?, ?) ON CONFLICT (judge) DO UPDATE SET "
                "calls = calls + excluded.calls, prompt_tokens = prompt_tokens + excluded.prompt_tokens, "
                "reply_tokens = reply_tokens + excluded.reply_tokens, money = money + excluded.money",
                (self._judge, now.calls, now.prompt_tokens, now.reply_tokens, now.money),
            )
        self._settled = Spending()
        self._before = read_spending(self._store)


def _negative(spent: Spending) -> Spending:
    return Spending(-spent.calls, -spent.prompt_tokens, -spent.reply_tokens, -spent.money)

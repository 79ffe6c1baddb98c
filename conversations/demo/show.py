"""What people see of the demo: panels and colours on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TextIO, cast

from rich.console import Console
from rich.panel import Panel
from rich.rule import Rule
from rich.text import Text

from conversations.demo.play import Told

_PLAIN_WIDTH = 100
_LINES_SHOWN = 4
_EXACT = ("definition", "filter")
_STYLES = {"complete": "green", "pending": "yellow", "stopped": "yellow", "failed": "red"}
_WHAT_FOR = {
    "brief": "the gist, to tell what the user wants",
    "sql": "statements word for word, to write the next one",
    "visualizations": "charts whole, to change one",
}


class Stage:
    """Where the demo is shown."""

    def __init__(self, out: TextIO) -> None:
        is_terminal = out.isatty()
        self.console = Console(
            file=out, highlight=False, width=None if is_terminal else _PLAIN_WIDTH, emoji=False
        )
        self.is_terminal = is_terminal

    def chapter(self, title: str) -> None:
        """Begin a chapter."""
        self.console.print()
        if self.is_terminal:
            self.console.print(Rule(Text(title, "bold"), align="left"))
        else:
            self.console.print(f"== {title}", markup=False)

    def say(self, text: str) -> None:
        """Say a sentence or two."""
        self.console.print(text, markup=False, soft_wrap=not self.is_terminal)

    def turn(self, told: Told) -> None:
        """Show a turn on two lines."""
        mark = "" if told.status == "complete" else f" ({told.status})"
        line = Text(f"t{told.position:<3} ", "dim")
        line.append(told.query or "(a file)", "bold")
        self.console.print(line, soft_wrap=not self.is_terminal)
        reply = Text("     ")
        reply.append(f"{told.answer}{mark}", _STYLES[told.status])
        if told.built:
            reply.append(f"  [{', '.join(told.built)}]", "dim")
        self.console.print(reply, soft_wrap=not self.is_terminal)

    def comparison(self, warm: Mapping[str, Any], cold: Mapping[str, Any]) -> None:
        """Show that a view is the same from Redis and, that copy gone, from PostgreSQL."""
        same = "the same text" if warm["text"] == cold["text"] else "ANOTHER TEXT"
        self.say(
            f"  {warm['focus']:<15} {warm['tokens']:,} tokens from {warm['source']}, "
            f"then {cold['tokens']:,} from {cold['source']}: {same}"
        )

    def fold(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Show what a fold has made of the whole view: its size, its notes, its facts."""
        through = after["folded_through"]
        self.say(f"The {after['focus']} view, with room for everything:")
        self.say(f"  before  turns {_turns(before)} as they were: {before['tokens']:,} tokens")
        self.say(
            f"  after   a summary of turns 1-{through}, {len(after['facts'])} facts, and turns "
            f"{_turns(after)} as they were: {after['tokens']:,} tokens"
        )
        self._some("The summary begins", after["summary"].splitlines())
        self._some("Facts stay exact, such as", list(_exact(after["facts"])))

    def _some(self, title: str, lines: Sequence[str]) -> None:
        if lines:
            self.say(f"\n{title}:")
        for line in lines[:_LINES_SHOWN]:
            self.console.print(Text(f"  {line}", "dim"), soft_wrap=not self.is_terminal)

    def view(self, view: Mapping[str, Any]) -> None:
        """Show a context view with the account of it."""
        title = f"focus {view['focus']}: {_WHAT_FOR[view['focus']]}"
        text = view["text"].rstrip("\n")
        if self.is_terminal:
            self.console.print(Panel(Text(text), title=Text(title), subtitle=Text(account(view))))
            return
        self.console.print(f"\n-- {title}\n   {account(view)}", markup=False)
        self.console.print(text, markup=False, soft_wrap=True)


def _turns(view: Mapping[str, Any]) -> str:
    return f"{view['positions'][0]}-{view['positions'][-1]}"


def _exact(facts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield `filter sales.status: IN ('paid','shipped') [t3]`, of what a summary would blur."""
    for fact in facts:
        kind, _, about = fact["key"].partition("|")
        if kind in _EXACT:
            yield f"{kind} {about}: {fact['value']} [t{fact['since']}]"


def account(view: Mapping[str, Any]) -> str:
    """Return `"948 of 1,000 tokens; turns 21-31; left out 1-20; from cache"`."""
    positions = cast(Sequence[int], view["positions"])
    shown = f"turns {positions[0]}-{positions[-1]}" if positions else "no turns"
    gone = ", ".join(f"{span['from']}-{span['to']}" for span in view["left_out"])
    left_out = f"left out {gone}; " if gone else ""
    return (
        f"{view['tokens']:,} of {view['token_budget']:,} tokens; {shown}; {left_out}"
        f"from {view['source']}"
    )

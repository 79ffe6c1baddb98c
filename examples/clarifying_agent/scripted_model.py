"""A model that needs no key: a server in OpenAI's chat format, whose replies follow two rules.

Which year is meant it looks for in all that it is sent, the memory too, and asks where it finds
none. So its second answer shows whether memory came through.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

QUESTION = "Do you mean the fiscal or the calendar year?"
MEANINGS = {
    "fiscal": "the fiscal year, July to June",
    "calendar": "the calendar year, January to December",
}
REVENUE = {"fiscal": "4.1 M", "calendar": "3.8 M"}


def reply(texts: Sequence[str]) -> dict[str, Any]:
    """Return the reply to what users said, the question last.

    >>> reply(["Revenue this year"])
    {'clarify': 'Do you mean the fiscal or the calendar year?'}
    """
    said = " ".join(texts).replace(QUESTION, "")
    meant = re.findall("fiscal|calendar", said)
    if not meant:
        return {"clarify": QUESTION}
    year = meant[-1]
    return {
        "answer": f"Revenue was {REVENUE[year]} in {MEANINGS[year]}.",
        "definitions": [{"term": "this year", "meaning": MEANINGS[year]}],
    }


class Handler(BaseHTTPRequestHandler):
    """Answers `POST …/chat/completions`."""

    def do_POST(self) -> None:
        """Reply to the messages of role user."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        texts = [one["content"] for one in body["messages"] if one["role"] == "user"]
        message = {"role": "assistant", "content": json.dumps(reply(texts))}
        answer = {
            "object": "chat.completion",
            "model": body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        }
        self._send(json.dumps(answer).encode())

    def _send(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Say nothing of each request."""


def main() -> None:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=9001, help="0 for any that is free")
    server = ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Handler)
    print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()

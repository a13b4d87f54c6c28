"""Stands in for the docker command where there is no daemon; a container is a small HTTP server that says it is ready.

What it was called with goes, a JSON list a line, to $FAKE_DOCKER_DIR/calls. Files in that folder steer it: `no-daemon`,
`no-image`, `no-gpu-access`, `leftover` (the label of a container that docker ps shall list).
"""

from __future__ import annotations

import http.server
import json
import os
import sys
from pathlib import Path

FOLDER = Path(os.environ["FAKE_DOCKER_DIR"])


class Triton(http.server.BaseHTTPRequestHandler):
    name = ""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        if self.path == "/v2":
            self.wfile.write(json.dumps({"name": self.name, "version": "2.51.0", "extensions": []}).encode())

    def log_message(self, *_: object) -> None:
        print("served", self.path, flush=True)


def run(arguments: list[str]) -> None:
    if (FOLDER / "no-gpu-access").exists():
        sys.exit('docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].')
    (published,) = (part for part in arguments if part.startswith("--publish=") and part.endswith(":8000"))
    (Triton.name,) = (part.removeprefix("--id=") for part in arguments if part.startswith("--id="))
    http.server.HTTPServer(("127.0.0.1", int(published.split(":")[1])), Triton).serve_forever()


def main() -> None:
    verb, *arguments = sys.argv[1:]
    with (FOLDER / "calls").open("a") as calls:
        calls.write(json.dumps(sys.argv[1:]) + "\n")
    if (FOLDER / "no-daemon").exists():
        sys.exit("Cannot connect to the Docker daemon at unix:///var/run/docker.sock.")
    if verb == "image" and (FOLDER / "no-image").exists():
        sys.exit("No such image")
    if verb == "ps" and (FOLDER / "leftover").exists():
        print((FOLDER / "leftover").read_text())
    if verb == "run":
        run(arguments)


if __name__ == "__main__":
    main()

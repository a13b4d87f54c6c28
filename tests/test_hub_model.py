"""A `hub:` model from a stand-in for the hub on the loopback, and from the cache once that is gone."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from tiny_encoder import save_tiny
from workbook.errors import ModelError
from workbook.models.e5 import embed, load_encoder

NAME = "someone/tiny-e5"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """The few routes of the hub's API that a download asks for; `folder` and `asked` are set by the fixture."""

    folder: Path
    asked: list[str]

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        type(self).asked.append(path)
        files = [{"rfilename": file.name} for file in sorted(self.folder.iterdir())]
        if path in (f"/api/models/{NAME}", f"/api/models/{NAME}/revision/main"):
            self.answer(json.dumps({"id": NAME, "sha": COMMIT, "siblings": files}).encode(), "application/json")
        elif path.startswith(f"/api/models/{NAME}/tree/"):
            self.answer(json.dumps([self.entry(file) for file in self.folder.iterdir()]).encode(), "application/json")
        elif path.startswith(f"/{NAME}/resolve/"):
            self.answer((self.folder / Path(path).name).read_bytes(), "application/octet-stream")
        else:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.end_headers()

    def do_HEAD(self) -> None:
        self.do_GET()

    def entry(self, file: Path) -> dict[str, object]:
        return {"type": "file", "path": file.name, "size": file.stat().st_size, "oid": self.etag(file.read_bytes())}

    @staticmethod
    def etag(content: bytes) -> str:
        return hashlib.sha1(content).hexdigest()

    def answer(self, content: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{self.etag(content)}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadingHTTPServer]:
    from huggingface_hub import constants

    Hub.folder, Hub.asked = save_tiny(tmp_path / "tiny-e5"), []
    (Hub.folder / "pytorch_model.bin").write_bytes(b"the same weights once more")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_download_then_cache(hub: ThreadingHTTPServer):
    first = load_encoder(f"hub:{NAME}")
    local = load_encoder(f"path:{Hub.folder}")
    assert (first.name, first.prefix, first.fingerprint) == (NAME, "query: ", local.fingerprint)
    np.testing.assert_array_equal(embed(first, ["storm"]), embed(local, ["storm"]))
    assert not [path for path in Hub.asked if path.endswith("pytorch_model.bin")]
    hub.shutdown()
    hub.server_close()
    assert load_encoder(f"hub:{NAME}").fingerprint == first.fingerprint


def test_unknown_id(hub: ThreadingHTTPServer):
    with pytest.raises(ModelError, match=r"the hub has no model 'someone/else'.*\"bundled\""):
        load_encoder("hub:someone/else")

"""Stands in for the Prefect server where only its life and death matter: `python small_server.py FD PARENT`.

Answers its own process id to whom knows the password. What it does at its start says the file `mode` in PREFECT_HOME.
"""

from __future__ import annotations

import base64
import os
import socket
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

PASSWORD = base64.b64encode(os.environ["PREFECT_SERVER_API_AUTH_STRING"].encode()).decode()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        known = self.headers["Authorization"] == f"Basic {PASSWORD}"
        self.send_response(200 if known else 401)
        self.end_headers()
        self.wfile.write(str(os.getpid()).encode())

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def main() -> None:
    mode = Path(os.environ["PREFECT_HOME"], "mode").read_text()
    if mode == "broken":
        sys.exit("the small server is broken")
    if mode == "slow":
        time.sleep(1)
    server = HTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = socket.socket(fileno=int(sys.argv[1]))
    server.serve_forever()


if __name__ == "__main__":
    main()

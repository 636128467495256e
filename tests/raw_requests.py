"""Requests as no well-behaved client sends them: written into a socket byte by byte."""

from __future__ import annotations

import base64
import socket

Headers = list[tuple[str, str]]
UPGRADE: Headers = [
    ("Upgrade", "websocket"),
    ("Connection", "Upgrade"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ("Sec-WebSocket-Version", "13"),
]


def basic(user: str, password: str) -> tuple[str, str]:
    return "Authorization", f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def ask(url: str, target: str, headers: Headers, method: str = "GET", body: str = "") -> int:
    """Return the status that a server answers with; no header is added but for the body's."""
    host, _, port = url.rpartition("/")[2].partition(":")
    if body:
        headers = [*headers, ("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    if ("Connection", "Upgrade") not in headers:
        lines.append("Connection: close")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n" + body).encode("latin-1"))
        answer = b""
        while b"\r\n" not in answer:
            received = connection.recv(4096)
            assert received, f"no answer to {lines}"
            answer += received
    return int(answer.split()[1])

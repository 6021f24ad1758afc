"""A webhook receiver that needs only the standard library:

    WEBHOOK_SECRET=whsec_… python3 receiver.py
"""

import hashlib
import hmac
import json
import os
import queue
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# During a rotation there are two secrets, separated by a space.
SECRETS = os.environ.get("WEBHOOK_SECRET", "").split()
TOLERANCE = 300  # seconds
MAX_BODY = (1 << 20) + (64 << 10)  # bodies have at most 1 MiB

# Accepted IDs and queued deliveries. In production, use a database table with the
# ID as its primary key.
lock = threading.Lock()
seen = set()
todo = queue.Queue()


def signed(timestamp, body, signature):
    """Reports whether the signature belongs to one of the secrets."""
    for secret in SECRETS:
        mac = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256)
        expected = mac.hexdigest().encode()
        if len(signature) == len(expected) and hmac.compare_digest(signature, expected):
            return True
    return False


class Receiver(BaseHTTPRequestHandler):
    timeout = 10  # seconds until a stalled connection is closed

    def do_POST(self):
        self.send_response(self.receive())
        self.end_headers()

    def receive(self):
        """Stores a delivery and returns the status of the response."""
        try:
            length = int(self.headers.get("Content-Length", ""))
        except ValueError:
            return 411
        if not 0 <= length <= MAX_BODY:
            return 413
        # The signature covers the raw bytes, so read them before you parse anything.
        body = self.rfile.read(length)

        timestamp = self.headers.get("Service-Timestamp", "")
        if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) < 20):
            return 400
        if abs(int(time.time()) - int(timestamp)) > TOLERANCE:
            return 400

        # As bytes, because compare_digest rejects strings that are not ASCII.
        signature = self.headers.get("Service-Signature", "").encode("utf-8", "replace")
        if not signed(timestamp, body, signature):
            return 401

        delivery_id = self.headers.get("Service-Event-Id", "")
        try:
            event = json.loads(body)
        except ValueError:
            return 400
        if delivery_id == "" or not isinstance(event, dict) or "type" not in event:
            return 400

        with lock:
            if delivery_id not in seen:  # acknowledge duplicates and do nothing
                seen.add(delivery_id)
                todo.put((delivery_id, event))
        return 204

    def log_message(self, format, *args):
        pass


def work():
    """Processes deliveries after they were acknowledged."""
    while True:
        delivery_id, event = todo.get()
        print("processed", delivery_id, event["type"], flush=True)


if __name__ == "__main__":
    if not SECRETS:
        sys.exit("set WEBHOOK_SECRET to the endpoint's secret")
    threading.Thread(target=work, daemon=True).start()
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "3000"))), Receiver)
    print(f"listening on http://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()

"""Adapters that turn text into vectors, each fitting `ports.Embedder`: one technology per package or module."""

import os

# onnxruntime sends events with a device id and the program's path to its maker, and keeps them in ~/.cache, unless this
# is set before it is imported; its own disable_telemetry_events() comes too late for both.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

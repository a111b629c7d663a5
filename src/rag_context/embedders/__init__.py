"""Adapters that turn text into vectors, each fitting `ports.Embedder`: one technology per package or module."""

from rag_context.settings.config_file import set_unless_given

# onnxruntime sends events with a device id and the program's path to its maker, and keeps them in ~/.cache, unless this
# is set before it is imported; its own disable_telemetry_events() comes too late for both.
set_unless_given("ORT_DISABLE_TELEMETRY", "1")

"""rag-context and its peers side by side in one run, each as its users would run it: `python -m benchmarks.peers`."""

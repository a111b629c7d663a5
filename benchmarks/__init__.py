"""Speed and memory, as ratios against a baseline in the same run: `python -m benchmarks`."""

import os

# The baseline is what one thread does. A BLAS with more would also go on spinning for a while after each product, on
# the core that the measured server needs next.
for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

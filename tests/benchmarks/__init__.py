"""Benchmarks: reput beside the broker's own reput on the same log, the curves, and the delay behind a live broker.

    PYTHONPATH=tests python -m benchmarks.bench --work .work/bench        # make bench; --all: make bench-all
    PYTHONPATH=tests python -m benchmarks.scale --work .work/bench        # make bench-scale
    PYTHONPATH=tests python -m benchmarks.latency --work .work/latency    # make bench-latency

docs/benchmarks.md and docs/scale.md say what is measured and how.
"""

"""Run every benchmark in a process of its own, so that none inherits the other's memory."""

import subprocess
import sys

BENCHMARKS = (
    "throughput",
    "single_query",
    "identical_vectors",
    "memory",
    "sparse",
    "fit_sample",
    "corruptions",
    "unknowns",
    "decisions",
    "promises",
    "label_audit",
    "drift",
    "recalibration",
    "few_members",
    "scale",
    "server_engines",
    "service",
)


def main() -> None:
    broken = []
    for name in BENCHMARKS:
        print(f"== {name}", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode:
            broken.append(name)
    if broken:
        sys.exit(f"bounds broken in: {', '.join(broken)}")


if __name__ == "__main__":
    main()

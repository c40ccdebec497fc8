#!/usr/bin/env bash
# Makes an environment for a night on a GPU: the machine's own torch, this harness, and Transformer Engine as it
# is installed, or its newest release, built for that torch.
#
# Usage: gpu-env.sh VENV installed|newest
#
# Then: VENV/bin/python .github/scripts/nightly.py OUT SECONDS --backend cuda
set -euo pipefail

if [[ $# -ne 2 || ! $2 =~ ^(installed|newest)$ ]]; then
    echo "usage: gpu-env.sh VENV installed|newest" >&2
    exit 2
fi
venv=$1 te=$2
cd "$(dirname "$0")/../.."

# NVIDIA's containers pin every package that was there when they were built, pytest among them.
unset PIP_CONSTRAINT
python3 -m venv --system-site-packages "$venv"
pip=("$venv/bin/python" -m pip install --disable-pip-version-check)

# The machine's torch is the one that its kernels were built for: better no environment than another torch.
constraints=$venv/constraints.txt
"$venv/bin/python" -c 'import importlib.metadata as m; print("torch==" + m.version("torch"))' > "$constraints"

if [[ $te == newest ]]; then
    cuda=$("$venv/bin/python" -c 'import torch; print(torch.version.cuda.split(".")[0])')
    "${pip[@]}" --upgrade-strategy only-if-needed --upgrade --no-build-isolation -c "$constraints" \
        "transformer-engine[pytorch,core-cu$cuda]"
fi
"${pip[@]}" -c "$constraints" .
"$venv/bin/python" -m pip list | grep -i -E '^(torch|transformer.engine|hypothesis|pytest)'

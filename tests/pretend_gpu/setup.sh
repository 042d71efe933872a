#!/bin/sh
# Sets up what the tests marked pretend_gpu need, in the checkout: .venv-pretend, an environment with the CUDA build of
# torch and without NVIDIA's wheels (1.4 GB), and .pretend, the pretend GPU built for it. Quick when both are complete.
# PYTHON chooses the interpreter (python3).
set -eu
cd "$(dirname "$0")/../.."
python=.venv-pretend/bin/python
"$python" -m pip --version >/dev/null 2>&1 || "${PYTHON:-python3}" -m venv --clear .venv-pretend
"$python" -m pip install --quiet --disable-pip-version-check --no-deps torch==2.14.1 -r tests/pretend_gpu/requirements.txt
"$python" -m vramscope.pretend_gpu.build .pretend

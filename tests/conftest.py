"""One thread for every test process: the tensors are small, and the processes share the cores. Nothing is downloaded."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

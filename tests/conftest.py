"""One thread: the tensors of the tests are small. Nothing is downloaded."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

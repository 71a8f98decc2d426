"""How long an audit takes, by the number of parameters.

    python tests/benchmarks/audit_size.py               # a Markdown table
    python tests/benchmarks/audit_size.py 24 28         # some widths

The model is a rotary transformer with LayerNorms and biases (transformers' GPT-NeoX, two layers), the count without the search
for permutations and signs, whose time is bounded by an option of its own. Times are those of the processor, of all threads
together (``OMP_NUM_THREADS=1`` for one).
"""

from __future__ import annotations

import sys
import time

import torch
import transformers

import symgraph as sg

WIDTHS = (8, 12, 16, 20, 24)


def measure(width: int) -> str:
    torch.manual_seed(0)
    config = transformers.GPTNeoXConfig(
        hidden_size=width, num_hidden_layers=2, num_attention_heads=2, intermediate_size=width + 6, vocab_size=5 * width + 5,
        max_position_embeddings=32, rotary_pct=0.5, tie_word_embeddings=False, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    module = transformers.GPTNeoXForCausalLM(config).eval()
    graph = sg.trace(module, kwargs={"input_ids": torch.randint(0, config.vocab_size, (2, 8))})
    spec = sg.discover(graph)
    start = time.process_time()
    report = sg.audit(graph, spec, seconds=0)
    seconds = time.process_time() - start
    return f"| {width} | {report.parameters} | {report.nullity} | {report.gap:.1f} | {report.complete} | {seconds:.0f} |"


def main() -> None:
    print("| width | parameters | nullity | gap | complete | seconds |\n|---|---|---|---|---|---|")
    for width in map(int, sys.argv[1:] or WIDTHS):
        print(measure(width), flush=True)


if __name__ == "__main__":
    main()

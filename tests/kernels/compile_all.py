"""Compiles every kernel for a Hopper GPU, which needs none: run by test_compile without the interpreter."""

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from softdlm import Euclidean, Slerp
from softdlm.kernels import soft, vocabulary_triton

NUMBERS = {"lam": "fp32"}
POINTERS = {
    "*i64": ("special", "ids", "topk_ids", "token_out"),
    "*i1": ("ranked", "candidate", "chosen"),
    "*bf16": ("logits", "embeds", "table", "mask"),
    "*fp32": (
        "values", "reference_out", "rest_out", "slope_out", "references", "rests", "slopes", "log_confidence_out",
        "entropy_out", "doubt_out", "topk_probs",
    ),
}  # fmt: skip
TYPES = NUMBERS | {name: kind for kind, names in POINTERS.items() for name in names}


def compiled(kernel, warps: int, **constants) -> str:
    signature = {name: "constexpr" if name in constants else TYPES.get(name, "i32") for name in kernel.arg_names}
    source = ASTSource(kernel, signature, constexprs=constants)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps}).asm["ptx"]


def main() -> None:
    for keep in (2, 16):
        compiled(vocabulary_triton._scan, 4, KEEP=keep, SLOTS=keep, TILE=1024)
        compiled(vocabulary_triton._finish, 4, K=keep, KEEP=keep, PARTS=8, ENTRIES=256)
    for rule in (Slerp(), Slerp(norm="candidate"), Euclidean(), Euclidean(norm="mask")):
        compiled(soft._soft, 8, K=rule.k, NORM=rule.norm, WEIGHTS=soft.compiled(rule.weights), WIDTH=1024)
    print("compiled")


if __name__ == "__main__":
    main()

"""Compiles every kernel for a Hopper GPU, which needs none: run by test_compile without the interpreter."""

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from softdlm import Euclidean, Slerp
from softdlm.kernels import experts, few_rows_triton, router, soft, split_kv_attention, vocabulary_triton

NUMBERS: dict[str, str] = dict.fromkeys(("lam", "factor", "epsilon", "scale"), "fp32")
POINTERS = {
    "*i64": ("special", "ids", "topk_ids", "token_out", "ids_out"),
    "*i32": ("order", "offsets", "count"),
    "*i1": ("ranked", "candidate", "chosen", "written"),
    "*bf16": (
        "logits", "embeds", "table", "mask", "hidden", "weight", "inner", "made", "mixed", "x", "gain", "bias", "cos",
        "sin", "queries", "keys", "to", "scaled",
    ),
    "*fp32": (
        "values", "reference_out", "rest_out", "slope_out", "references", "rests", "slopes", "log_confidence_out",
        "entropy_out", "one_minus_margin_out", "topk_probs", "weights", "weights_out", "partial", "sums", "squares",
        "tops", "made_tops", "factors",
    ),
}  # fmt: skip
TYPES = NUMBERS | {name: kind for kind, names in POINTERS.items() for name in names}
EXACT = {"logits": "*fp32", "bias": "*fp32", "weight": "*fp32"}
"""A router computes in float32."""


def compiled(kernel, warps: int, types: dict[str, str] = TYPES, /, **constants) -> str:
    signature = {name: "constexpr" if name in constants else types.get(name, "i32") for name in kernel.arg_names}
    source = ASTSource(kernel, signature, constexprs=constants)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps}).asm["ptx"]


def main() -> None:
    for keep in (2, 16):
        compiled(vocabulary_triton._scan, 4, KEEP=keep, SLOTS=keep, TILE=1024)
        compiled(vocabulary_triton._finish, 4, K=keep, KEEP=keep, PARTS=8, ENTRIES=256)
    for rule in (Slerp(), Slerp(norm="candidate"), Euclidean(), Euclidean(norm="mask")):
        compiled(soft._soft, 8, K=rule.k, NORM=rule.norm, WEIGHTS=soft.compiled(rule.weights), WIDTH=1024)
    mixtures()
    thin_layers()
    print("compiled")


def mixtures() -> None:
    scaled = TYPES | dict.fromkeys(("scale", "hidden_scale", "inner_scale", "scales"), "*fp32")
    eight = scaled | dict.fromkeys(("weight", "hidden", "inner", "codes"), "*fp8e4nv")
    compiled(experts._round, 4, eight, WIDTH=2048, ALL=2048)
    wide = scaled | dict.fromkeys(("hidden", "weight", "inner", "made", "mixed", "logits", "bias"), "*fp32")
    for exact in (True, False):
        tile = {"ROWS": 64, "OUTPUTS": 64, "INPUTS": 32, "EXACT": exact, "TYPE": tl.bfloat16}
        compiled(router._score, 4, TYPES | EXACT, WIDTH=2048, EXPERTS=256, **tile)
    compiled(router._route, 1, TYPES | EXACT, GROUPS=8, EACH=32, CHOSEN=4, K=8, NORMED=True)
    compiled(experts._arrange, 4, CHUNK=experts.CHUNK)
    for rows in (16, 64):
        tile = {"EXPERTS": 256, "EVERY": 256, "ROWS": rows, "OUTPUTS": 128, "INPUTS": 64}
        for kernel, more in ((experts._gate_up, {}), (experts._down, {"TILE": 128})):
            compiled(kernel, 4, scaled, EIGHT=False, WIDTH=2048, MIDDLE=512, **tile, **more)
            compiled(kernel, 4, eight, EIGHT=True, WIDTH=2048, MIDDLE=512, **tile, **more)
    tile = {"EXPERTS": 256, "EVERY": 256, "ROWS": 16, "OUTPUTS": 16, "INPUTS": 16}
    compiled(experts._gate_up, 4, wide, EIGHT=False, WIDTH=2048, MIDDLE=512, **tile)
    compiled(experts._down, 4, wide, EIGHT=False, WIDTH=2048, MIDDLE=512, **tile, TILE=16)
    compiled(experts._total, 4, K=8, WIDTH=2048, ALL=2048)


def thin_layers() -> None:
    tile = {"OUTPUTS": 64, "INPUTS": 64, "ROWS": 32, "OVERLAP": True}
    types = TYPES | {"values": "*bf16", "columns": "*i64"}
    for overlap in (True, False):
        compiled(few_rows_triton.prepare_kernel, 4, OUTPUTS=64, ROWS=32, OVERLAP=overlap)
    kernels = few_rows_triton
    eight_bits = {"scale": "*fp32", "x": "*fp8e4nv", "weight": "*fp8e4nv"}
    for norm in (False, True):
        compiled(
            kernels.round_kernel,
            4,
            types | {"codes": "*fp8e4nv"},
            PARTS=64,
            WIDTH=4096,
            NORM=norm,
            OUTPUTS=128,
            ROWS=32,
            OVERLAP=True,
        )
    for eight in (False, True):
        own = types | (eight_bits if eight else {"scale": "*bf16"})
        tile |= {"EIGHT": eight, "WIDTH": 4096}
        compiled(kernels.project_kernel, 4, own, BIAS=True, PARTS=64, HEADS=32, KV=32, **tile)
        compiled(kernels.add_kernel, 4, own, **tile)
        compiled(kernels.gate_kernel, 4, own, PARTS=64, **tile)
    for whole in (True, False):
        tile = {"HEADS": 32, "GROUP": 1, "HEAD": 128, "ROWS": 32, "KEYS": 128, "PARTS": 4, "WHOLE": whole}
        tile |= {"TOPS": whole}
        compiled(split_kv_attention._attend, 4, types, **tile, OVERLAP=True)


if __name__ == "__main__":
    main()

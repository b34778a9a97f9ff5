"""vLLM, eager and native against restored: seconds of the start, milliseconds a token, tokens compared.

    python -m foundry.recipes.vllm_bench --archive vllm.fdry

Saves the archive first if there is none. Starts come in turns (native, LOAD, native, LOAD); replays of restored graphs
and of native ones captured again in the same process come in turns too, so that clocks and neighbours are the same.

Exit code: 0 if every graph was restored and every token is equal (or differs no more than between two native starts).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from foundry.recipes.engines.runs import Results, console, equal_tokens, has_archive, replays, restored, summary, table
from foundry.recipes.engines.vllm_recipe import arguments, starts


def main(argv: Sequence[str] | None = None) -> int:
    """See the module."""
    options, runs = arguments("vllm_bench", __doc__, argv)
    with runs:
        if not has_archive(options, runs):
            return 1
        found: dict[str, Results] = {}
        for name, mode, extra in (
            ("eager", "native", ("--eager",)),
            ("native", "native", ()),
            ("LOAD", "load", () if options.separate else ("--compare",)),
            ("native again", "native", ()),
            ("LOAD again", "load", ()),
        ):
            result = runs.run(mode, name.replace(" ", "-"), extra)
            if result is None:
                return 1
            found[name] = result
    starts(found)
    native, load = found["native"], found["LOAD"]
    rows = []
    for batch, base in native["ms_per_token"].items():
        other, again, more = (found[n]["ms_per_token"][batch] for n in ("LOAD", "native again", "LOAD again"))
        rows.append(
            (
                batch,
                f"{base:.3f} {again:.3f}",
                f"{other:.3f} {more:.3f}",
                f"{(other + more) / (base + again):.4f}",
                f"{int(batch) * 2e3 / (base + again):.0f}",
                f"{int(batch) * 2e3 / (other + more):.0f}",
            )
        )
    table(("batch", "native, ms a token", "LOAD", "ratio", "tokens/s native", "LOAD"), rows)
    if load.get("replays"):
        replays(load["replays"], "native replay, ms", "restored")
    summary(load)
    return 0 if _tokens(found) and restored(load) else 1


def _tokens(found: dict[str, Results]) -> bool:
    good = True
    base = found["native"]["tokens"]
    repeats = equal_tokens(base, found["native again"]["tokens"])
    for name in ("LOAD", "LOAD again"):
        for batch, (same, total) in equal_tokens(base, found[name]["tokens"]).items():
            native_same = repeats[batch][0]
            console.print(
                f"{name}, batch {batch}: {same} of {total} prompts have native's tokens "
                f"(a second native start: {native_same})"
            )
            good = good and same >= native_same
    return good


if __name__ == "__main__":
    sys.exit(main())

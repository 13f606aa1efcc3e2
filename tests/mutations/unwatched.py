"""Guards that no test watches yet: `run.py` counts them, and fails where one of them is watched by now."""

from __future__ import annotations

_NAMES = """
    read-no-streams direct-size-unknown direct-first-key direct-last-hit direct-chain-known direct-own-rank
    direct-own-store-reported direct-undecided-touched rank-undecided rank-own-store derived-prompt-length
    derived-size-unknown derived-short-rank derived-idle-only derived-full-rank stream-begins stream-expired
    stream-unplaced stream-unplaced-reported stream-decoding reading-latest decoding-tail decoding-age
    size-agrees eliminate-only-taker belong-exact companion-between-halves promise-own-first promise-skew
    promise-best-here promise-rank lost-reset-between latest-named facts-local-hit facts-no-stream
    facts-tier-spoken facts-tier-gap facts-tier-holding facts-unit-finer facts-prompt-disagree facts-external
    age-evicted workers-route-rank workers-host-dot workers-sole workers-map-empty workers-map-every
    view-block-size view-until view-clocks doubt-ambiguous doubt-unknown doubt-hole-since doubt-later-work
    later-work-clear later-work-unknown later-work-someone identity-asked holders-doubt-view
    holders-doubt-holder elsewhere-device elsewhere-cost identity-doubt computing-own computing-key certain-gap
    relatives-parent relatives-same relatives-maybe relatives-own-complete relatives-complete relatives-tail
    relatives-self relatives-late strange-late tail-chain
"""

UNWATCHED: frozenset[str] = frozenset(_NAMES.split())
"""Names of mutations. Add none: write the test, or take out a guard that can be shown to decide nothing."""

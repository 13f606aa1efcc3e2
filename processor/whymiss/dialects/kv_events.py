"""vLLM's KV-cache events as a source of evidence: no span tells them, the ledger reads them."""

from __future__ import annotations

from .emitter import Emitter

EMITTER = Emitter(
    name="vLLM, KV-cache events",
    gives="every stored, removed and cleared block; from them cached tokens and the first missed block",
    lacks="request ids; what a connector loaded",
    switch_on="`--kv-events-config` with `replay_endpoint`; here `sources`",
)

"""The page for humans at ``/status``: `survey` gathers `facts`, `page` is a pure function of them, `site` serves it."""

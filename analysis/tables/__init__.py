"""Tables of published and measured values: what a cell holds, and how it is printed."""

EMBEDDING = "embedding"  # the table that is measured from features, not from results

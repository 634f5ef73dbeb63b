"""From result files to tables, statistics and figures; never imports torch."""

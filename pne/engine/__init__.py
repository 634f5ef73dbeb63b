"""What happens between a spec and its result files: data, training loop, checkpoints, evaluation, provenance."""

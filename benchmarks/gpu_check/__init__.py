"""What a GPU has to show before long trainings: one module a part, run by ``python benchmarks/gpu_check``."""

"""From YAML and mmengine configs to resolved runs: reading, checking, naming and building. Imports no torch.

`pne.resolve` is the way in; what comes out is `pne.spec.Run` and its config. Only `build_check` builds networks.
"""

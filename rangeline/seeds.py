"""Counter-based random streams keyed by (run seed, words, numbers): no global state, no stream to checkpoint.

A stream depends only on its key, so that sampling a prompt gives the same draws in whatever batch, order or
process it is sampled, and a resumed run repeats an interrupted iteration exactly.
"""

import hashlib

import numpy as np


def stream(run_seed: int, *key: str | int) -> np.random.Generator:
    """Return the random stream of one key.

    Parameters
    ----------
    run_seed
        Seed of the run, any integer.
    *key
        What the draws are for, such as ``("rollout", iteration, prompt_id)``. Types count: ``1`` and ``"1"`` differ.

    Returns
    -------
    numpy.random.Generator
        Philox generator whose 128-bit key is a hash of the arguments.

    Examples
    --------
    >>> a = stream(7, "rollout", 0, "p1").random(3)
    >>> b = stream(7, "rollout", 0, "p1").random(3)
    >>> bool((a == b).all())
    True
    >>> bool((a == stream(7, "rollout", 1, "p1").random(3)).any())
    False
    """
    text = repr((int(run_seed), *key)).encode()
    words = np.frombuffer(hashlib.sha256(text).digest()[:16], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=words))


def seed_of(run_seed: int, *key: str | int) -> int:
    """Return a 63-bit integer seed of one key, for libraries that take an integer."""
    return int(stream(run_seed, *key).integers(0, 2**63 - 1))

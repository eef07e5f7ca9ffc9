"""JAX: the scaler of any preset as pure functions of a pytree, under jit as outside of it."""
from .._needs import need

need("jax", __name__, "jax>=0.10")

from .scaler import Scaler, State, all_finite, select  # noqa: E402

__all__ = ["Scaler", "State", "all_finite", "select"]

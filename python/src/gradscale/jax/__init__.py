"""JAX: the scaler of any preset as pure functions of a pytree, under jit as outside of it."""
from .scaler import Scaler, State, all_finite, select

__all__ = ["Scaler", "State", "all_finite", "select"]
